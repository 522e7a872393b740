package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/sampler"
)

// Package sampler against llama.cpp's own samplers, on random rows.
//
// llama.cpp computes in float32. A row that has a token closer to a bound than
// that can resolve is no test and another one takes its place: such a row is
// one where parameters a little smaller or larger leave other tokens.
const margin = 1e-4

// A filterTest makes a random setting of one filter, for a vocabulary, and the
// same for llama.cpp.
type filterTest struct {
	name    string
	setting func(r *rand.Rand, vocabulary int) (sampler.Config, []llama.NativeStep)
	least   int     // logits of a row
	width   float64 // their standard deviation; 0 for several
	bans    bool    // rows have -Inf
	ties    bool    // rows have equal logits; which of those stays is unspecified in llama.cpp
	leftOut string  // the rows left out, where llama.cpp is known to be wrong, and why
}

// between returns a random number that float32 has, too.
func between(r *rand.Rand, low, high float64) float64 {
	return float64(float32(low + (high-low)*r.Float64()))
}

func filterTests() []filterTest {
	native := llama.Native
	one := func(s llama.NativeStep) []llama.NativeStep { return []llama.NativeStep{s} }
	keep := func(r *rand.Rand) int { return max(0, r.IntN(8)-4) }
	return []filterTest{
		{name: "logit bias", bans: true, ties: true, setting: func(r *rand.Rand, n int) (sampler.Config, []llama.NativeStep) {
			biases, args := map[int32]float64{}, []float64{}
			for range 1 + r.IntN(4) {
				token, bias := int32(r.IntN(n)), between(r, -5, 5)
				if r.IntN(4) == 0 && n > 4 {
					bias = math.Inf(-1)
				}
				if _, twice := biases[token]; !twice {
					biases[token], args = bias, append(args, float64(token), bias)
				}
			}
			return sampler.Config{Temperature: 1, LogitBias: biases}, one(native("logit_bias", args...))
		}, leftOut: "a token with two biases: the first is added, or both, as the candidates lie"},
		{name: "penalties", bans: true, ties: true, setting: func(r *rand.Rand, _ int) (sampler.Config, []llama.NativeStep) {
			c := sampler.Config{Temperature: 1, RepeatPenalty: between(r, .5, 2), FrequencyPenalty: between(r, -1, 1), PresencePenalty: between(r, -1, 1), PenaltyLastN: 1 + r.IntN(40)}
			return c, one(native("penalties", float64(c.PenaltyLastN), c.RepeatPenalty, c.FrequencyPenalty, c.PresencePenalty))
		}},
		{name: "dry", bans: true, ties: true, setting: func(r *rand.Rand, _ int) (sampler.Config, []llama.NativeStep) {
			c := sampler.Config{Temperature: 1, DRYMultiplier: between(r, .1, 2), DRYBase: between(r, 1, 3), DRYAllowedLength: r.IntN(4), DRYLastN: 1 + r.IntN(60)}
			return c, one(native("dry", c.DRYMultiplier, c.DRYBase, float64(c.DRYAllowedLength), float64(c.DRYLastN)))
		}},
		{name: "top-n-sigma", bans: true, ties: true, setting: func(r *rand.Rand, _ int) (sampler.Config, []llama.NativeStep) {
			c := sampler.Config{Temperature: 1, TopNSigma: between(r, .1, 4)}
			return c, one(native("top_n_sigma", c.TopNSigma))
		}},
		{name: "top-k", bans: true, ties: true, setting: func(r *rand.Rand, n int) (sampler.Config, []llama.NativeStep) {
			c := sampler.Config{Temperature: 1, TopK: r.IntN(n+4) - 1}
			return c, one(native("top_k", float64(c.TopK)))
		}},
		{name: "typical", ties: true, setting: func(r *rand.Rand, _ int) (sampler.Config, []llama.NativeStep) {
			c := sampler.Config{Temperature: 1, TypicalP: between(r, .05, .99), MinKeep: keep(r)}
			return c, one(native("typical", c.TypicalP, float64(c.MinKeep)))
		}, width: 3, leftOut: "rows with a banned token, or one so unlikely that its probability is 0 in float32: the entropy is NaN and the result arbitrary"},
		{name: "top-p", bans: true, ties: true, setting: func(r *rand.Rand, _ int) (sampler.Config, []llama.NativeStep) {
			c := sampler.Config{Temperature: 1, TopP: between(r, .01, .99), MinKeep: keep(r)}
			return c, one(native("top_p", c.TopP, float64(c.MinKeep)))
		}},
		{name: "min-p", bans: true, ties: true, setting: func(r *rand.Rand, _ int) (sampler.Config, []llama.NativeStep) {
			c := sampler.Config{Temperature: 1, MinP: between(r, .001, .99), MinKeep: keep(r)}
			return c, one(native("min_p", c.MinP, float64(c.MinKeep)))
		}},
		{name: "xtc", bans: true, ties: true, least: 2, setting: func(r *rand.Rand, _ int) (sampler.Config, []llama.NativeStep) {
			c := sampler.Config{Temperature: 1, XTCProbability: between(r, .2, 1), XTCThreshold: between(r, .01, .6), DrawMethod: sampler.DrawMT19937}
			return c, one(native("xtc", c.XTCProbability, c.XTCThreshold, 0, seed))
		}, leftOut: "min-keep on rows with a banned token, which llama.cpp counts as kept"},
		{name: "temperature", bans: true, ties: true, setting: func(r *rand.Rand, _ int) (sampler.Config, []llama.NativeStep) {
			c := sampler.Config{Temperature: between(r, .1, 3) * float64(min(1, r.IntN(10)))}
			return c, one(native("temp", c.Temperature))
		}},
		{name: "dynamic temperature", ties: true, setting: func(r *rand.Rand, _ int) (sampler.Config, []llama.NativeStep) {
			c := sampler.Config{Temperature: between(r, .5, 2), DynTempRange: between(r, .01, 3), DynTempExponent: between(r, .5, 2)}
			return c, one(native("temp_ext", c.Temperature, c.DynTempRange, c.DynTempExponent))
		}, leftOut: "rows with a banned token: llama.cpp counts it in the highest possible entropy"},
		{name: "mirostat v1", least: 150, width: 15, setting: func(r *rand.Rand, _ int) (sampler.Config, []llama.NativeStep) {
			c := sampler.Config{Temperature: 1, Mirostat: 1, MirostatTau: between(r, 1, 6), MirostatEta: between(r, .01, .3)}
			return c, one(native("mirostat", seed, c.MirostatTau, c.MirostatEta, 100))
		}, leftOut: "rows that are flat, short or have banned tokens: the estimated exponent is 1 or below, or the number of tokens to keep not one that an int can hold"},
		{name: "mirostat v2", bans: true, ties: true, setting: func(r *rand.Rand, _ int) (sampler.Config, []llama.NativeStep) {
			c := sampler.Config{Temperature: 1, Mirostat: 2, MirostatTau: between(r, .5, 6), MirostatEta: between(r, .01, .3)}
			return c, one(native("mirostat_v2", seed, c.MirostatTau, c.MirostatEta))
		}},
		{name: "adaptive-p", bans: true, ties: true, setting: func(r *rand.Rand, _ int) (sampler.Config, []llama.NativeStep) {
			c := sampler.Config{Temperature: 1, AdaptiveTarget: between(r, .05, .9), AdaptiveDecay: between(r, 0, .99)}
			return c, one(native("adaptive_p", c.AdaptiveTarget, c.AdaptiveDecay, seed))
		}, leftOut: "clones, which restart their random numbers and read outside an array"},
	}
}

