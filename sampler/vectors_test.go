package sampler

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())

	rowA = []float32{2, 1, .5, 0, -1, -3}
	rowB = []float32{3, 3, 1, -inf, 0}
)

// logs returns the logarithms of probabilities, as logits.
func logs(p ...float64) []float32 {
	row := make([]float32, len(p))
	for i := range p {
		row[i] = float32(math.Log(p[i]))
	}
	return row
}

// tester is a *testing.T or a *rapid.T.
type tester interface {
	require.TestingT
	Helper()
}

func mustNew(t tester, c Config) *Sampler {
	t.Helper()
	s, err := New(c)
	require.NoError(t, err)
	return s
}

// distOf returns the distribution of a configuration as ids and probabilities.
func distOf(t tester, c Config, logits []float32, history ...int32) ([]int32, []float64) {
	t.Helper()
	var d Dist
	require.NoError(t, mustNew(t, c).Dist(&d, logits, history))
	var ids []int32
	var probs []float64
	for i := range d.Len() {
		ids, probs = append(ids, d.Token(i)), append(probs, d.Prob(i))
	}
	return ids, probs
}

// TestVectors compares whole distributions with values worked out apart from
// this package, to six digits. Most were also seen on llama.cpp.
func TestVectors(t *testing.T) {
	pA := []float64{.560893, .206341, .125152, .075909, .027925, .003779}
	all := []int32{0, 1, 2, 3, 4, 5}
	quarters := []float64{.25, .25, .25, .25}
	tests := []struct {
		name    string
		c       Config
		row     []float32
		history []int32
		ids     []int32
		probs   []float64
	}{
		{"plain", Config{Temperature: 1}, rowA, nil, all, pA},
		{"plain with a banned token", Config{Temperature: 1}, rowB, nil, []int32{0, 1, 2, 4}, []float64{.457640, .457640, .061935, .022785}},

		{"temperature .5", Config{Temperature: .5}, rowA, nil, all, []float64{.829213, .112222, .041284, .015188, .002055, .000038}},
		{"temperature 2", Config{Temperature: 2}, rowA, nil, all, []float64{.363373, .220397, .171645, .133678, .081080, .029827}},
		{"temperature .1", Config{Temperature: .1}, rowA, nil, all, []float64{.999954, .000045, 0, 0, 0, 0}},
		{"temperature 0", Config{}, rowA, nil, []int32{0}, []float64{1}},
		{"temperature 0, a tie", Config{}, rowB, nil, []int32{0}, []float64{1}},
		{"temperature 1 far from 0", Config{Temperature: 1}, []float32{1000, 999, -1000}, nil, []int32{0, 1, 2}, []float64{.731059, .268941, 0}},
		{"temperature 1 far below 0", Config{Temperature: 1}, []float32{-1000, -1001, -inf}, nil, []int32{0, 1}, []float64{.731059, .268941}},

		{"top-k 2", Config{Temperature: 1, TopK: 2}, rowA, nil, []int32{0, 1}, []float64{.731059, .268941}},
		{"top-k 3", Config{Temperature: 1, TopK: 3}, rowA, nil, []int32{0, 1, 2}, []float64{.628532, .231224, .140244}},
		{"top-k 10", Config{Temperature: 1, TopK: 10}, rowA, nil, all, pA},
		{"top-k 0", Config{Temperature: 1, TopK: 0}, rowA, nil, all, pA},
		{"top-k 1, a tie", Config{Temperature: 1, TopK: 1}, []float32{1, 2, 2, 0}, nil, []int32{1}, []float64{1}},

		{"top-p just above 0", Config{Temperature: 1, TopP: math.SmallestNonzeroFloat64}, rowA, nil, []int32{0}, []float64{1}},
		{"top-p .5", Config{Temperature: 1, TopP: .5}, rowA, nil, []int32{0}, []float64{1}},
		{"top-p .8", Config{Temperature: 1, TopP: .8}, rowA, nil, []int32{0, 1, 2}, []float64{.628532, .231224, .140244}},
		{"top-p .9", Config{Temperature: 1, TopP: .9}, rowA, nil, []int32{0, 1, 2, 3}, []float64{.579259, .213097, .129250, .078394}},
		{"top-p .9999", Config{Temperature: 1, TopP: .9999}, rowA, nil, all, pA},
		{"top-p 1", Config{Temperature: 1, TopP: 1}, rowA, nil, all, pA},
		{"top-p .5, min-keep 3", Config{Temperature: 1, TopP: .5, MinKeep: 3}, rowA, nil, []int32{0, 1, 2}, []float64{.628532, .231224, .140244}},

		{"min-p .05", Config{Temperature: 1, MinP: .05}, rowA, nil, []int32{0, 1, 2, 3}, []float64{.579259, .213097, .129250, .078394}},
		{"min-p .1", Config{Temperature: 1, MinP: .1}, rowA, nil, []int32{0, 1, 2, 3}, []float64{.579259, .213097, .129250, .078394}},
		{"min-p .25", Config{Temperature: 1, MinP: .25}, rowA, nil, []int32{0, 1}, []float64{.731059, .268941}},
		{"min-p .4", Config{Temperature: 1, MinP: .4}, rowA, nil, []int32{0}, []float64{1}},
		{"min-p 1", Config{Temperature: 1, MinP: 1}, rowA, nil, []int32{0}, []float64{1}},
		{"min-p 1, a tie", Config{Temperature: 1, MinP: 1}, rowB, nil, []int32{0, 1}, []float64{.5, .5}},
		{"min-p .05 with a banned token", Config{Temperature: 1, MinP: .05}, rowB, nil, []int32{0, 1, 2}, []float64{.468311, .468311, .063379}},
		{"min-p .4, min-keep 2", Config{Temperature: 1, MinP: .4, MinKeep: 2}, rowA, nil, []int32{0, 1}, []float64{.731059, .268941}},
		{"min-keep never lifts a ban", Config{Temperature: 1, MinP: .5, MinKeep: 5}, rowB, nil, []int32{0, 1, 2, 4}, []float64{.457640, .457640, .061935, .022785}},

		{"repeat 1.2", Config{Temperature: 1, RepeatPenalty: 1.2, PenaltyLastN: 64}, []float32{2, -1, 0, .5}, []int32{0, 0, 1},
			[]int32{0, 3, 2, 1}, []float64{.642192, .199981, .121294, .036533}},
		{"repeat 1.2, frequency .5, presence .3", Config{Temperature: 1, RepeatPenalty: 1.2, FrequencyPenalty: .5, PresencePenalty: .3, PenaltyLastN: 64}, []float32{2, -1, 0, .5}, []int32{0, 0, 1},
			[]int32{3, 0, 2, 1}, []float64{.390048, .341359, .236576, .032017}},
		{"frequency .5", Config{Temperature: 1, FrequencyPenalty: .5, PenaltyLastN: 64}, []float32{2, -1, 0, .5}, []int32{0, 0, 1, 2},
			[]int32{0, 3, 2, 1}, []float64{.523082, .317265, .116715, .042937}},
		{"repeat of a logit of 0", Config{Temperature: 1, RepeatPenalty: 1.3, PenaltyLastN: 64}, []float32{0, 0}, []int32{1}, []int32{0, 1}, []float64{.5, .5}},
		{"window shorter than the history", Config{Temperature: 1, FrequencyPenalty: .5, PenaltyLastN: 4}, []float32{2, -1, 0, .5}, []int32{3, 3, 3, 3, 0, 0, 1, 2},
			[]int32{0, 3, 2, 1}, []float64{.523082, .317265, .116715, .042937}},

		{"bias", Config{Temperature: 1, LogitBias: map[int32]float64{0: math.Inf(-1), 3: 2}}, rowA, nil, []int32{3, 1, 2, 4, 5}, []float64{.606968, .223291, .135433, .030219, .004090}},

		{"temperature 2, then top-p .8", Config{Temperature: 2, TopP: .8, Order: []string{"temperature", "top_p"}}, rowA, nil, []int32{0, 1, 2, 3}, nil},
		{"top-p .8, then temperature 2", Config{Temperature: 2, TopP: .8, Order: []string{"top_p", "temperature"}}, rowA, nil, []int32{0, 1, 2}, nil},
		{"temperature 2, then min-p .25", Config{Temperature: 2, MinP: .25, Order: []string{"temperature", "min_p"}}, rowA, nil, []int32{0, 1, 2, 3}, nil},
		{"min-p .25, then temperature 2", Config{Temperature: 2, MinP: .25, Order: []string{"min_p", "temperature"}}, rowA, nil, []int32{0, 1}, nil},
		{"temperature .5 last", Config{Temperature: .5, TopP: .8}, []float32{3, 2, 1}, nil, []int32{0, 1}, nil},
		{"temperature .5 first", Config{Temperature: .5, TopP: .8, Order: []string{"temperature", "top_p"}}, []float32{3, 2, 1}, nil, []int32{0}, nil},
		{"top-k 3, top-p .9, min-p .3, temperature .8", Config{Temperature: .8, TopK: 3, TopP: .9, MinP: .3}, rowA, nil, []int32{0, 1}, []float64{.777300, .222700}},

		{"ln p, temperature 1", Config{Temperature: 1}, logs(.1, .2, .3, .4), nil, []int32{3, 2, 1, 0}, []float64{.4, .3, .2, .1}},
		{"ln p, top-k 3", Config{Temperature: 1, TopK: 3}, logs(.1, .2, .3, .4), nil, []int32{3, 2, 1}, []float64{.444444, .333333, .222222}},
		{"ln p, top-p .7", Config{Temperature: 1, TopP: .7 - 1e-7}, logs(.1, .2, .3, .4), nil, []int32{3, 2}, []float64{.571429, .428571}},
		{"ln p, top-p .8", Config{Temperature: 1, TopP: .8}, logs(.1, .2, .3, .4), nil, []int32{3, 2, 1}, []float64{.444444, .333333, .222222}},
		{"ln p, min-p .24", Config{Temperature: 1, MinP: .24}, logs(.1, .2, .3, .4), nil, []int32{3, 2, 1, 0}, []float64{.4, .3, .2, .1}},
		{"ln p, min-p .26", Config{Temperature: 1, MinP: .26}, logs(.1, .2, .3, .4), nil, []int32{3, 2, 1}, []float64{.444444, .333333, .222222}},
		{"ln p, min-p .49", Config{Temperature: 1, MinP: .49}, logs(.1, .2, .3, .4), nil, []int32{3, 2, 1}, []float64{.444444, .333333, .222222}},
		{"ln p, min-p .51", Config{Temperature: 1, MinP: .51}, logs(.1, .2, .3, .4), nil, []int32{3, 2}, []float64{.571429, .428571}},
		{"ln p, min-p .74", Config{Temperature: 1, MinP: .74}, logs(.1, .2, .3, .4), nil, []int32{3, 2}, []float64{.571429, .428571}},
		{"ln p, min-p .76", Config{Temperature: 1, MinP: .76}, logs(.1, .2, .3, .4), nil, []int32{3}, []float64{1}},
		{"ln p, repeat 50", Config{Temperature: 1, RepeatPenalty: 50, PenaltyLastN: 64}, logs(.2, .2, .2, .2, .2), []int32{0}, []int32{1, 2, 3, 4, 0}, append(quarters, 0)},
		{"ln p, repeat 50, three", Config{Temperature: 1, RepeatPenalty: 50, PenaltyLastN: 64}, logs(.2, .2, .2, .2, .2), []int32{0, 1, 2, 0, 0}, []int32{3, 4, 0, 1, 2}, []float64{.5, .5, 0, 0, 0}},
		{"ln p, frequency 5, presence 5", Config{Temperature: 1, FrequencyPenalty: 5, PresencePenalty: 5, PenaltyLastN: 64}, logs(.2, .2, .2, .2, .2), []int32{0, 1, 2},
			[]int32{3, 4, 0, 1, 2}, []float64{.499966, .499966, .000023, .000023, .000023}},
		{"ln p, frequency 5, presence 5, counted", Config{Temperature: 1, FrequencyPenalty: 5, PresencePenalty: 5, PenaltyLastN: 64}, logs(.2, .2, .2, .2, .2), []int32{0, 1, 2, 0, 0},
			[]int32{3, 4, 1, 2, 0}, []float64{.499977, .499977, .000023, .000023, 0}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			row := append([]float32(nil), test.row...)
			ids, probs := distOf(t, test.c, row, test.history...)
			assert.Equal(t, test.ids, ids)
			if test.probs != nil {
				assert.InDeltaSlice(t, test.probs, probs, 1e-6)
			}
			assert.Equal(t, test.row, row, "the row is as before")
		})
	}
}

