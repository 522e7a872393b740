package speculative

import (
	"context"
	"fmt"

	"github.com/sortes-llm/sortes/sampler"
)

// LookaheadOptions are the settings of a [Lookahead]. The zero value means the
// defaults.
type LookaheadOptions struct {
	Window int // tokens guessed ahead: 4 by default, up to 16
	N      int // length of the n-grams kept: 3 by default, from 2 to 8
}

// A Lookahead drafts with the target alone, after lookahead decoding (Fu et al.
// 2024, arXiv:2402.02057). Each round evaluates guesses of the next tokens, and
// what the target says behind a guess that fell is the guess of the next round:
// Jacobi iteration. The n-grams that pass by are kept, and drafted where their
// beginning comes up in the text.
//
// It is a [Drafter] on one line of tokens. The method of the paper evaluates
// several branches beside each other, which needs a mask that keeps them apart
// and 60 to 120 rows for each round; this one can either follow its guesses or
// verify an n-gram, not both at once. It gains a little where rows cost nothing,
// and nothing where they do not, as on most CPUs: use it only to experiment. It
// must be handed all rows (see [Learner]).
type Lookahead struct {
	options LookaheadOptions
	texts   []*lookaheadText
	top     []sampler.TokenLogProb
}

type lookaheadText struct {
	pool    *Index
	tail    []int32 // its end, with the last draft behind it
	start   int     // tokens of the history at the last Draft
	guesses []int32 // the target's most likely tokens from there on
}

// NewLookahead returns a drafter.
func NewLookahead(o LookaheadOptions) (*Lookahead, error) {
	if o.Window < 0 || o.Window > 16 {
		return nil, fmt.Errorf("speculative: Window is %d: it must be in [1, 16], or 0 for 4", o.Window)
	}
	if o.N != 0 && (o.N < 2 || o.N > 8) {
		return nil, fmt.Errorf("speculative: N is %d: it must be in [2, 8], or 0 for 3", o.N)
	}
	if o.Window == 0 {
		o.Window = 4
	}
	if o.N == 0 {
		o.N = 3
	}
	return &Lookahead{options: o}, nil
}

// Draft proposes up to n tokens, but no more than the window.
func (l *Lookahead) Draft(_ context.Context, t Text, n int) (Draft, error) {
	for t.Slot >= len(l.texts) {
		l.texts = append(l.texts, nil)
	}
	x := l.texts[t.Slot]
	if x == nil {
		pool, err := NewIndex(IndexOptions{MaxContext: l.options.N - 1, Window: 1 << 12})
		if err != nil {
			panic(err) // the options are right
		}
		x = &lookaheadText{pool: pool}
		l.texts[t.Slot] = x
	}
	x.tail = append(x.tail[:0], t.History[max(0, len(t.History)-maxContext):]...)
	start := len(x.tail)
	for i := range min(n, l.options.Window) {
		x.tail = append(x.tail, l.guess(x, len(t.History)+i-x.start))
	}
	x.start, x.guesses = len(t.History), x.guesses[:0]
	return Draft{Tokens: x.tail[start:]}, nil
}

// guess returns the token after the tail: what an n-gram says whose beginning is
// there in full, else what the target said at that place in the last round, else
// what a shorter beginning says, else the last token once more, for a start.
func (l *Lookahead) guess(x *lookaheadText, place int) int32 {
	m, known := x.pool.Find(x.tail)
	switch {
	case known && m.Length >= l.options.N-1:
		return m.Next
	case place >= 0 && place < len(x.guesses):
		return x.guesses[place]
	case known:
		return m.Next
	}
	return x.tail[len(x.tail)-1]
}

// Learn takes the most likely token of a row.
func (l *Lookahead) Learn(slot int, context []int32, logits []float32) {
	if slot >= len(l.texts) || l.texts[slot] == nil {
		return
	}
	x := l.texts[slot]
	if l.top = sampler.TopLogProbs(l.top[:0], logits, 1); len(l.top) == 0 {
		return
	}
	if len(x.guesses) <= largestMax { // more are of no use, as between two drafts far apart
		x.guesses = append(x.guesses, l.top[0].ID)
	}
	for _, t := range context[max(0, len(context)-l.options.N+1):] {
		x.pool.Add(t)
	}
	x.pool.Add(l.top[0].ID)
	x.pool.EndText()
}

// End forgets the text.
func (l *Lookahead) End(slot int) {
	if slot < len(l.texts) && l.texts[slot] != nil {
		x := l.texts[slot]
		x.pool.Reset()
		x.start, x.guesses = 0, x.guesses[:0]
	}
}