// TestFiltersAgainstLlamaCPP compares, for each filter, what 10,000 random rows
// leave. Rows of one setting follow one another as in a text: what llama.cpp
// draws is accepted on both sides.
//
// NaN and +Inf are left out everywhere: in llama.cpp they make some token win,
// here they are errors.
func TestFiltersAgainstLlamaCPP(t *testing.T) {
	const rows, run = 10000, 10
	for i, f := range filterTests() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			if f.leftOut != "" {
				t.Log("left out: " + f.leftOut)
			}
			r := rand.New(rand.NewPCG(7, uint64(i)))
			done, tried := 0, 0
			for done < rows {
				vocabulary := []int{1, 2, 3, 6, 17, 40, 150, 1300}[min(r.IntN(9), r.IntN(9), 7)]
				vocabulary = max(vocabulary, f.least)
				config, native := f.setting(r, vocabulary)
				if f.name == "top-p" && r.IntN(4) == 0 {
					native = slices.Insert(native, 0, llama.Native("top_k", float64(vocabulary))) // sorts
				}
				c := newComparison(t, vocabulary, config, native)
				c.history(r, 1+r.IntN(60))
				for range min(run, rows-done) {
					tried++
					if !c.row(f.row(r, vocabulary)) {
						break // states may now differ, too
					}
					done++
				}
				c.theirs.Close()
			}
			require.Less(t, tried, rows*21/20, "rows without a close call are the rule")
		})
	}
}