// The boundary of top-p, with probabilities that are exact: 3/4 is reached by
// the second token, so the third goes.
func TestTopPAtEquality(t *testing.T) {
	weights := []float64{.5, .25, .125, .125}
	for mass, want := range map[float64]int{0: 0, .5: 1, .5000001: 2, .75: 2, .7500001: 3, .875: 3, 1: 4} {
		assert.Equal(t, want, prefix(weights, mass), "mass %v", mass)
	}
	// Equal logits have exact weights too, in the row and in a list.
	for p, want := range map[float64]int{.25: 1, .5: 2, .50001: 3, .75: 3, .9: 4} {
		for _, k := range []int{0, 4} {
			ids, _ := distOf(t, Config{Temperature: 1, TopP: p, TopK: k}, make([]float32, 4))
			assert.Len(t, ids, want, "p %v, k %v", p, k)
		}
	}
}

// Filters that change logits give the same on either side of the temperature:
// the logits then are what they are divided by it.
func TestChangesAfterTemperature(t *testing.T) {
	c := Config{
		Temperature: 2, RepeatPenalty: 1.5, FrequencyPenalty: .25, PresencePenalty: .5, PenaltyLastN: 8,
		LogitBias: map[int32]float64{2: 1}, Order: []string{"temperature", "penalties", "logit_bias"},
	}
	ids, probs := distOf(t, c, []float32{4, -2, 1, 0}, 0, 0, 1)
	// 4/2/1.5 - 2*.25 - .5, -2/2*1.5 - .25 - .5, 1/2 + 1, 0
	want := []float64{1. / 3, -2.25, 1.5, 0}
	sum := 0.0
	for _, l := range want {
		sum += math.Exp(l)
	}
	assert.Equal(t, []int32{2, 0, 3, 1}, ids)
	for i, id := range ids {
		assert.InDelta(t, math.Exp(want[id])/sum, probs[i], 1e-7)
	}
}

