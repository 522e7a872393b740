package generate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
	"github.com/sortes-llm/sortes/speculative"
)

// combinedLogits is what a request's tokens are chosen from, written down from
// the published formulas: guidance first, then contrast with the mean of the
// amateurs' log-probabilities (Li et al.) or with each of their logits (O'Brien
// and Lewis).
func combinedLogits(r Request, amateurs ...func([]float32, []int32)) func([]float32, []int32) {
	return func(dst []float32, tokens []int32) {
		row := func(logits func([]float32, []int32), tokens []int32) []float64 {
			x := make([]float32, len(dst))
			logits(x, tokens)
			y := make([]float64, len(dst))
			for i := range x {
				y[i] = float64(x[i])
			}
			return y
		}
		norm := func(x []float64) float64 {
			sum := 0.0
			for _, v := range x {
				sum += math.Exp(v)
			}
			return math.Log(sum)
		}
		expert := row(tablemodel.Hashed(0), tokens)
		if g := r.Guidance; g != nil {
			without := row(tablemodel.Hashed(0), join(g.NegativePrompt, tokens[len(r.Prompt):]))
			for i := range expert {
				expert[i] = float64(float32(expert[i] + (g.Scale-1)*(expert[i]-without[i])))
			}
		}
		if c := r.Contrast; c != nil {
			bound := slices.Max(expert) + math.Log(c.Alpha)
			result := make([]float64, len(dst))
			for i := range expert {
				result[i] = expert[i]
				if c.Form == sampler.ContrastLogProbs {
					result[i] -= norm(expert)
				}
				for _, a := range amateurs {
					x := row(a, tokens)
					if c.Form == sampler.ContrastLogProbs {
						result[i] -= (x[i] - norm(x)) / float64(len(amateurs))
					} else {
						result[i] += c.Beta * (expert[i] - x[i])
					}
				}
				if expert[i] < bound {
					result[i] = math.Inf(-1)
				}
			}
			expert = result
		}
		for i, v := range expert {
			dst[i] = float32(v)
		}
	}
}

func combinedRequests() []Request {
	guidance := &Guidance{Scale: 1.8, NegativePrompt: prompt(7, 5)}
	long := &Guidance{Scale: 0.4, NegativePrompt: prompt(30, 6)}
	li := &sampler.Contrast{Form: sampler.ContrastLogProbs, Alpha: 0.1}
	brien := &sampler.Contrast{Form: sampler.ContrastLogits, Alpha: 0.02, Beta: 0.5}
	all := requests(8)
	for i := range all {
		all[i].Guidance = []*Guidance{nil, guidance, nil, long}[i%4]
		all[i].Contrast = []*sampler.Contrast{li, nil, brien}[i%3]
	}
	return all
}

// Guided and contrasted texts are those of the formulas, alone and in company,
// with and without drafts, however little room there is.
func TestCombined(t *testing.T) {
	all := combinedRequests()
	for _, mistakes := range []int{-1, 0, 3} {
		for _, c := range []tablemodel.Config{
			{Sequences: 2}, {Sequences: 5, Batch: 16}, {Sequences: 3, Cells: 130}, {Sequences: 2, NoRollback: true}, {Sequences: 4, Batch: 9, Outputs: 6},
		} {
			c.Context = 64
			one, two := c, c
			one.Logits, two.Logits = tablemodel.Hashed(1), tablemodel.Hashed(2)
			o := Options{Amateurs: []eval.Evaluator{tablemodel.New(one), tablemodel.New(two)}, PrefillChunk: 4}
			if mistakes >= 0 {
				o.Drafts = drafts(&oracle{mistakes: mistakes})
			}
			e := newEngine(t, tablemodel.New(c), o)
			for i, got := range runAll(t, e, all) {
				// The negative prompt of 30 tokens fills its sequence first.
				context := 64
				if g := all[i].Guidance; g != nil {
					context -= max(0, len(g.NegativePrompt)-len(all[i].Prompt))
				}
				want := simulate(combinedLogits(all[i], tablemodel.Hashed(1), tablemodel.Hashed(2)), context, all[i])
				assertSame(t, want, got, "request %d, mistakes %d, %+v", i, mistakes, c)
			}
		}
	}
}

