package sampler

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// plans has a configuration for every way a row can be worked through.
var plans = map[string]Config{
	"greedy":           {},
	"plain":            {Temperature: 1},
	"temperature":      {Temperature: .7},
	"top_k":            {Temperature: 1, TopK: 3},
	"top_k all":        {Temperature: 1, TopK: 1 << 30},
	"top_p":            {Temperature: .9, TopP: .9},
	"min_p":            {Temperature: 1.1, MinP: .01},
	"dynamic":          {Temperature: 1, DynTempRange: .5},
	"top_k share":      {Temperature: 1, TopKShare: .01},
	"top_n_sigma":      {Temperature: .9, TopNSigma: 1.5},
	"typ_p":            {Temperature: .9, TypicalP: .9},
	"typ_p low":        {Temperature: .9, TypicalP: .2},
	"epsilon":          {Temperature: .9, Epsilon: .001},
	"eta":              {Temperature: .9, Eta: .001},
	"tfs":              {Temperature: .9, TailFreeZ: .9},
	"top_a":            {Temperature: .9, TopA: .1},
	"penalties":        {Temperature: 1, RepeatPenalty: 1.3, FrequencyPenalty: .1, PenaltyLastN: 16},
	"dry":              {Temperature: 1, DRYMultiplier: 1, DRYBase: 1.75, DRYLastN: 64, DRYAllowedLength: 1, DRYBreakers: [][]int32{{9}, {8, 7}}},
	"mirostat 1":       {Temperature: .8, Mirostat: 1, MirostatTau: 3, MirostatEta: .1},
	"mirostat 2":       {Temperature: .8, Mirostat: 2, MirostatTau: 3, MirostatEta: .1},
	"adaptive_p":       {Temperature: .8, TopK: 50, AdaptiveTarget: .3, AdaptiveDecay: .9},
	"adaptive_p alone": {Temperature: .8, AdaptiveTarget: .3, AdaptiveDecay: .9},
	"xtc":              {Temperature: .8, XTCProbability: .5, XTCThreshold: .01},
	"no_repeat_ngram":  {Temperature: .8, NoRepeatNGram: 4},
	"inverse":          {Temperature: .8, DrawMethod: DrawInverse},
	"mt19937":          {Temperature: .8, TopP: .9, DrawMethod: DrawMT19937},
	"bias":             {Temperature: 1, LogitBias: map[int32]float64{0: 1}},
	"default":          Default(),
	"temperature first": {Temperature: .7, TopK: 5, TopP: .9, MinP: .01,
		Order: []string{"temperature", "min_p", "top_p", "top_k"}},
	"own step": {Temperature: .7, TopK: 5, Order: []string{"own", "top_k", "temperature"},
		Steps: map[string]Step{"own": StepFunc(func(c *Candidates, _ []int32) error { c.List(); return nil })}},
}

// allFilters is the whole order.
const allFilters = "logit_bias, min_length, no_repeat_ngram, penalties, dry, top_n_sigma, top_k, typ_p, epsilon, eta, tfs, top_a, top_p, min_p, xtc, temperature"