// row returns random logits of one of several kinds.
func (f filterTest) row(r *rand.Rand, vocabulary int) []float32 {
	row := make([]float32, vocabulary)
	width := []float64{.3, 1, 3, 8}[r.IntN(4)]
	if f.width > 0 {
		width = f.width
	}
	kind := r.IntN(6)
	for i := range row {
		row[i] = float32(r.NormFloat64() * width)
		if f.ties && kind == 0 {
			row[i] = float32(math.Round(float64(row[i])*2) / 2)
		}
		if f.bans && kind <= 2 && r.IntN(3) == 0 {
			row[i] = float32(math.Inf(-1))
		}
	}
	if kind == 3 {
		row[r.IntN(vocabulary)] += 12
	}
	if at := r.IntN(vocabulary); row[at] < -100 {
		row[at] = 1
	}
	if f.bans { // one token that no bias of these tests is likely to be for
		row[vocabulary-1] = float32(r.NormFloat64())
	}
	return row
}

// A comparison runs one setting on both sides, and on ours also with parameters
// a little smaller and larger.
type comparison struct {
	t       *testing.T
	name    string
	ours    []*sampler.Sampler // as set, smaller, larger
	theirs  *llama.NativeSampler
	text    []int32
	pos     int
	draws   bool // the last of llama.cpp's samplers draws
	greedy  bool
	dynamic bool // has a dynamic temperature
}

func newComparison(t *testing.T, vocabulary int, config sampler.Config, native []llama.NativeStep) *comparison {
	t.Helper()
	c := &comparison{t: t, name: fmt.Sprintf("%d tokens, %v", vocabulary, native)}
	for _, factor := range []float64{1, 1 - margin, 1 + margin} {
		s, err := sampler.New(scaled(config, factor))
		require.NoError(t, err, c.name)
		c.ours = append(c.ours, s)
	}
	var err error
	c.theirs, err = llama.NewNativeSampler(vocabulary, native...)
	require.NoError(t, err, c.name)
	last := native[len(native)-1].Name
	c.draws = slices.Contains([]string{"mirostat", "mirostat_v2", "adaptive_p", "dist", "greedy"}, last)
	c.dynamic = config.DynTempRange > 0
	c.greedy = last == "greedy"
	return c
}

// scaled is c with the parameters that bound something times a factor.
func scaled(c sampler.Config, factor float64) sampler.Config {
	for _, p := range []*float64{&c.TopP, &c.TypicalP, &c.MinP, &c.XTCThreshold} {
		*p = min(1, *p*factor)
	}
	c.TopNSigma *= factor
	c.MirostatTau *= factor
	return c
}

// history makes both sides look back at a text of few different tokens.
func (c *comparison) history(r *rand.Rand, n int) {
	for range n {
		token := int32(r.IntN(min(c.theirs.Vocabulary(), 5)))
		c.text = append(c.text, token)
		require.NoError(c.t, c.theirs.Accept(token))
	}
}