// Each option alone changes what comes out: none is accepted and ignored.
func TestEveryOptionMatters(t *testing.T) {
	history := []int32{0, 0, 1}
	base := Config{Temperature: 1, PenaltyLastN: 64}
	_, plain := distOf(t, base, rowA, history...)
	for name, set := range map[string]func(c *Config){
		"Temperature":      func(c *Config) { c.Temperature = .7 },
		"TopK":             func(c *Config) { c.TopK = 3 },
		"TopP":             func(c *Config) { c.TopP = .9 },
		"MinP":             func(c *Config) { c.MinP = .1 },
		"RepeatPenalty":    func(c *Config) { c.RepeatPenalty = 1.1 },
		"FrequencyPenalty": func(c *Config) { c.FrequencyPenalty = .1 },
		"PresencePenalty":  func(c *Config) { c.PresencePenalty = .1 },
		"LogitBias":        func(c *Config) { c.LogitBias = map[int32]float64{3: .5} },
		"Steps": func(c *Config) {
			c.Steps = map[string]Step{"own": StepFunc(func(c *Candidates, _ []int32) error { c.KeepTop(2); return nil })}
			c.Order = []string{"own"}
		},
	} {
		c := base
		set(&c)
		_, probs := distOf(t, c, rowA, history...)
		assert.NotEqual(t, plain, probs, name)
	}
	for name, change := range map[string]func(c *Config){
		"MinKeep":      func(c *Config) { c.MinKeep = 5 },
		"PenaltyLastN": func(c *Config) { c.PenaltyLastN = 1 },
		"Order":        func(c *Config) { c.Order = []string{"top_p", "penalties", "temperature"} },
	} {
		c := Config{Temperature: 2, TopP: .5, RepeatPenalty: 1.5, PenaltyLastN: 3}
		_, before := distOf(t, c, rowA, history...)
		change(&c)
		_, after := distOf(t, c, rowA, history...)
		assert.NotEqual(t, before, after, name)
	}
}