func TestBadConfig(t *testing.T) {
	nop := StepFunc(func(*Candidates, []int32) error { return nil })
	nan, inf := math.NaN(), math.Inf(1)
	for _, test := range []struct {
		c    Config
		want string
	}{
		{Config{Temperature: -1}, "sampler: the temperature is -1, want a finite number, 0 (greedy) or more"},
		{Config{Temperature: nan}, "sampler: the temperature is NaN, want a finite number, 0 (greedy) or more"},
		{Config{Temperature: inf}, "sampler: the temperature is +Inf, want a finite number, 0 (greedy) or more"},
		{Config{TopP: -1}, "sampler: top-p is -1, want 0 to 1"},
		{Config{TopP: 2}, "sampler: top-p is 2, want 0 to 1"},
		{Config{TopP: nan}, "sampler: top-p is NaN, want 0 to 1"},
		{Config{MinP: -1}, "sampler: min-p is -1, want 0 to 1"},
		{Config{MinP: 2}, "sampler: min-p is 2, want 0 to 1"},
		{Config{MinP: nan}, "sampler: min-p is NaN, want 0 to 1"},
		{Config{DynTempRange: -1}, "sampler: the range of the dynamic temperature is -1, want a finite number, 0 or more"},
		{Config{DynTempRange: nan}, "sampler: the range of the dynamic temperature is NaN, want a finite number, 0 or more"},
		{Config{DynTempRange: inf}, "sampler: the range of the dynamic temperature is +Inf, want a finite number, 0 or more"},
		{Config{DynTempExponent: -1}, "sampler: the exponent of the dynamic temperature is -1, want a finite number above 0"},
		{Config{DynTempExponent: nan}, "sampler: the exponent of the dynamic temperature is NaN, want a finite number above 0"},
		{Config{TopKShare: -1}, "sampler: the share of top-k is -1, want 0 to 1"},
		{Config{TopKShare: nan}, "sampler: the share of top-k is NaN, want 0 to 1"},
		{Config{TopKShare: .5, TopK: 3}, "sampler: the share of top-k is 0.5, want 0, since top-k is set as a number"},
		{Config{TopNSigma: nan}, "sampler: top-n-sigma is NaN, want a finite number"},
		{Config{TopNSigma: inf}, "sampler: top-n-sigma is +Inf, want a finite number"},
		{Config{TypicalP: -1}, "sampler: typical-p is -1, want 0 to 1"},
		{Config{TypicalP: nan}, "sampler: typical-p is NaN, want 0 to 1"},
		{Config{TypicalP: 2}, "sampler: typical-p is 2, want 0 to 1"},
		{Config{Epsilon: -1}, "sampler: epsilon is -1, want 0 to below 1"},
		{Config{Epsilon: 1}, "sampler: epsilon is 1, want 0 to below 1"},
		{Config{Epsilon: nan}, "sampler: epsilon is NaN, want 0 to below 1"},
		{Config{Eta: -1}, "sampler: eta is -1, want 0 to below 1"},
		{Config{Eta: 1}, "sampler: eta is 1, want 0 to below 1"},
		{Config{Eta: nan}, "sampler: eta is NaN, want 0 to below 1"},
		{Config{TailFreeZ: -1}, "sampler: tail-free z is -1, want 0 to 1"},
		{Config{TailFreeZ: 2}, "sampler: tail-free z is 2, want 0 to 1"},
		{Config{TailFreeZ: nan}, "sampler: tail-free z is NaN, want 0 to 1"},
		{Config{TopA: -1}, "sampler: top-a is -1, want a finite number, 0 or more"},
		{Config{TopA: nan}, "sampler: top-a is NaN, want a finite number, 0 or more"},
		{Config{TopAPower: -1}, "sampler: the power of top-a is -1, want a finite number above 0"},
		{Config{TopAPower: nan}, "sampler: the power of top-a is NaN, want a finite number above 0"},
		{Config{XTCProbability: 2}, "sampler: the XTC probability is 2, want 0 to 1"},
		{Config{XTCProbability: nan}, "sampler: the XTC probability is NaN, want 0 to 1"},
		{Config{XTCThreshold: -1}, "sampler: the XTC threshold is -1, want 0 to 1"},
		{Config{XTCThreshold: nan}, "sampler: the XTC threshold is NaN, want 0 to 1"},
		{Config{XTCProbability: 1}, "sampler: the XTC threshold is 0, want above 0 to 1, since the XTC probability is set"},
		{Config{DrawMethod: 3}, "sampler: the draw method is 3, want DrawGumbel, DrawInverse or DrawMT19937"},
		{Config{DrawMethod: -1}, "sampler: the draw method is -1, want DrawGumbel, DrawInverse or DrawMT19937"},
		{Config{PromptLen: -1}, "sampler: the length of the prompt is -1, want 0 or more tokens"},
		{Config{MinLength: -1}, "sampler: the minimum length is -1, want 0 or more tokens"},
		{Config{MinLength: 1}, "sampler: the minimum length is 1, want 0, since no end token is set"},
		{Config{MinLength: 1, EndTokens: []int32{3, -2}}, "sampler: an end token is -2, want 0 or more"},
		{Config{Suppress: []int32{3, -2}}, "sampler: a suppressed token is -2, want 0 or more"},
		{Config{NoRepeatNGram: -1}, "sampler: no-repeat-ngram is -1, want 0 or more tokens"},
		{Config{DRYMultiplier: -1}, "sampler: the DRY multiplier is -1, want a finite number, 0 or more"},
		{Config{DRYMultiplier: nan}, "sampler: the DRY multiplier is NaN, want a finite number, 0 or more"},
		{Config{DRYBase: nan}, "sampler: the DRY base is NaN, want a finite number, 1 or more"},
		{Config{DRYAllowedLength: -1}, "sampler: the DRY allowed length is -1, want 0 or more tokens"},
		{Config{DRYLastN: -1}, "sampler: the DRY window is -1, want 0 or more tokens"},
		{Config{DRYMultiplier: 1, DRYLastN: 5}, "sampler: the DRY base is 0, want 1 or more, since the DRY multiplier is set"},
		{Config{DRYMultiplier: 1, DRYBase: 1}, "sampler: the DRY window is 0, want 1 token or more, since the DRY multiplier is set"},
		{Config{DRYMultiplier: 1, DRYBase: 1, DRYLastN: 1, DRYBreakers: [][]int32{{}}}, "sampler: a DRY breaker is [], want one token or more"},
		{Config{MinKeep: -1}, "sampler: min-keep is -1, want 0 or more"},
		{Config{RepeatPenalty: -1}, "sampler: the repeat penalty is -1, want a finite number above 0"},
		{Config{RepeatPenalty: nan}, "sampler: the repeat penalty is NaN, want a finite number above 0"},
		{Config{RepeatPenalty: inf}, "sampler: the repeat penalty is +Inf, want a finite number above 0"},
		{Config{RepeatPenalty: 5e-324}, "sampler: the repeat penalty is 5e-324, want a finite number above 0"},
		{Config{FrequencyPenalty: nan}, "sampler: the frequency penalty is NaN, want a finite number"},
		{Config{PresencePenalty: -inf}, "sampler: the presence penalty is -Inf, want a finite number"},
		{Config{PenaltyLastN: -1}, "sampler: the penalty window is -1, want 0 or more tokens"},
		{Config{RepeatPenalty: 1.1}, "sampler: the penalty window is 0, want 1 token or more, since a penalty is set"},
		{Config{LogitBias: map[int32]float64{-1: 1}}, "sampler: a token of the logit bias is -1, want 0 or more"},
		{Config{LogitBias: map[int32]float64{7: nan}}, "sampler: the logit bias of token 7 is NaN, want a finite number or -Inf"},
		{Config{LogitBias: map[int32]float64{7: inf}}, "sampler: the logit bias of token 7 is +Inf, want a finite number or -Inf"},
		{Config{LogitBias: map[int32]float64{7: 1e39}}, "sampler: the logit bias of token 7 is 1e+39, want a finite number or -Inf"},
		{Config{Order: []string{"temp"}}, `sampler: unknown filter "temp" in the order, want one of ` + allFilters},
		{Config{Order: []string{"top_k", "temperature", "top_k"}}, `sampler: "top_k" stands twice in the order`},
		{Config{Order: []string{"top_k"}}, "sampler: temperature is set but missing from the order top_k"},
		{Config{TopK: 4, Order: []string{"top_p", "temperature"}}, "sampler: top_k is set but missing from the order top_p, temperature"},
		{Config{Steps: map[string]Step{"own": nop}}, "sampler: own is set but missing from the order " + allFilters},
		{Config{Steps: map[string]Step{"top_k": nop}}, `sampler: the step "top_k" has the name of a filter`},
		{Config{Steps: map[string]Step{"own": nil}}, `sampler: the step "own" is nil`},
	} {
		s, err := New(test.c)
		assert.Nil(t, s)
		assert.EqualError(t, err, test.want)
	}
}

