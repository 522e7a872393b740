package speculative

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/sampler"
)

// An enumerator is a chance that takes every course in turn. The number of a
// key is known as an interval only: where a decision depends on more, the run
// splits, each branch with its share of the interval. A key that is asked
// twice is the same number both times, so that keys used twice for what should
// be independent are found out.
type enumerator struct {
	path  []branch // the decisions of this run
	depth int
	known map[key]interval
	mass  float64 // probability of this run so far
}

type branch struct{ taken, of int }

type interval struct{ low, high float64 }

// runs calls f once for every course.
func (e *enumerator) runs(f func()) {
	e.path = e.path[:0]
	for {
		e.depth, e.mass, e.known = 0, 1, map[key]interval{}
		f()
		for len(e.path) > 0 && e.path[len(e.path)-1].taken == e.path[len(e.path)-1].of-1 {
			e.path = e.path[:len(e.path)-1]
		}
		if len(e.path) == 0 {
			return
		}
		e.path[len(e.path)-1].taken++
	}
}

// split decides between the parts into which the edges, which rise, cut the
// interval of a key. It returns the number of edges below the part.
func (e *enumerator) split(k key, edges ...float64) int {
	iv, ok := e.known[k]
	if !ok {
		iv = interval{0, 1}
	}
	var parts []interval
	var index []int
	low := iv.low
	for i, edge := range slices.Concat(edges, []float64{math.Inf(1)}) {
		if high := min(edge, iv.high); high > low {
			parts, index = append(parts, interval{low, high}), append(index, i)
			low = high
		}
	}
	taken := 0
	if len(parts) > 1 {
		if e.depth == len(e.path) {
			e.path = append(e.path, branch{0, len(parts)})
		}
		taken = e.path[e.depth].taken
		e.depth++
	}
	e.mass *= (parts[taken].high - parts[taken].low) / (iv.high - iv.low)
	e.known[k] = parts[taken]
	return index[taken]
}

func (e *enumerator) below(k key, p float64) bool { return e.split(k, p) == 0 }

func (e *enumerator) choose(k key, weights []float64, total float64) int {
	var edges []float64
	var index []int
	sum := 0.0
	for i, w := range weights {
		if w > 0 {
			sum += w
			edges, index = append(edges, sum/total), append(index, i)
		}
	}
	return index[e.split(k, edges[:len(edges)-1]...)]
}

// pairsFollow checks the law of the first two tokens of a text, over a vocabulary
// of 3. round returns what one round comes to; plain rounds complete it.
func pairsFollow(t *testing.T, p language, name string, round func(e *enumerator) []int32) {
	t.Helper()
	got := map[string]float64{}
	var e enumerator
	e.runs(func() {
		text := round(&e)
		for len(text) < 2 {
			plain := &tableTarget{c: &e, p: p, cache: text, pos: len(text)}
			x, _ := plain.Pick(0)
			text = append(text, x)
		}
		got[fmt.Sprint(text[:2])] += e.mass
	})
	for a := range int32(3) {
		for b := range int32(3) {
			assert.InDelta(t, p(nil).ProbOf(a)*p([]int32{a}).ProbOf(b), got[fmt.Sprint([]int32{a, b})], exact, name)
		}
	}
}

// weightsOf returns the probabilities of d.
func weightsOf(d *sampler.Dist) []float64 {
	w := make([]float64, d.Len())
	for i := range w {
		w[i] = d.Prob(i)
	}
	return w
}

// A language gives the distribution of the token that follows a prefix, always
// the same.
type language func(prefix []int32) *sampler.Dist

// kept makes a language of a function that is called once for each prefix.
func kept(f func(prefix []int32) *sampler.Dist) language {
	known := map[string]*sampler.Dist{}
	return func(prefix []int32) *sampler.Dist {
		name := fmt.Sprint(prefix)
		if known[name] == nil {
			known[name] = f(prefix)
		}
		return known[name]
	}
}

// chained makes a language of a chain of filters and logits.
func chained(c sampler.Config, logits func(prefix []int32) []float32) language {
	s, err := sampler.New(c)
	if err != nil {
		panic(err)
	}
	return kept(func(prefix []int32) *sampler.Dist {
		var d sampler.Dist
		if err := s.DistAt(&d, logits(prefix), prefix, sampler.Draw{Pos: len(prefix)}); err != nil {
			panic(err)
		}
		return &d
	})
}

// randomLogits returns logits that follow from seed and prefix, about a third of them
// banned.
func randomLogits(seed uint64, vocab int, spread float64) func(prefix []int32) []float32 {
	return func(prefix []int32) []float32 {
		h := seed
		for _, x := range prefix {
			h = h*31 + uint64(x) + 1
		}
		r := rand.New(rand.NewPCG(h, seed))
		row := make([]float32, vocab)
		for i := range row {
			row[i] = float32(r.NormFloat64() * spread)
			if r.IntN(3) == 0 {
				row[i] = float32(math.Inf(-1))
			}
		}
		row[r.IntN(vocab)] = 0
		return row
	}
}

var drawing = sampler.Config{Temperature: 1}

// table makes a language that always has the same probabilities.
func table(probs ...float64) language {
	row := make([]float32, len(probs))
	for i, p := range probs {
		row[i] = float32(math.Log(p))
	}
	return chained(drawing, func([]int32) []float32 { return slices.Clone(row) })
}

