package speculative

import (
	"context"
	"fmt"

	"github.com/sortes-llm/sortes/sampler"
)

// NGramOptions are the settings of an [NGram]. The zero value means the
// defaults.
type NGramOptions struct {
	// Index holds the settings of the index of each text. With Window below
	// the length of a text its beginning is forgotten.
	Index IndexOptions

	// Shared, where not nil, is an index that all texts look into, beside
	// their own, and that each adds its output to when it ends. Whoever made
	// it may use it again when the drafter is used no longer.
	Shared *Index

	// Filler is the number of likely tokens, up to 8, that [NGram.Learn] notes
	// for each position; 0 for none.
	Filler int

	// MinSurvival ends a draft before the first token whose estimated
	// probability to stand, all before it included, is less: 0.02 by default.
	// A [Controller] ends it earlier, where it stops paying.
	MinSurvival float64

	// IsEnd, where not nil, reports whether a token ends a text. A draft ends
	// with the first such token.
	IsEnd func(token int32) bool
}

// An NGram drafts from repetition: the next token is the one that followed
// where the last tokens of the text stood before, in the text itself or in
// earlier ones. Each further token of a draft is found the same way. What has
// no support is not drafted. Its proposals are certain, and cost a microsecond
// or so for each token.
//
// It watches what its predictions would have been worth for each token of the
// output, so that [NGram.Confidence] suits the text.
type NGram struct {
	options NGramOptions
	texts   []*ngramText // by slot
	others  calibration  // all texts so far

	confidence []float64
	top        []sampler.TokenLogProb
}

// ngramText is what is known of a text.
type ngramText struct {
	index   *Index
	known   int // tokens of its history that have been seen
	prompt  int
	last    int32 // the last of them
	chances calibration
	filler  []pairFiller
	tail    []int32 // its end, with the last draft behind it
}

// NewNGram returns a drafter.
func NewNGram(o NGramOptions) (*NGram, error) {
	var err error
	if o.Index, err = o.Index.withDefaults(); err != nil {
		return nil, err
	}
	if o.Filler < 0 || o.Filler > maxFiller {
		return nil, fmt.Errorf("speculative: Filler is %d: it must be in [0, %d]", o.Filler, maxFiller)
	}
	if !(o.MinSurvival >= 0 && o.MinSurvival < 1) {
		return nil, fmt.Errorf("speculative: MinSurvival is %v: it must be above 0 and below 1, or 0 for the default", o.MinSurvival)
	}
	if o.MinSurvival == 0 {
		o.MinSurvival = 0.02
	}
	return &NGram{options: o}, nil
}

// Draft proposes up to n tokens. The draft is valid until the next one for the
// slot.
func (g *NGram) Draft(_ context.Context, t Text, n int) (Draft, error) {
	x := g.text(t)
	g.read(x, t)
	x.tail = append(x.tail[:0], t.History[max(0, len(t.History)-maxContext):]...)
	start := len(x.tail)
	g.confidence = g.confidence[:0]
	survival := 1.0
	for len(g.confidence) < n {
		next, chance := g.predict(x, x.tail)
		survival *= chance
		if survival < g.options.MinSurvival || survival == 0 {
			break
		}
		x.tail = append(x.tail, next)
		g.confidence = append(g.confidence, chance)
		if g.options.IsEnd != nil && g.options.IsEnd(next) {
			break
		}
	}
	return Draft{Tokens: x.tail[start:]}, nil
}

// Confidence returns for each token of the last draft the estimated
// probability that it stands if all before it do. It is valid until the next
// call of Draft.
func (g *NGram) Confidence() []float64 { return g.confidence }

// End adds the output of the text to the shared index, as far as it was seen,
// and forgets the text.
func (g *NGram) End(slot int) {
	if slot >= len(g.texts) || g.texts[slot] == nil {
		return
	}
	x := g.texts[slot]
	if s := g.options.Shared; s != nil && x.known > x.prompt {
		// The context that the output begins with comes along.
		skip := x.index.held - (x.known - x.prompt) - g.options.Index.MaxContext
		x.index.each(func(t int32) {
			if skip--; skip < 0 {
				s.Add(t)
			}
		})
		s.EndText()
	}
	x.reset()
}

func (x *ngramText) reset() {
	x.index.Reset()
	x.known, x.chances = 0, calibration{}
	clear(x.filler)
}

// text returns what is known of the text in a slot.
func (g *NGram) text(t Text) *ngramText {
	for t.Slot >= len(g.texts) {
		g.texts = append(g.texts, nil)
	}
	x := g.texts[t.Slot]
	if x == nil {
		index, err := NewIndex(g.options.Index)
		if err != nil {
			panic(err) // NewNGram has checked the options
		}
		x = &ngramText{index: index}
		if g.options.Filler > 0 {
			x.filler = make([]pairFiller, fillerSize)
		}
		g.texts[t.Slot] = x
	}
	return x
}

// read takes in the tokens of a text that are new. What would have been
// predicted for those of the output is compared with them.
func (g *NGram) read(x *ngramText, t Text) {
	if x.known > len(t.History) || x.known > 0 && t.History[x.known-1] != x.last {
		x.reset() // another text: its End was not told
	}
	if x.known == 0 {
		x.prompt = t.PromptLen
		x.known = max(0, len(t.History)-g.options.Index.Window)
	}
	for i := x.known; i < len(t.History); i++ {
		if i >= t.PromptLen {
			g.compare(x, t.History[max(0, i-maxContext):i], t.History[i])
		}
		x.index.Add(t.History[i])
	}
	x.known = len(t.History)
	x.last = t.History[x.known-1]
}

// A prediction is a token with its support.
type prediction struct {
	next int32
	class
}

// predictions returns what each source says of the token after a text.
func (g *NGram) predictions(x *ngramText, text []int32) (p [sources]prediction, n int) {
	if m, ok := x.index.Find(text); ok {
		p[n] = prediction{m.Next, classOf(ownText, m.Length, agreement(m))}
		n++
	}
	if s := g.options.Shared; s != nil {
		if m, ok := s.Find(text); ok {
			p[n] = prediction{m.Next, classOf(sharedText, m.Length, agreement(m))}
			n++
		}
	}
	if x.filler != nil {
		for k, s := range [2]source{fillerPair, fillerSingle} {
			if f := x.fillerFor(text, 2-k); f != nil {
				if next, share := f.best(); share > 0 {
					p[n] = prediction{next, classOf(s, 2-k, int(share*agreements*0.999))}
					n++
				}
			}
		}
	}
	return p, n
}

// predict returns the most likely token after a text with its chance, which is
// 0 if nothing is known; of equals the text's own.
func (g *NGram) predict(x *ngramText, text []int32) (next int32, chance float64) {
	p, n := g.predictions(x, text)
	for _, p := range p[:n] {
		if c := x.chances.chance(&g.others, p.class); c > chance {
			next, chance = p.next, c
		}
	}
	return next, chance
}

// compare counts which predictions of a token come true.
func (g *NGram) compare(x *ngramText, text []int32, token int32) {
	p, n := g.predictions(x, text)
	for _, p := range p[:n] {
		hit := p.next == token
		x.chances[p.class].count(hit, textMemory)
		g.others[p.class].count(hit, othersMemory)
	}
}