func TestOrder(t *testing.T) {
	want := strings.Split(allFilters, ", ")
	assert.Equal(t, want, DefaultOrder())
	DefaultOrder()[0] = "changed"
	assert.Equal(t, want, DefaultOrder())

	assert.Equal(t, "temperature(0) -> draw", mustNew(t, Config{}).String())
	assert.Equal(t, "draw", mustNew(t, Config{Temperature: 1}).String())
	assert.Equal(t, "top_k(40) -> top_p(0.95) -> min_p(0.05) -> temperature(0.8) -> draw", mustNew(t, Default()).String())
	assert.Equal(t, "top_n_sigma(1) -> top_k(0.5 of the vocabulary) -> typ_p(0.9) -> epsilon(0.1) -> eta(0.2) -> tfs(0.95) -> "+
		"top_a(0.1, power 2) -> xtc(probability 0.5, threshold 0.1) -> temperature(0.8, range 0.5, exponent 1) -> draw",
		mustNew(t, Config{
			TopNSigma: 1, TopKShare: .5, TypicalP: .9, Epsilon: .1, Eta: .2, TailFreeZ: .95, TopA: .1,
			XTCProbability: .5, XTCThreshold: .1, Temperature: .8, DynTempRange: .5,
		}).String())
	assert.Equal(t, "logit_bias(tokens: 1) -> min_length(3 tokens) -> no_repeat_ngram(4) -> "+
		"penalties(repeat 1, frequency 0, presence 1, last 9, without the prompt, exempt tokens: 2) -> "+
		"dry(multiplier 1, base 1.75, allowed length 2, last 64, breakers: 2) -> draw",
		mustNew(t, Config{
			Temperature: 1, Suppress: []int32{2}, MinLength: 3, EndTokens: []int32{1}, NoRepeatNGram: 4,
			PresencePenalty: 1, PenaltyLastN: 9, PenaltySkipPrompt: true, PromptLen: 2, PenaltyExempt: []int32{1, 2},
			DRYMultiplier: 1, DRYBase: 1.75, DRYAllowedLength: 2, DRYLastN: 64, DRYBreakers: [][]int32{{1}, {1, 2}},
		}).String())
	assert.Equal(t, "temperature(2) -> logit_bias(tokens: 2) -> penalties(repeat 1.1, frequency 0.5, presence 0, last 64) -> draw",
		mustNew(t, Config{
			Temperature: 2, LogitBias: map[int32]float64{1: 1, 2: 2}, RepeatPenalty: 1.1, FrequencyPenalty: .5, PenaltyLastN: 64,
			Order: []string{"temperature", "logit_bias", "penalties"},
		}).String())
}