// row compares what both sides leave of a row. It returns false if the row is
// too close to a bound.
func (c *comparison) row(row []float32) bool {
	t := c.t
	var dists [3]sampler.Dist
	for i, s := range c.ours {
		require.NoError(t, s.DistAt(&dists[i], row, c.text, sampler.Draw{Seed: seed, Pos: c.pos}), "%s: %v", c.name, row)
	}
	c.pos++
	ours := &dists[0]
	var token int32
	if c.draws {
		var err error
		token, err = c.theirs.Sample(row)
		require.NoError(t, err)
	} else {
		require.NoError(t, c.theirs.Apply(row))
	}
	if !sameTokens(ours, &dists[1]) || !sameTokens(ours, &dists[2]) {
		return false
	}

	if c.greedy { // selects and leaves the candidates as they are
		require.Equal(t, ours.Token(0), token, "%s: %v", c.name, row)
		return true
	}
	theirs := c.theirs.Candidates(nil)
	theirs = slices.DeleteFunc(theirs, func(x llama.NativeCandidate) bool { return math.IsInf(float64(x.Logit), -1) })
	probs := softmax(theirs)
	if c.cold(ours) {
		require.Equal(t, 1.0, slices.Max(probs), "%s: %v", c.name, row)
		return true
	}
	require.Len(t, theirs, ours.Len(), "%s: %v\nours %v", c.name, row, tokens(ours))
	for i, x := range theirs {
		// Of equal logits either side may have kept another one, so the
		// probability is looked up by rank where it cannot be by token.
		p := ours.ProbOf(x.ID)
		if p == 0 && probs[i] > 1e-30 {
			require.Contains(t, logitsOf(ours, row), row[x.ID], "%s: token %d of %v", c.name, x.ID, row)
			continue
		}
		require.InDelta(t, probs[i], p, 2e-5, "%s: token %d of %v", c.name, x.ID, row)
	}
	if c.draws {
		c.text = append(c.text, token)
		for _, s := range c.ours {
			s.Accept(token)
		}
		return ours.ProbOf(token) > 0 // else a tie: from here the texts' states differ
	}
	return true
}

// cold reports whether a dynamic temperature has left one token: ours is greedy
// below 1e-5, where llama.cpp divides and all others get a probability of 0.
func (c *comparison) cold(ours *sampler.Dist) bool { return c.dynamic && ours.Len() == 1 }

func sameTokens(a, b *sampler.Dist) bool { return slices.Equal(tokens(a), tokens(b)) }

func tokens(d *sampler.Dist) []int32 {
	ids := make([]int32, d.Len())
	for i := range ids {
		ids[i] = d.Token(i)
	}
	return ids
}

func logitsOf(d *sampler.Dist, row []float32) []float32 {
	logits := make([]float32, d.Len())
	for i := range logits {
		logits[i] = row[d.Token(i)]
	}
	return logits
}

func softmax(c []llama.NativeCandidate) []float64 {
	top := math.Inf(-1)
	for _, x := range c {
		top = max(top, float64(x.Logit))
	}
	probs, sum := make([]float64, len(c)), 0.0
	for i, x := range c {
		probs[i] = math.Exp(float64(x.Logit) - top)
		sum += probs[i]
	}
	for i := range probs {
		probs[i] /= sum
	}
	return probs
}

