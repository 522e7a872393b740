package speculative

import (
	"math"

	"github.com/sortes-llm/sortes/sampler"
)

// A Learner is a [Drafter] that learns from the target's logits. The loop hands
// it every row that a round has evaluated, those behind rejected drafts too:
// they hold what the target expects in that context, if not in this text.
//
// An [NGram] reads the whole row once for it, which takes as long as a greedy
// choice of a token; a [Lookahead] as well. It is worth that only where an
// evaluation takes many times longer.
type Learner interface {
	// Learn is told the logits that follow a context: the text in the slot,
	// and drafts behind it, of which it takes the last 32 tokens at most. It
	// keeps neither slice.
	Learn(slot int, context []int32, logits []float32)
}

// The target's likely tokens are kept apart from what really stood, by the two
// tokens, and the one, before them. There is one place for each pair: what
// comes later takes it.
const (
	maxFiller  = 8
	fillerSize = 1 << 11 // pairs for each text
)

// pairFiller holds the likely tokens after a context.
type pairFiller struct {
	context [2]int32 // the first is -1 for a context of one token
	used    bool
	tokens  [maxFiller]int32
	weights [maxFiller]float32 // sums of probabilities that fade; 0 for none
}

// Learn notes the likely tokens, those with a probability above 0, if
// NGramOptions.Filler is set. It does nothing in a slot that nothing was
// drafted for.
func (g *NGram) Learn(slot int, context []int32, logits []float32) {
	if g.options.Filler == 0 || slot >= len(g.texts) || g.texts[slot] == nil || len(context) == 0 {
		return
	}
	g.top = sampler.TopLogProbs(g.top[:0], logits, g.options.Filler)
	for m := 1; m <= min(2, len(context)); m++ {
		f, key := g.texts[slot].place(context, m)
		if !f.used || f.context != key {
			*f = pairFiller{context: key, used: true}
		}
		f.add(g.top)
	}
}

// fillerFor returns what is noted for the last m tokens of a text, 1 or 2, or
// nil.
func (x *ngramText) fillerFor(text []int32, m int) *pairFiller {
	if len(text) < m {
		return nil
	}
	if f, key := x.place(text, m); f.used && f.context == key {
		return f
	}
	return nil
}

// place returns the place for the last m tokens of a text.
func (x *ngramText) place(text []int32, m int) (*pairFiller, [2]int32) {
	key := [2]int32{-1, text[len(text)-1]}
	if m == 2 {
		key[0] = text[len(text)-2]
	}
	h := (uint64(uint32(key[0]))<<32 | uint64(uint32(key[1]))) * 0x9e3779b97f4a7c15
	return &x.filler[h>>32%fillerSize], key
}

// add notes the likely tokens of a row. What was noted before counts half; of
// more tokens than there is room for, the lightest go. A probability too small for
// a float32 is 0, and displaces nothing.
func (f *pairFiller) add(top []sampler.TokenLogProb) {
	for i := range f.weights {
		f.weights[i] /= 2
	}
	for _, t := range top {
		p := float32(math.Exp(t.LogProb))
		at, noted := 0, false
		for i, w := range f.weights {
			if noted = w > 0 && f.tokens[i] == t.ID; noted {
				at = i
				break
			}
			if w < f.weights[at] {
				at = i
			}
		}
		if noted {
			f.weights[at] += p
		} else if p > f.weights[at] {
			f.tokens[at], f.weights[at] = t.ID, p
		}
	}
}

// best returns the heaviest token and its share of the weight, of equals the
// lower id. Its share is 0 where nothing is noted.
func (f *pairFiller) best() (token int32, share float32) {
	best, total := 0, float32(0)
	for i, w := range f.weights {
		total += w
		if w > f.weights[best] || w == f.weights[best] && f.tokens[i] < f.tokens[best] {
			best = i
		}
	}
	if total == 0 {
		return 0, 0
	}
	return f.tokens[best], f.weights[best] / total
}