// Changing what a Config refers to does not reach a sampler made from it.
func TestNewCopies(t *testing.T) {
	c := Config{Temperature: 1, LogitBias: map[int32]float64{5: 9}, Order: []string{"logit_bias", "temperature"}}
	s := mustNew(t, c)
	c.LogitBias[5], c.Order[0] = -9, "changed"
	var d Dist
	require.NoError(t, s.Dist(&d, rowA, nil))
	assert.Equal(t, int32(5), d.Token(0))
}

// The extreme value of every parameter on one row, with the tokens it leaves.
func TestParameterEdges(t *testing.T) {
	all := []int32{0, 1, 2, 3, 4, 5}
	for _, test := range []struct {
		name string
		c    Config
		want []int32
	}{
		{"k = -1 is off", Config{Temperature: 1, TopK: -1}, all},
		{"k = 0 is off", Config{Temperature: 1, TopK: 0}, all},
		{"k = 1", Config{Temperature: 1, TopK: 1}, []int32{0}},
		{"k = n", Config{Temperature: 1, TopK: 6}, all},
		{"k = n + 1", Config{Temperature: 1, TopK: 7}, all},
		{"k = max", Config{Temperature: 1, TopK: math.MaxInt}, all},
		{"top-p 0 is off", Config{Temperature: 1, TopP: 0}, all},
		{"top-p 1 is off", Config{Temperature: 1, TopP: 1}, all},
		{"top-p just below 1", Config{Temperature: 1, TopP: math.Nextafter(1, 0)}, all},
		{"min-p 0 is off", Config{Temperature: 1, MinP: 0}, all},
		{"min-p just above 0", Config{Temperature: 1, MinP: 5e-324}, all},
		{"min-p 1", Config{Temperature: 1, MinP: 1}, []int32{0}},
		{"min-keep max", Config{Temperature: 1, TopK: 1, TopP: .1, MinP: 1, MinKeep: math.MaxInt}, all},
		{"top-k share just above 0", Config{Temperature: 1, TopKShare: 5e-324}, []int32{0}},
		{"top-k share 1", Config{Temperature: 1, TopKShare: 1}, all},
		{"n = -1 is off", Config{Temperature: 1, TopNSigma: -1}, all},
		{"n just above 0", Config{Temperature: 1, TopNSigma: 5e-324}, []int32{0}},
		{"n = max", Config{Temperature: 1, TopNSigma: math.MaxFloat64}, all},
		{"typical-p 1 is off", Config{Temperature: 1, TypicalP: 1}, all},
		{"typical-p just above 0", Config{Temperature: 1, TypicalP: 5e-324}, []int32{1}},
		{"typical-p just below 1", Config{Temperature: 1, TypicalP: math.Nextafter(1, 0)}, all},
		{"epsilon just above 0", Config{Temperature: 1, Epsilon: 5e-324}, all},
		{"epsilon just below 1", Config{Temperature: 1, Epsilon: math.Nextafter(1, 0)}, []int32{0}},
		{"eta just above 0", Config{Temperature: 1, Eta: 5e-324}, all},
		{"eta just below 1", Config{Temperature: 1, Eta: math.Nextafter(1, 0)}, []int32{0}},
		{"z just above 0", Config{Temperature: 1, TailFreeZ: 5e-324}, []int32{0}},
		{"z = 1 is off", Config{Temperature: 1, TailFreeZ: 1}, all},
		{"a just above 0", Config{Temperature: 1, TopA: 5e-324}, all},
		{"a = max", Config{Temperature: 1, TopA: math.MaxFloat64}, []int32{0}},
		{"power = max", Config{Temperature: 1, TopA: 1, TopAPower: math.MaxFloat64}, all},
		{"xtc at the lowest threshold", Config{Temperature: 1, XTCProbability: 1, XTCThreshold: 5e-324}, []int32{5}},
		{"range = max", Config{Temperature: 1, DynTempRange: math.MaxFloat64}, all},
		{"dry base 1, exponent without a limit", Config{Temperature: 1, DRYMultiplier: 1, DRYBase: 1, DRYLastN: math.MaxInt}, all},
		{"dry base max", Config{Temperature: 1, DRYMultiplier: 1, DRYBase: math.MaxFloat64, DRYLastN: 64}, all},
		{"T = 0", Config{Temperature: 0}, []int32{0}},
		{"T = 1e-45", Config{Temperature: 1e-45}, []int32{0}},
		{"T = 1e-6", Config{Temperature: 1e-6}, []int32{0}},
		{"T = 1e-5", Config{Temperature: 1e-5}, all},
		{"T = 1e6", Config{Temperature: 1e6}, all},
		{"T = max", Config{Temperature: math.MaxFloat64}, all},
		{"window = max", Config{Temperature: 1, RepeatPenalty: 1.1, PenaltyLastN: math.MaxInt}, all},
	} {
		ids, probs := distOf(t, test.c, rowA)
		assert.Equal(t, test.want, ids, test.name)
		sum := 0.0
		for _, p := range probs {
			sum += p
		}
		assert.InDelta(t, 1, sum, 1e-12, test.name)
	}
	_, probs := distOf(t, Config{Temperature: 1e6}, rowA)
	assert.InDelta(t, 1./6, probs[0], 1e-6)
	_, probs = distOf(t, Config{Temperature: 1e-5}, rowA)
	assert.Equal(t, []float64{1, 0, 0, 0, 0, 0}, probs)
}

