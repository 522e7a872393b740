package generate

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
)

// alternate is a step with a state: it lets even and odd tokens follow each
// other, beginning with even ones.
type alternate struct{ last int32 }

func (a *alternate) Apply(c *sampler.Candidates, _ []int32) error {
	c.Keep(func(x sampler.Candidate) bool { return (x.ID+a.last)%2 != 0 })
	return nil
}
func (a *alternate) Accept(token int32)      { a.last = token }
func (a *alternate) Clone() sampler.Stateful { n := *a; return &n }

// withState are requests whose sampler has a state, or counts from the prompt's
// end.
func withState() []Request {
	configs := []sampler.Config{
		{Temperature: 1, Mirostat: 2, MirostatTau: 2, MirostatEta: 0.4},
		{Temperature: 0.8, Mirostat: 1, MirostatTau: 1.5, MirostatEta: 0.3},
		{Temperature: 1, TopK: 20, AdaptiveTarget: 0.3, AdaptiveDecay: 0.7},
		{Temperature: 1, Order: []string{"alternate"}, Steps: map[string]sampler.Step{"alternate": &alternate{last: 1}}},
		{Temperature: 1, DrawMethod: sampler.DrawMT19937},
		{Temperature: 0.5, RepeatPenalty: 3, PenaltyLastN: 64, PenaltySkipPrompt: true},
	}
	var all []Request
	for i, c := range configs {
		all = append(all, Request{Prompt: prompt(5+3*i, i), MaxTokens: 25, IgnoreEOG: true, Seed: uint64(i), Sampling: c})
	}
	return all
}

// A sampler with a state hears of every token once: alone, beside others, where
// a request loses its sequence and is evaluated again, and with drafts.
func TestSamplersWithAState(t *testing.T) {
	all := withState()
	for _, c := range []tablemodel.Config{{}, {Sequences: 3, Batch: 16}, {Sequences: 3, Cells: 70}} {
		for _, mistakes := range []int{-1, 0, 3} {
			var o Options
			if mistakes >= 0 {
				o.Drafts = drafts(&oracle{mistakes: mistakes})
			}
			e := newEngine(t, tablemodel.New(c), o)
			for range 2 { // the second time with the state that the first might have left
				for i, o := range runAll(t, e, all) {
					assertSame(t, simulate(tablemodel.Hashed(0), 1024, all[i]), o, "request %d, %+v, mistakes %d", i, c, mistakes)
				}
			}
		}
	}
}

// With a peaked model drafts are right although the sampler has a state.
func TestDraftsWithMirostat(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{Logits: func(dst []float32, prefix []int32) {
		tablemodel.Hashed(0)(dst, prefix)
		for i := range dst {
			dst[i] *= 4
		}
	}})
	e := newEngine(t, m, Options{Drafts: drafts(&oracle{})})
	r := withState()[0]
	o := runRequest(t, t.Context(), e, r)
	assertSame(t, simulate(func(dst []float32, prefix []int32) {
		tablemodel.Hashed(0)(dst, prefix)
		for i := range dst {
			dst[i] *= 4
		}
	}, 1024, r), o)
	assert.Less(t, m.Counters().Evals, 20, "25 tokens")
}

// MinLength counts from the prompt's end and bans what ends the text.
func TestMinLengthOfARequest(t *testing.T) {
	end := func(dst []float32, prefix []int32) {
		clear(dst)
		dst[tablemodel.EOT], dst[tablemodel.EOS], dst[ids("a")[0]], dst[ids("b")[0]] = 9, 8, 7, 6
	}
	e := newEngine(t, tablemodel.New(tablemodel.Config{Logits: end}), Options{})
	r := Request{Prompt: prompt(6, 1), MaxTokens: 10}
	r.Sampling.MinLength = 3
	o := runRequest(t, t.Context(), e, r)
	assert.Equal(t, "aaa", o.text)
	assert.Equal(t, int32(tablemodel.EOT), o.stats.EndToken)

	r.EndTokens = ids("a")
	o = runRequest(t, t.Context(), e, r)
	assert.Equal(t, "bbb", o.text, "the request's own end tokens too")

	r.IgnoreEOG = true
	o = runRequest(t, t.Context(), e, r)
	assert.Equal(t, slices.Repeat([]int32{tablemodel.EOT}, 10), o.ids(), "what ends no text is not banned")
	r.EndTokens = nil
	o = runRequest(t, t.Context(), e, r)
	assert.NoError(t, o.err, "nothing ends a text")

	r.IgnoreEOG = false
	r.Sampling.EndTokens = []int32{tablemodel.EOT}
	o = runRequest(t, t.Context(), e, r)
	assert.Equal(t, int32(tablemodel.EOS), o.stats.EndToken, "what the caller says stays")
	r.Sampling.EndTokens = nil
	r.Sampling.PromptLen = 4
	o = runRequest(t, t.Context(), e, r)
	assert.Equal(t, "a", o.text, "2 of the prompt's 6 tokens count")
}