// The log-probabilities are the target's own, not those of what the token was
// chosen from.
func TestCombinedLogProbs(t *testing.T) {
	r := combinedRequests()[3]
	r.LogProbs, r.MaxTokens = true, 5
	e := newEngine(t, tablemodel.New(tablemodel.Config{Sequences: 2}), Options{Amateurs: []eval.Evaluator{tablemodel.New(tablemodel.Config{Sequences: 2, Logits: tablemodel.Hashed(1)})}})
	tokens := slices.Clone(r.Prompt)
	row := make([]float32, len(tablemodel.Pieces))
	o := runRequest(t, t.Context(), e, r)
	require.Len(t, o.tokens, 5)
	for _, token := range o.tokens {
		tablemodel.Hashed(0)(row, tokens)
		sum := 0.0
		for _, x := range row {
			sum += math.Exp(float64(x))
		}
		assert.InDelta(t, float64(row[token.ID])-math.Log(sum), token.LogProb, 1e-9)
		tokens = append(tokens, token.ID)
	}
}

// Errors of any of the models, at every call, cost the request and nothing else.
func TestCombinedEvalFails(t *testing.T) {
	r := combinedRequests()[3]
	r.MaxTokens = 6
	want := simulate(combinedLogits(r, tablemodel.Hashed(1)), 64, r)
	for failing := range 2 {
		for _, noRollback := range []bool{false, true} {
			for _, cause := range []error{errBoom, fmt.Errorf("full: %w", eval.ErrNoSlot)} {
				for call := 0; ; call++ {
					reached := false
					hook := func(_ context.Context, n int, _ []eval.Row) error {
						if n == call {
							reached = true
							return cause
						}
						return nil
					}
					c := tablemodel.Config{Sequences: 2, Context: 64, NoRollback: noRollback}
					a := c
					a.Logits = tablemodel.Hashed(1)
					if failing == 0 {
						c.OnEval = hook
					} else {
						a.OnEval = hook
					}
					e := newEngine(t, tablemodel.New(c), Options{Amateurs: []eval.Evaluator{tablemodel.New(a)}, PrefillChunk: 8})
					o := runRequest(t, t.Context(), e, r)
					if !reached {
						assertSame(t, want, o)
						require.Greater(t, call, 6)
						break
					}
					if o.err != nil {
						assert.ErrorIs(t, o.err, cause)
					} else {
						assert.Equal(t, ContextFull, o.stats.Finish)
					}
					assert.Equal(t, want.ids()[:len(o.tokens)], o.ids(), "what came before is complete")
					assertSame(t, want, runRequest(t, t.Context(), e, r))
				}
			}
		}
	}
}

func TestCombinedBadRequests(t *testing.T) {
	size := tablemodel.Config{Sequences: 2, Context: 32}
	e := newEngine(t, tablemodel.New(size), Options{})
	single := newEngine(t, tablemodel.New(tablemodel.Config{}), Options{})
	for _, c := range []struct {
		e    *Engine
		r    Request
		want string
	}{
		{e, Request{Contrast: &sampler.Contrast{}}, "generate: contrast needs a model in Options.Amateurs, and there is none"},
		{e, Request{Guidance: &Guidance{Scale: math.NaN(), NegativePrompt: prompt(2, 1)}}, "generate: the scale of guidance is NaN: it must be in [0, 1e+06]"},
		{e, Request{Guidance: &Guidance{Scale: -1, NegativePrompt: prompt(2, 1)}}, "generate: the scale of guidance is -1: it must be in [0, 1e+06]"},
		{e, Request{Guidance: &Guidance{Scale: 2}}, "generate: the negative prompt is empty: it needs at least one token"},
		{e, Request{Guidance: &Guidance{Scale: 2, NegativePrompt: prompt(33, 1)}}, "generate: negative prompt: the prompt is longer than the context: 33 tokens in a context of 32"},
		{e, Request{Guidance: &Guidance{Scale: 2, NegativePrompt: []int32{1, 99}}}, "generate: token 1 of the negative prompt is 99: token outside the vocabulary of 32"},
		{single, Request{Guidance: &Guidance{Scale: 2, NegativePrompt: prompt(2, 1)}}, "generate: guidance needs two sequences, and the evaluator has 1"},
	} {
		c.r.Prompt = prompt(3, 1)
		assert.EqualError(t, runRequest(t, t.Context(), c.e, c.r).err, c.want)
	}
	with := newEngine(t, tablemodel.New(size), Options{Amateurs: []eval.Evaluator{tablemodel.New(size)}})
	assert.ErrorContains(t, runRequest(t, t.Context(), with, Request{Prompt: prompt(3, 1), Contrast: &sampler.Contrast{Alpha: 2}}).err, "alpha")

	for want, a := range map[string]tablemodel.Config{
		"generate: amateur 0: a vocabulary of 31 tokens, where the target has 32":                        {Vocab: 31, Sequences: 2},
		"generate: amateur 0: 1 sequences, where the target has 2":                                       {},
		"generate: amateur 0: a context of 31 tokens, where the target has 32":                           {Sequences: 2, Context: 31},
		"generate: amateur 0: a batch of 1 rows, 1 of them outputs, for 2 sequences: each must have one": {Sequences: 2, Batch: 1},
	} {
		_, err := New(tablemodel.New(size), tablemodel.Words(), Options{Amateurs: []eval.Evaluator{tablemodel.New(a)}})
		assert.EqualError(t, err, want)
	}
}