// Rows that leave little to choose give the same in every plan.
func TestRowEdges(t *testing.T) {
	one := make([]float32, 300)
	for i := range one {
		one[i] = -inf
	}
	one[217] = -5
	for name, c := range plans {
		t.Run(name, func(t *testing.T) {
			s := mustNew(t, c)
			var d Dist
			for _, row := range [][]float32{{-3}, {0}, {1e38}, {-1e38}, {5e-45}} {
				require.NoError(t, s.DistAt(&d, row, []int32{0, 0}, Draw{}))
				assert.Equal(t, 1, d.Len())
				assert.Equal(t, 1.0, d.ProbOf(0))
				id, err := s.Pick(row, []int32{0, 0}, Draw{})
				require.NoError(t, err)
				assert.Equal(t, int32(0), id)
			}

			if name != "bias" { // a bias can not lift a ban, but here the ban is not on its token
				require.NoError(t, s.DistAt(&d, one, []int32{217}, Draw{}))
				assert.Equal(t, 1, d.Len())
				id, err := s.Pick(one, []int32{217}, Draw{Seed: 1})
				require.NoError(t, err)
				assert.Equal(t, int32(217), id)
			}
		})
	}
}

func TestEqualLogits(t *testing.T) {
	equal := make([]float32, 1000)
	for i := range equal {
		equal[i] = -1.5
	}
	first := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(i)
		}
		return ids
	}
	for _, test := range []struct {
		c    Config
		want int
	}{
		{Config{}, 1},
		{Config{Temperature: .5}, 1000},
		{Config{Temperature: .5, TopK: 3}, 3},
		{Config{Temperature: .5, TopK: 400}, 400},
		{Config{Temperature: .5, TopP: .25}, 250},
		{Config{Temperature: .5, TopP: .2501}, 251},
		{Config{Temperature: .5, MinP: 1}, 1000},
		{Config{Temperature: .5, TopK: 100, TopP: .5, MinP: .5}, 50},
	} {
		ids, probs := distOf(t, test.c, equal)
		assert.Equal(t, first(test.want), ids)
		for _, p := range probs {
			assert.InDelta(t, 1/float64(test.want), p, 1e-15)
		}
	}
}