// TestChainsAgainstLlamaCPP compares 50 random chains, in random order, on 200
// rows each.
//
// Left out, since there llama.cpp's masked tokens count where they should not:
// top-n-sigma before typical (its entropy becomes NaN) and before dynamic
// temperature (its highest possible entropy grows). Its top-n-sigma knows no
// min-keep.
func TestChainsAgainstLlamaCPP(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for range 50 {
		native := llama.Native
		config := sampler.Config{Temperature: 1, RepeatPenalty: 1}
		if r.IntN(2) == 0 {
			config.MinKeep = 1 + r.IntN(3)
		}
		least := float64(config.MinKeep)
		all := map[string]func() llama.NativeStep{
			"penalties": func() llama.NativeStep {
				config.RepeatPenalty, config.FrequencyPenalty, config.PresencePenalty, config.PenaltyLastN = between(r, .8, 1.5), between(r, 0, .5), between(r, 0, .5), 32
				return native("penalties", 32, config.RepeatPenalty, config.FrequencyPenalty, config.PresencePenalty)
			},
			"dry": func() llama.NativeStep {
				config.DRYMultiplier, config.DRYBase, config.DRYAllowedLength, config.DRYLastN = between(r, .1, 1), between(r, 1, 2), 1, 50
				return native("dry", config.DRYMultiplier, config.DRYBase, 1, 50)
			},
			"top_n_sigma": func() llama.NativeStep {
				config.TopNSigma = between(r, .5, 3)
				return native("top_n_sigma", config.TopNSigma)
			},
			"top_k": func() llama.NativeStep {
				config.TopK = max(config.MinKeep, 1+r.IntN(100))
				return native("top_k", float64(config.TopK))
			},
			"typ_p": func() llama.NativeStep {
				config.TypicalP = between(r, .3, .99)
				return native("typical", config.TypicalP, least)
			},
			"top_p": func() llama.NativeStep {
				config.TopP = between(r, .3, .99)
				return native("top_p", config.TopP, least)
			},
			"min_p": func() llama.NativeStep {
				config.MinP = between(r, .01, .3)
				return native("min_p", config.MinP, least)
			},
			"xtc": func() llama.NativeStep {
				config.XTCProbability, config.XTCThreshold = 1, between(r, .05, .4)
				return native("xtc", 1, config.XTCThreshold, least, seed)
			},
			"temperature": func() llama.NativeStep {
				config.Temperature = between(r, .3, 2)
				if r.IntN(2) == 0 {
					return native("temp", config.Temperature)
				}
				config.DynTempRange, config.DynTempExponent = between(r, .1, .3), between(r, .5, 2)
				return native("temp_ext", config.Temperature, config.DynTempRange, config.DynTempExponent)
			},
		}
		order := []string{"penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"}
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		order = order[:2+r.IntN(len(order)-1)]
		if sigma := slices.Index(order, "top_n_sigma"); sigma >= 0 {
			order = append(slices.Delete(order, sigma, sigma+1), "top_n_sigma") // behind all others
			config.MinKeep, least = 0, 0
		}
		var steps []llama.NativeStep
		for _, name := range order {
			steps = append(steps, all[name]())
		}
		config.Order = order
		done, tried := 0, 0
		for done < 200 {
			vocabulary := 2 + r.IntN(200)
			c := newComparison(t, vocabulary, config, steps)
			c.history(r, 30)
			tried++
			if c.row(filterTest{}.row(r, vocabulary)) {
				done++
			}
			c.theirs.Close()
		}
		require.Less(t, tried, 240, "%v", steps)
	}
}

// What bench measures is the same on both sides.
func TestMeasuredChains(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, chain := range chains() {
		done := 0
		for done < 100 {
			c := newComparison(t, 1500, chain.config, chain.native)
			c.history(r, chain.history+3)
			for done < 100 && c.row(filterTest{}.row(r, 1500)) {
				done++
			}
			c.theirs.Close()
		}
	}
}

// TestDrawsAgainstLlamaCPP: with the numbers of mt19937 the tokens drawn are
// llama.cpp's, and greedy ones are, too.
func TestDrawsAgainstLlamaCPP(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	native := llama.Native
	for range 200 {
		vocabulary, s := 1+r.IntN(300), uint32(r.Uint32N(math.MaxUint32))
		k := 1 + r.IntN(vocabulary)
		drawn, err := llama.NewNativeSampler(vocabulary, native("top_k", float64(k)), native("temp", .75), native("dist", float64(s)))
		require.NoError(t, err)
		best, err := llama.NewNativeSampler(vocabulary, native("greedy"))
		require.NoError(t, err)
		ours, err := sampler.New(sampler.Config{TopK: k, Temperature: .75, DrawMethod: sampler.DrawMT19937})
		require.NoError(t, err)
		oursBest, err := sampler.New(sampler.Config{})
		require.NoError(t, err)
		for pos := range 50 {
			row := filterTest{bans: true}.row(r, vocabulary)
			at := sampler.Draw{Seed: uint64(s), Pos: pos}
			want, err := drawn.Sample(row)
			require.NoError(t, err)
			token, err := ours.Pick(row, nil, at)
			require.NoError(t, err)
			require.Equal(t, want, token)
			row = filterTest{bans: true, ties: true}.row(r, vocabulary)
			want, err = best.Sample(row)
			require.NoError(t, err)
			token, err = oursBest.Pick(row, nil, at)
			require.NoError(t, err)
			require.Equal(t, want, token)
		}
		drawn.Close()
		best.Close()
	}
}