// The distribution behind the filters, worked out by hand: logits 3, 2, 1 and
// lower ones, of which top-k leaves three; at temperature 0.5 they are 6, 4, 2.
func TestPostSampling(t *testing.T) {
	a, b, c := ids("a")[0], ids("b")[0], ids("c")[0]
	row := func(dst []float32, _ []int32) {
		for i := range dst {
			dst[i] = -5
		}
		dst[a], dst[b], dst[c] = 3, 2, 1
	}
	e := newEngine(t, tablemodel.New(tablemodel.Config{Logits: row}), Options{})
	r := Request{Prompt: bos(), MaxTokens: 600, Seed: 1, PostSampling: true, TopLogProbs: 2,
		Sampling: sampler.Config{TopK: 3, Temperature: 0.5}}
	o := runRequest(t, t.Context(), e, r)
	require.NoError(t, o.err)
	norm := math.Log(1 + math.Exp(-2) + math.Exp(-4))
	want := map[int32]float64{a: -norm, b: -2 - norm, c: -4 - norm}
	whole := math.Log(math.Exp(3) + math.Exp(2) + math.E + 29*math.Exp(-5))
	seen := map[int32]bool{}
	for _, token := range o.tokens {
		seen[token.ID] = true
		assert.InDelta(t, want[token.ID], token.PostSamplingLogProb, 1e-6)
		require.Len(t, token.PostSamplingTop, 2)
		for i, id := range []int32{a, b} {
			assert.Equal(t, id, token.PostSamplingTop[i].ID)
			assert.InDelta(t, want[id], token.PostSamplingTop[i].LogProb, 1e-6)
			assert.InDelta(t, float64(3-i)-whole, token.Top[i].LogProb, 1e-6, "the model's own")
		}
	}
	assert.Len(t, seen, 3)

	plain := r
	plain.PostSampling = false
	p := runRequest(t, t.Context(), e, plain)
	assert.Equal(t, o.ids(), p.ids(), "asking changes nothing")
	assert.Zero(t, p.tokens[0].PostSamplingLogProb)
	assert.Nil(t, p.tokens[0].PostSamplingTop)

	r.Sampling.Temperature = 0
	o = runRequest(t, t.Context(), e, r)
	assert.Zero(t, o.tokens[0].PostSamplingLogProb, "one token is left")
	assert.Equal(t, []sampler.TokenLogProb{{ID: a}}, o.tokens[0].PostSamplingTop)
}

// With filters that depend on the draw and on the state the distribution is
// that of the draw: DistAt's, of a sampler that hears of the tokens.
func TestPostSamplingWithAState(t *testing.T) {
	all := withState()
	all = append(all, Request{Prompt: prompt(9, 9), MaxTokens: 25, IgnoreEOG: true, Seed: 4,
		Sampling: sampler.Config{Temperature: 1, XTCProbability: 0.5, XTCThreshold: 0.05}})
	e := newEngine(t, tablemodel.New(tablemodel.Config{Sequences: 3, Cells: 70}), Options{})
	for i := range all {
		all[i].PostSampling, all[i].TopLogProbs = true, 4
	}
	for i, o := range runAll(t, e, all) {
		r := all[i]
		assertSame(t, simulate(tablemodel.Hashed(0), 1024, r), o, "request %d", i)
		c := r.Sampling
		c.PromptLen = len(r.Prompt)
		s, err := sampler.New(c)
		require.NoError(t, err)
		history := slices.Clone(r.Prompt)
		row := make([]float32, len(tablemodel.Pieces))
		for _, token := range o.tokens {
			tablemodel.Hashed(0)(row, history)
			var d sampler.Dist
			require.NoError(t, s.DistAt(&d, row, history, sampler.Draw{Seed: r.Seed, Pos: len(history)}))
			require.InDelta(t, math.Log(d.ProbOf(token.ID)), token.PostSamplingLogProb, 1e-12, "request %d", i)
			require.Len(t, token.PostSamplingTop, min(4, d.Len()))
			require.Equal(t, d.Token(0), token.PostSamplingTop[0].ID)
			s.Accept(token.ID)
			history = append(history, token.ID)
		}
	}
}

// A trace has every token, the end token included, and changes none.
func TestTrace(t *testing.T) {
	for i, r := range append(withState(), Request{Prompt: prompt(7, 1), MaxTokens: 60, Sampling: sampler.Default(), Seed: 2}) {
		e := newEngine(t, tablemodel.New(tablemodel.Config{}), Options{})
		want := runRequest(t, t.Context(), e, r)
		var tokens []int32
		r.TraceTop = 3
		r.Trace = func(trace *sampler.Trace) {
			assert.Equal(t, sampler.Draw{Seed: r.Seed, Pos: len(r.Prompt) + len(tokens)}, trace.Draw)
			assert.LessOrEqual(t, len(trace.Steps[0].Top), 3)
			assert.Equal(t, "logits", trace.Steps[0].Name)
			tokens = append(tokens, trace.Token)
		}
		got := runRequest(t, t.Context(), e, r)
		assertSame(t, want, got, "request %d", i)
		chosen := want.ids()
		if want.stats.Finish == EndToken {
			chosen = append(chosen, want.stats.EndToken)
		}
		assert.Equal(t, chosen, tokens, "request %d", i)
	}
}

// A trace that panics ends its request, and no other.
func TestTracePanics(t *testing.T) {
	e := newEngine(t, tablemodel.New(tablemodel.Config{}), Options{})
	r := example()
	r.Trace = func(*sampler.Trace) { panic(fmt.Sprint("mine")) }
	assert.PanicsWithValue(t, "mine", func() { runRequest(t, t.Context(), e, r) })
	assertSame(t, simulate(tablemodel.Hashed(0), 1024, example()), runRequest(t, t.Context(), e, example()))
}