// Both zeros are equal, so the lower id wins.
func TestSignedZeros(t *testing.T) {
	minus := float32(math.Copysign(0, -1))
	for _, row := range [][]float32{{minus, 0}, {0, minus}} {
		for _, c := range []Config{{}, {Temperature: 1, TopK: 1}, {Temperature: 1, TopP: .5}} {
			ids, _ := distOf(t, c, row)
			assert.Equal(t, []int32{0}, ids)
		}
		ids, _ := distOf(t, Config{Temperature: 1, MinP: 1}, row)
		assert.Equal(t, []int32{0, 1}, ids)
		ids, _ = distOf(t, Config{Temperature: 1}, row)
		assert.Equal(t, []int32{0, 1}, ids)
	}
}

// A row that can not be drawn from is an error in every plan, whichever of its
// entries is the bad one, and leaves sampler, row and Dist usable.
func TestBadRows(t *testing.T) {
	const n = 300
	for name, c := range plans {
		t.Run(name, func(t *testing.T) {
			s := mustNew(t, c)
			var d Dist
			try := func(row []float32, want error, text string) {
				t.Helper()
				before := append([]float32(nil), row...)
				_, err := s.Pick(row, []int32{2, 2, 5}, Draw{})
				assert.ErrorIs(t, err, want)
				assert.EqualError(t, err, text)
				err = s.DistAt(&d, row, []int32{2, 2, 5}, Draw{})
				assert.ErrorIs(t, err, want)
				assert.EqualError(t, err, text)
				assert.Zero(t, d.Len())
				assert.Equal(t, bitsOf(before), bitsOf(row))
			}
			row := make([]float32, n)
			for _, bad := range []struct {
				v    float32
				want error
				text string
			}{
				{nan, ErrNaN, "logit is NaN"},
				{-nan, ErrNaN, "logit is NaN"},
				{math.Float32frombits(0xffc00001), ErrNaN, "logit is NaN"},
				{math.Float32frombits(0x7f800001), ErrNaN, "logit is NaN"},
				{inf, ErrInf, "logit is +Inf"},
			} {
				for at, token := range map[int]string{0: "0", n / 2: "150", n - 1: "299"} {
					for i := range row {
						row[i] = float32(n - i)
					}
					row[at] = bad.v
					try(row, bad.want, "sampler: token "+token+": "+bad.text)
				}
			}
			for i := range row {
				row[i] = -inf
			}
			empty := "sampler: no token left to draw from: every logit is -Inf"
			try(row, ErrNoCandidates, empty)
			if name != "bias" {
				try(nil, ErrNoCandidates, empty)
			}
			row[7] = nan
			try(row, ErrNaN, "sampler: token 7: logit is NaN")

			require.NoError(t, s.DistAt(&d, rowA, nil, Draw{}))
			assert.NotZero(t, d.Len())
		})
	}
}

func bitsOf(row []float32) []uint32 {
	u := make([]uint32, len(row))
	for i, v := range row {
		u[i] = math.Float32bits(v)
	}
	return u
}