// With a rule that keeps the distribution the text is another, and drawn from
// the same distribution: the tokens of many texts, position by position, against
// enumeration. The draft comes from another model.
func TestRulesKeepTheDistribution(t *testing.T) {
	const texts, vocab = 20000, 4
	logits := func(salt int) func([]float32, []int32) {
		return func(dst []float32, prefix []int32) {
			h := salt
			for _, x := range prefix {
				h = h*31 + int(x) + 1
			}
			for v := range dst {
				dst[v] = float32((h*(v+3)+v*v*7)%5) * 0.6
			}
		}
	}
	target, amateur := logits(1), logits(2)
	contrast := sampler.Contrast{Form: sampler.ContrastLogits, Alpha: 0.1, Beta: 0.3}
	start := []int32{0}

	// The exact probabilities of the texts of two tokens.
	want := map[[2]int32]float64{}
	dist := func(prefix []int32) []float64 {
		e, a := make([]float32, vocab), make([]float32, vocab)
		target(e, prefix)
		amateur(a, prefix)
		p, sum := make([]float64, vocab), 0.0
		for v := range p {
			if float64(e[v]) >= float64(slices.Max(e))+math.Log(contrast.Alpha) {
				p[v] = math.Exp(1.3*float64(e[v]) - 0.3*float64(a[v]))
			}
			sum += p[v]
		}
		for v := range p {
			p[v] /= sum
		}
		return p
	}
	for x, p := range dist(start) {
		for y, q := range dist([]int32{0, int32(x)}) {
			want[[2]int32{int32(x), int32(y)}] = p * q
		}
	}
	for _, rule := range []speculative.Rule{speculative.Coupled, speculative.Block, speculative.Token} {
		config := tablemodel.Config{Vocab: vocab, Context: 8}
		config.Logits = logits(3)
		small, err := speculative.NewModel(tablemodel.New(config), speculative.ModelOptions{Rule: rule})
		require.NoError(t, err)
		config.Logits = amateur
		other := tablemodel.New(config)
		config.Logits = target
		e := newEngine(t, tablemodel.New(config), Options{Amateurs: []eval.Evaluator{other}, Drafts: drafts(small), Rule: rule})
		seen := map[[2]int32]int{}
		for seed := range texts {
			o := runRequest(t, t.Context(), e, Request{
				Prompt: start, Seed: uint64(seed), MaxTokens: 3, IgnoreEOG: true,
				Sampling: sampler.Config{Temperature: 1}, Contrast: &contrast,
			})
			require.NoError(t, o.err)
			seen[[2]int32{o.tokens[0].ID, o.tokens[1].ID}]++
		}
		chi := 0.0
		for pair, p := range want {
			if p == 0 {
				assert.Zero(t, seen[pair])
				continue
			}
			d := float64(seen[pair]) - p*texts
			chi += d * d / (p * texts)
		}
		// 15 degrees of freedom: above 44.3 once in 10,000.
		assert.Less(t, chi, 44.3, "rule %v", rule)
	}
}