// A game is a text written in rounds, with all that a rule needs.
type game struct {
	p, q   language
	n      int // tokens drafted in a round, fewer where fewer are missing
	tokens int // tokens of the text
	rounds int // rounds with drafts; 0 is all
	verify verifier

	draft   func(g *game, c chance, text []int32, n int) Draft // nil is drawn
	stop    func(prefix []int32) bool                          // before the next token is drawn
	isEnd   func(token int32) bool                             // nothing is drafted behind it
	keep    int                                                // tokens of a draft, more than those that stand, that the target's cache keeps
	rekey   func(key) key                                      // the numbers to ask for, nil is as they are
	play    func(g *game, c chance) []int32                    // nil is write
	history []int32
	first   int     // tokens that stood in the first round of the last text
	stood   float64 // the mean of first, in distance
}

type verifier func(c chance, t Target, d Draft, at sampler.Draw) (int, int32, error)

// production is the verifier of the package.
func production(rule Rule) verifier {
	return func(c chance, t Target, d Draft, at sampler.Draw) (int, int32, error) {
		v := Verifier{chance: c}
		return v.Verify(rule, t, d, at)
	}
}

// A tableTarget answers from a language. What its cache holds is meant to be
// the text.
type tableTarget struct {
	c     chance
	p     language
	cache []int32
	draft []int32
	seed  uint64
	pos   int
}

func (t *tableTarget) at(i int) *sampler.Dist { return t.p(slices.Concat(t.cache, t.draft[:i])) }

func (t *tableTarget) Dist(dst *sampler.Dist, i int) error {
	*dst = *t.at(i)
	return nil
}

func (t *tableTarget) Pick(i int) (int32, error) {
	d := t.at(i)
	return d.Token(t.c.choose(key{sampler.Draw{Seed: t.seed, Pos: t.pos + i}, 0}, weightsOf(d), 1)), nil
}

// drawn is what a drafter draws from q.
func drawn(g *game, c chance, text []int32, n int) Draft {
	var d Draft
	prefix := slices.Clone(text)
	for i := range n {
		if g.stop != nil && g.stop(prefix) {
			break
		}
		q := g.q(prefix)
		x := q.Token(c.choose(draftKey(0, len(text), i), weightsOf(q), 1))
		d.Tokens, d.Dists = append(d.Tokens, x), append(d.Dists, *q)
		prefix = append(prefix, x)
		if g.isEnd != nil && g.isEnd(x) {
			break
		}
	}
	return d
}

// rekeyed asks for other numbers than it is asked for.
type rekeyed struct {
	chance
	key func(key) key
}

func (r rekeyed) below(k key, p float64) bool { return r.chance.below(r.key(k), p) }
func (r rekeyed) choose(k key, w []float64, total float64) int {
	return r.chance.choose(r.key(k), w, total)
}

// numbers is what the game draws its numbers from.
func (g *game) numbers(c chance) chance {
	if g.rekey != nil {
		return rekeyed{c, g.rekey}
	}
	return c
}

// write plays one text.
func (g *game) write(c chance) []int32 {
	c = g.numbers(c)
	draft := g.draft
	if draft == nil {
		draft = drawn
	}
	text := slices.Clone(g.history)
	cache := slices.Clone(text) // what the target takes for the text
	for round := 0; ; round++ {
		missing := g.tokens - (len(text) - len(g.history))
		if missing <= 0 {
			return text[len(g.history):][:g.tokens]
		}
		var d Draft
		if n := min(g.n, missing-1); n > 0 && (g.rounds == 0 || round < g.rounds) {
			d = draft(g, c, text, n)
		}
		t := &tableTarget{c: c, p: g.p, cache: cache, draft: d.Tokens, pos: len(text)}
		k, next, err := g.verify(c, t, d, sampler.Draw{Pos: len(text)})
		if err != nil {
			panic(err)
		}
		if round == 0 {
			g.first = k
		}
		text = append(append(text, d.Tokens[:k]...), next)
		cache = append(append(cache, d.Tokens[:max(0, min(k+g.keep, len(d.Tokens)))]...), next)
	}
}

// distance is the total variation between the texts of a game and the target's.
func (g *game) distance(t *testing.T) float64 {
	t.Helper()
	got := map[string]float64{}
	var e enumerator
	total := 0.0
	g.stood = 0
	play := g.play
	if play == nil {
		play = (*game).write
	}
	e.runs(func() {
		text := play(g, &e)
		g.stood += e.mass * float64(g.first)
		got[fmt.Sprint(text)] += e.mass
		total += e.mass
	})
	require.InDelta(t, 1, total, 1e-9, "courses that were missed")
	tv := 0.0
	var walk func(text []int32, p float64)
	walk = func(text []int32, p float64) {
		if len(text) == g.tokens {
			name := fmt.Sprint(text)
			tv += math.Abs(p-got[name]) / 2
			delete(got, name)
			return
		}
		d := g.p(slices.Concat(g.history, text))
		for i := range d.Len() {
			walk(append(slices.Clip(text), d.Token(i)), p*d.Prob(i))
		}
	}
	walk(nil, 1)
	for _, p := range got { // texts that the target never writes
		tv += p / 2
	}
	return tv
}

// draws is how much the long tests do: a tenth under the race detector.
func draws(n int) int {
	if raceDetector {
		return n / 10
	}
	return n
}