// What empties a row is named.
func TestNoCandidatesNamesTheFilter(t *testing.T) {
	ban := map[int32]float64{0: math.Inf(-1), 1: math.Inf(-1)}
	for _, test := range []struct {
		c    Config
		want string
	}{
		{Config{LogitBias: ban}, "logit_bias"},
		{Config{Suppress: []int32{0, 1}}, "logit_bias"},
		{Config{MinLength: 1, EndTokens: []int32{0, 1}}, "min_length"},
		{Config{Temperature: .5, TopK: 1, MinLength: 1, EndTokens: []int32{0, 1}, Order: []string{"top_k", "min_length", "temperature"}}, "min_length"},
		{Config{Temperature: 1, LogitBias: ban}, "logit_bias"},
		{Config{Temperature: .5, LogitBias: ban, TopK: 1}, "logit_bias"},
		{Config{Temperature: .5, LogitBias: ban, TopP: .5}, "logit_bias"},
		{Config{Temperature: .5, LogitBias: ban, MinP: .5}, "logit_bias"},
		{Config{Temperature: .5, LogitBias: ban, TopK: 1, Order: []string{"top_k", "logit_bias", "temperature"}}, "logit_bias"},
		{Config{Steps: map[string]Step{"own": StepFunc(func(c *Candidates, _ []int32) error {
			c.Keep(func(Candidate) bool { return false })
			return nil
		})}, Order: []string{"own", "temperature"}}, "own"},
		{Config{Steps: map[string]Step{"own": StepFunc(func(c *Candidates, _ []int32) error {
			c.KeepAbove(100, 0)
			return nil
		})}, Order: []string{"own", "temperature"}}, "own"},
		{Config{Steps: map[string]Step{"own": StepFunc(func(c *Candidates, _ []int32) error {
			c.KeepTop(0)
			return nil
		})}, Order: []string{"own", "temperature"}}, "own"},
	} {
		row := []float32{1, 2}
		_, err := mustNew(t, test.c).Pick(row, nil, Draw{})
		assert.ErrorIs(t, err, ErrNoCandidates)
		assert.EqualError(t, err, "sampler: no token left to draw from after "+test.want)
		assert.Equal(t, []float32{1, 2}, row)
	}
}

func TestBiasOutsideTheVocabulary(t *testing.T) {
	_, err := mustNew(t, Config{LogitBias: map[int32]float64{2: 1, 6: 1}}).Pick(rowA, nil, Draw{})
	assert.EqualError(t, err, "sampler: logit_bias: token 6 is outside the vocabulary of 6")
	_, err = mustNew(t, Config{Suppress: []int32{7, 1}}).Pick(rowA, nil, Draw{})
	assert.EqualError(t, err, "sampler: logit_bias: token 7 is outside the vocabulary of 6")
	for _, k := range []int{0, 2} {
		_, err = mustNew(t, Config{TopK: k, MinLength: 1, EndTokens: []int32{6}}).Pick(rowA, nil, Draw{})
		assert.EqualError(t, err, "sampler: min_length: token 6 is outside the vocabulary of 6")
	}
}

// Tokens that the vocabulary does not have can stand in a history.
func TestForeignHistory(t *testing.T) {
	c := Config{Temperature: 1, PresencePenalty: 1, PenaltyLastN: 64}
	_, want := distOf(t, c, rowA, 1)
	_, got := distOf(t, c, rowA, -1, 6, math.MinInt32, 1, math.MaxInt32)
	assert.Equal(t, want, got)
}

// A penalty may drive a logit out of range; that too is an error.
func TestOverflow(t *testing.T) {
	_, err := mustNew(t, Config{RepeatPenalty: 1e-30, PenaltyLastN: 1}).Pick([]float32{1e30, 0}, []int32{0}, Draw{})
	assert.ErrorIs(t, err, ErrInf)
	ids, _ := distOf(t, Config{Temperature: 1, FrequencyPenalty: 1e300, PenaltyLastN: 1}, []float32{1, 0}, 0)
	assert.Equal(t, []int32{1}, ids)
	ids, _ = distOf(t, Config{Temperature: 1, LogitBias: map[int32]float64{0: -1e300}}, []float32{1, 0})
	assert.Equal(t, []int32{1}, ids)
}

// Whether xtc acts follows from seed and position alone, as often as its
// probability says; without a draw it can not be told.
func TestXTCActsNowAndThen(t *testing.T) {
	c := Config{Temperature: 1, XTCProbability: .3, XTCThreshold: .1}
	s := mustNew(t, c)
	var d Dist
	const n = 10000
	acted := 0
	for pos := range n {
		at := Draw{Seed: 7, Pos: pos}
		require.NoError(t, s.DistAt(&d, rowA, nil, at))
		id, err := s.Pick(rowA, nil, at)
		require.NoError(t, err)
		assert.Equal(t, d.Draw(at), id)
		if d.Len() < 6 {
			acted++
		}
		at.Stream = StreamResidual
		before := d.Len()
		require.NoError(t, s.DistAt(&d, rowA, nil, at))
		assert.Equal(t, before, d.Len())
	}
	assert.InDelta(t, .3*n, acted, 5*math.Sqrt(n*.3*.7))

	err := s.Dist(&d, rowA, nil)
	assert.EqualError(t, err, "sampler: xtc: what it removes depends on the draw: DistAt and Pick name one, Dist does not")
	assert.Zero(t, d.Len())
}

func TestStepErrors(t *testing.T) {
	errOwn := errors.New("no dictionary")
	for _, test := range []struct {
		step StepFunc
		is   error
		want string
	}{
		{func(*Candidates, []int32) error { return errOwn }, errOwn, "sampler: own: no dictionary"},
		{func(c *Candidates, _ []int32) error { c.SetLogit(1, nan); return nil }, ErrNaN, "sampler: token 1: logit is NaN"},
		{func(c *Candidates, _ []int32) error { c.SetLogit(1, inf); return nil }, ErrInf, "sampler: token 1: logit is +Inf"},
		{func(c *Candidates, _ []int32) error { c.List()[2].Logit = nan; return nil }, ErrNaN, "sampler: token 2: logit is NaN"},
		{func(c *Candidates, _ []int32) error {
			c.Keep(func(x Candidate) bool { return x.ID > 2 })
			c.SetLogit(4, nan)
			return nil
		}, ErrNaN, "sampler: token 4: logit is NaN"},
		{func(c *Candidates, _ []int32) error { c.KeepTop(1); c.SetLogit(1, inf); c.SetLogit(0, inf); return nil }, ErrInf, "sampler: token 0: logit is +Inf"},
	} {
		row := append([]float32(nil), rowA...)
		s := mustNew(t, Config{Temperature: .5, Order: []string{"own", "temperature"}, Steps: map[string]Step{"own": test.step}})
		_, err := s.Pick(row, nil, Draw{})
		assert.ErrorIs(t, err, test.is)
		assert.EqualError(t, err, test.want)
		assert.Equal(t, rowA, row)
	}
}

// A step that panics leaves the row as it was.
func TestStepPanics(t *testing.T) {
	row := append([]float32(nil), rowA...)
	s := mustNew(t, Config{
		LogitBias: map[int32]float64{2: 7}, Order: []string{"logit_bias", "own", "temperature"},
		Steps: map[string]Step{"own": StepFunc(func(c *Candidates, _ []int32) error { panic("own") })},
	})
	assert.PanicsWithValue(t, "own", func() { s.Pick(row, nil, Draw{}) })
	assert.Equal(t, rowA, row)
}

// A sampler does not hold on to the row: it may be memory of the model's.
func TestRowIsLetGo(t *testing.T) {
	for name, c := range plans {
		s := mustNew(t, c)
		_, err := s.Pick(rowA, nil, Draw{})
		require.NoError(t, err)
		assert.Nil(t, s.c.row, name)
	}
}

func TestEmptyDist(t *testing.T) {
	var d Dist
	assert.Zero(t, d.Len())
	assert.Zero(t, d.ProbOf(0))
	assert.PanicsWithValue(t, "sampler: draw from an empty Dist", func() { d.Draw(Draw{}) })
	assert.PanicsWithValue(t, "sampler: draw from an empty Dist", func() { d.DrawByID(.5) })
	assert.Equal(t, -1, d.Index(0))
}
