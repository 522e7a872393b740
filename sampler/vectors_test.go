package sampler

import (
	"fmt"
	"math"
	"reflect"
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
	require.NoError(t, mustNew(t, c).DistAt(&d, logits, history, Draw{}))
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

		{"dynamic temperature", Config{Temperature: 1, DynTempRange: .5, DynTempExponent: 1}, rowA, nil, all, []float64{.502294, .215957, .141602, .092848, .039919, .007379}},
		{"dynamic temperature, exponent 0 is 1", Config{Temperature: 1, DynTempRange: .5}, rowA, nil, all, []float64{.502294, .215957, .141602, .092848, .039919, .007379}},
		{"dynamic temperature, exponent 2", Config{Temperature: 1, DynTempRange: .5, DynTempExponent: 2}, rowA, nil, all, []float64{.572526, .203943, .121721, .072648, .025878, .003284}},
		{"dynamic temperature from 0", Config{Temperature: 0, DynTempRange: 1}, rowA, nil, all, []float64{.708720, .164503, .079254, .038183, .008863, .000477}},
		{"dynamic temperature, range 0", Config{Temperature: .5, DynTempExponent: 3}, rowA, nil, all, []float64{.829213, .112222, .041284, .015188, .002055, .000038}},
		{"dynamic temperature of equal logits", Config{Temperature: 1, DynTempRange: .5}, []float32{0, 0, 0, 0}, nil, []int32{0, 1, 2, 3}, quarters},
		{"dynamic temperature of one token", Config{Temperature: 1, DynTempRange: .5}, []float32{5, -inf, -inf, -inf}, nil, []int32{0}, []float64{1}},
		{"dynamic temperature of two tokens", Config{Temperature: 1, DynTempRange: 1}, []float32{1, 0}, nil, []int32{0, 1}, []float64{.644576, .355424}},
		{"dynamic temperature of two tokens beside banned ones", Config{Temperature: 1, DynTempRange: 1}, []float32{-inf, 1, -inf, 0}, nil, []int32{1, 3}, []float64{.644576, .355424}},
		{"dynamic temperature without entropy", Config{Temperature: 0, DynTempRange: 1}, []float32{2000, 0, 0, 0}, nil, []int32{0}, []float64{1}},

		{"top-k share .3", Config{Temperature: 1, TopKShare: .3}, rowA, nil, []int32{0, 1}, []float64{.731059, .268941}},
		{"top-k share .5", Config{Temperature: 1, TopKShare: .5}, rowA, nil, []int32{0, 1, 2}, []float64{.628532, .231224, .140244}},

		{"top-a .02", Config{Temperature: 1, TopA: .02}, rowA, nil, []int32{0, 1, 2, 3, 4}, []float64{.563021, .207124, .125627, .076197, .028031}},
		{"top-a .2", Config{Temperature: 1, TopA: .2}, rowA, nil, []int32{0, 1, 2, 3}, []float64{.579259, .213097, .129250, .078394}},
		{"top-a .5", Config{Temperature: 1, TopA: .5}, rowA, nil, []int32{0, 1}, []float64{.731059, .268941}},
		{"top-a 1", Config{Temperature: 1, TopA: 1}, rowA, nil, []int32{0}, []float64{1}},
		{"top-a 2", Config{Temperature: 1, TopA: 2}, rowA, nil, []int32{0}, []float64{1}},
		{"top-a .2, power 1", Config{Temperature: 1, TopA: .2, TopAPower: 1}, rowA, nil, []int32{0, 1, 2}, []float64{.628532, .231224, .140244}},
		{"top-a 2, min-keep 2", Config{Temperature: 1, TopA: 2, MinKeep: 2}, rowA, nil, []int32{0, 1}, []float64{.731059, .268941}},

		{"typical .2", Config{Temperature: 1, TypicalP: .2}, rowA, nil, []int32{1}, []float64{1}},
		{"typical .5", Config{Temperature: 1, TypicalP: .5}, rowA, nil, []int32{0, 1}, []float64{.731059, .268941}},
		{"typical .9", Config{Temperature: 1, TypicalP: .9}, rowA, nil, []int32{0, 1, 2, 3}, []float64{.579259, .213097, .129250, .078394}},
		{"typical .95", Config{Temperature: 1, TypicalP: .95}, rowA, nil, []int32{0, 1, 2, 3}, []float64{.579259, .213097, .129250, .078394}},
		{"typical .9, peaked", Config{Temperature: 1, TypicalP: .9}, []float32{5, 1, 1, 0}, nil, []int32{0}, []float64{1}},
		{"typical .5 without the most likely", Config{Temperature: 1, TypicalP: .5}, logs(.4, .2, .2, .2), nil, []int32{1, 2, 3}, []float64{1. / 3, 1. / 3, 1. / 3}},
		{"typical .5 with a banned token", Config{Temperature: 1, TypicalP: .5}, append(logs(.4, .2, .2, .2), -inf), nil, []int32{1, 2, 3}, []float64{1. / 3, 1. / 3, 1. / 3}},
		{"typical .2, equal", Config{Temperature: 1, TypicalP: .2}, []float32{0, 0, 0, 0}, nil, []int32{0}, []float64{1}},
		{"typical .5, equal", Config{Temperature: 1, TypicalP: .5}, []float32{0, 0, 0, 0}, nil, []int32{0, 1, 2}, []float64{1. / 3, 1. / 3, 1. / 3}},
		{"typical .6, equal", Config{Temperature: 1, TypicalP: .6}, []float32{0, 0, 0, 0}, nil, []int32{0, 1, 2}, []float64{1. / 3, 1. / 3, 1. / 3}},
		{"typical .2, min-keep 2", Config{Temperature: 1, TypicalP: .2, MinKeep: 2}, rowA, nil, []int32{0, 1}, []float64{.731059, .268941}},
		// Three at .2 lie nearer than the four at .1, and the first of the latter come next.
		{"typical .65, ties above and below", Config{Temperature: 1, TypicalP: .65}, logs(.1, .2, .1, .2, .1, .2, .1), nil, []int32{1, 3, 5, 0}, []float64{2. / 7, 2. / 7, 2. / 7, 1. / 7}},
		// The surprise of .3 is nearer to the entropy, 1.366, than that of .1; of the three at .3 the first two are enough.
		{"typical .5, ties above", Config{Temperature: 1, TypicalP: .5}, logs(.3, .3, .1, .3), nil, []int32{0, 1}, []float64{.5, .5}},

		{"top-n-sigma .5", Config{Temperature: 1, TopNSigma: .5}, rowA, nil, []int32{0}, []float64{1}},
		{"top-n-sigma 1", Config{Temperature: 1, TopNSigma: 1}, rowA, nil, []int32{0, 1, 2}, []float64{.628532, .231224, .140244}},
		{"top-n-sigma 2", Config{Temperature: 1, TopNSigma: 2}, rowA, nil, []int32{0, 1, 2, 3, 4}, []float64{.563021, .207124, .125627, .076197, .028031}},
		{"top-n-sigma 1 with banned tokens", Config{Temperature: 1, TopNSigma: 1}, []float32{-inf, 2, 1, .5, 0, -1, -3, -inf}, nil, []int32{1, 2, 3}, []float64{.628532, .231224, .140244}},
		{"top-n-sigma 1, equal", Config{Temperature: 1, TopNSigma: 1}, []float32{1, 1, 1, 1}, nil, []int32{0, 1, 2, 3}, quarters},
		{"top-n-sigma 1, doubled", Config{Temperature: 1, TopNSigma: 1}, []float32{4, 2, 1, 0, -2, -6}, nil, []int32{0, 1, 2}, []float64{.843795, .114195, .042010}},
		{"top-n-sigma .5, min-keep 2", Config{Temperature: 1, TopNSigma: .5, MinKeep: 2}, rowA, nil, []int32{0, 1}, []float64{.731059, .268941}},
		{"ln p, top-n-sigma 1", Config{Temperature: 1, TopNSigma: 1}, logs(.1, .2, .3, .4), nil, []int32{3, 2}, []float64{.571429, .428571}},
		{"ln p, top-n-sigma 0", Config{Temperature: 1, TopNSigma: 0}, logs(.1, .2, .3, .4), nil, []int32{3, 2, 1, 0}, []float64{.4, .3, .2, .1}},
		{"ln p, top-n-sigma 3", Config{Temperature: 1, TopNSigma: 3}, logs(.1, .2, .3, .4), nil, []int32{3, 2, 1, 0}, []float64{.4, .3, .2, .1}},

		{"epsilon .0003", Config{Temperature: 1, Epsilon: .0003}, rowA, nil, all, pA},
		{"epsilon .05", Config{Temperature: 1, Epsilon: .05}, rowA, nil, []int32{0, 1, 2, 3}, []float64{.579259, .213097, .129250, .078394}},
		{"epsilon .2", Config{Temperature: 1, Epsilon: .2}, rowA, nil, []int32{0, 1}, []float64{.731059, .268941}},
		{"epsilon .6", Config{Temperature: 1, Epsilon: .6}, rowA, nil, []int32{0}, []float64{1}},
		{"epsilon .6, min-keep 2", Config{Temperature: 1, Epsilon: .6, MinKeep: 2}, rowA, nil, []int32{0, 1}, []float64{.731059, .268941}},
		{"epsilon at equality", Config{Temperature: 1, Epsilon: .25}, make([]float32, 4), nil, []int32{0, 1, 2, 3}, quarters},
		{"epsilon just above equality", Config{Temperature: 1, Epsilon: .2501}, make([]float32, 4), nil, []int32{0}, []float64{1}},
		{"top-a at equality", Config{Temperature: 1, TopA: 4}, make([]float32, 4), nil, []int32{0, 1, 2, 3}, quarters},
		{"top-a just above equality", Config{Temperature: 1, TopA: 4.001}, make([]float32, 4), nil, []int32{0}, []float64{1}},
		{"eta .0003", Config{Temperature: 1, Eta: .0003}, rowA, nil, all, pA},
		{"eta .05", Config{Temperature: 1, Eta: .05}, rowA, nil, []int32{0, 1, 2, 3}, []float64{.579259, .213097, .129250, .078394}},
		{"eta .3", Config{Temperature: 1, Eta: .3}, rowA, nil, []int32{0, 1}, []float64{.731059, .268941}},
		{"eta .6", Config{Temperature: 1, Eta: .6}, rowA, nil, []int32{0}, []float64{1}},
		{"eta .9, equal", Config{Temperature: 1, Eta: .9}, []float32{0, 0, 0, 0}, nil, []int32{0, 1, 2, 3}, quarters},

		{"tail-free .5", Config{Temperature: 1, TailFreeZ: .5}, rowA, nil, []int32{0}, []float64{1}},
		{"tail-free .9", Config{Temperature: 1, TailFreeZ: .9}, rowA, nil, []int32{0}, []float64{1}},
		{"tail-free .95", Config{Temperature: 1, TailFreeZ: .95}, rowA, nil, []int32{0, 1, 2}, []float64{.628532, .231224, .140244}},
		{"tail-free .99", Config{Temperature: 1, TailFreeZ: .99}, rowA, nil, []int32{0, 1, 2}, []float64{.628532, .231224, .140244}},
		{"tail-free .5, min-keep 2", Config{Temperature: 1, TailFreeZ: .5, MinKeep: 2}, rowA, nil, []int32{0, 1}, []float64{.731059, .268941}},
		{"tail-free of two tokens", Config{Temperature: 1, TailFreeZ: .1}, []float32{1, 0}, nil, []int32{0, 1}, []float64{.731059, .268941}},
		// No second difference: each counts a half, and the second exceeds .6.
		{"tail-free, equal", Config{Temperature: 1, TailFreeZ: .6}, []float32{0, 0, 0, 0}, nil, []int32{0}, []float64{1}},

		{"xtc .05", Config{Temperature: 1, XTCProbability: 1, XTCThreshold: .05}, rowA, nil, []int32{3, 4, 5}, []float64{.705385, .259496, .035119}},
		{"xtc .1", Config{Temperature: 1, XTCProbability: 1, XTCThreshold: .1}, rowA, nil, []int32{2, 3, 4, 5}, []float64{.537675, .326117, .119972, .016236}},
		{"xtc .2", Config{Temperature: 1, XTCProbability: 1, XTCThreshold: .2}, rowA, nil, []int32{1, 2, 3, 4, 5}, []float64{.469911, .285016, .172871, .063596, .008607}},
		{"xtc .3", Config{Temperature: 1, XTCProbability: 1, XTCThreshold: .3}, rowA, nil, all, pA},
		{"xtc .5", Config{Temperature: 1, XTCProbability: 1, XTCThreshold: .5}, rowA, nil, all, pA},
		{"xtc .6", Config{Temperature: 1, XTCProbability: 1, XTCThreshold: .6}, rowA, nil, all, pA},
		{"xtc .5, a tie", Config{Temperature: 1, XTCProbability: 1, XTCThreshold: .5}, []float32{1, 1}, nil, []int32{1}, []float64{1}},
		{"xtc .05, min-keep 3", Config{Temperature: 1, XTCProbability: 1, XTCThreshold: .05, MinKeep: 3}, rowA, nil, []int32{3, 4, 5}, []float64{.705385, .259496, .035119}},
		{"xtc .05, min-keep 4", Config{Temperature: 1, XTCProbability: 1, XTCThreshold: .05, MinKeep: 4}, rowA, nil, all, pA},
		{"xtc .05, one exempt", Config{Temperature: 1, XTCProbability: 1, XTCThreshold: .05, XTCExempt: []int32{9, 1}}, rowA, nil, []int32{1, 3, 4, 5}, []float64{.657233, .241783, .088947, .012038}},
		{"ln p, xtc .09", Config{Temperature: 1, XTCProbability: 1, XTCThreshold: .09}, logs(.4, .3, .2, .1), nil, []int32{3}, []float64{1}},
		{"ln p, xtc .19", Config{Temperature: 1, XTCProbability: 1, XTCThreshold: .19}, logs(.4, .3, .2, .1), nil, []int32{2, 3}, []float64{2. / 3, 1. / 3}},
		{"ln p, xtc .29", Config{Temperature: 1, XTCProbability: 1, XTCThreshold: .29}, logs(.4, .3, .2, .1), nil, []int32{1, 2, 3}, []float64{.5, 1. / 3, 1. / 6}},
		{"ln p, xtc .39", Config{Temperature: 1, XTCProbability: 1, XTCThreshold: .39}, logs(.4, .3, .2, .1), nil, []int32{0, 1, 2, 3}, []float64{.4, .3, .2, .1}},
		{"ln p, typical .5, peaked", Config{Temperature: 1, TypicalP: .5}, logs(.97, .01, .01, .01), nil, []int32{0}, []float64{1}},

		{"repeat 1.2", Config{Temperature: 1, RepeatPenalty: 1.2, PenaltyLastN: 64}, []float32{2, -1, 0, .5}, []int32{0, 0, 1},
			[]int32{0, 3, 2, 1}, []float64{.642192, .199981, .121294, .036533}},
		// 2/.8, -1*.8, 0, .5
		{"repeat .8", Config{Temperature: 1, RepeatPenalty: .8, PenaltyLastN: 64}, []float32{2, -1, 0, .5}, []int32{0, 0, 1},
			[]int32{0, 3, 2, 1}, []float64{.797255, .107897, .065443, .029405}},
		{"repeat 1.2, frequency .5, presence .3", Config{Temperature: 1, RepeatPenalty: 1.2, FrequencyPenalty: .5, PresencePenalty: .3, PenaltyLastN: 64}, []float32{2, -1, 0, .5}, []int32{0, 0, 1},
			[]int32{3, 0, 2, 1}, []float64{.390048, .341359, .236576, .032017}},
		{"frequency .5", Config{Temperature: 1, FrequencyPenalty: .5, PenaltyLastN: 64}, []float32{2, -1, 0, .5}, []int32{0, 0, 1, 2},
			[]int32{0, 3, 2, 1}, []float64{.523082, .317265, .116715, .042937}},
		{"repeat of a logit of 0", Config{Temperature: 1, RepeatPenalty: 1.3, PenaltyLastN: 64}, []float32{0, 0}, []int32{1}, []int32{0, 1}, []float64{.5, .5}},
		{"window shorter than the history", Config{Temperature: 1, FrequencyPenalty: .5, PenaltyLastN: 4}, []float32{2, -1, 0, .5}, []int32{3, 3, 3, 3, 0, 0, 1, 2},
			[]int32{0, 3, 2, 1}, []float64{.523082, .317265, .116715, .042937}},

		{"bias", Config{Temperature: 1, LogitBias: map[int32]float64{0: math.Inf(-1), 3: 2}}, rowA, nil, []int32{3, 1, 2, 4, 5}, []float64{.606968, .223291, .135433, .030219, .004090}},

		{"suppressed", Config{Temperature: 1, Suppress: []int32{0, 2, 0}, LogitBias: map[int32]float64{0: 5, 3: 2}}, []float32{2, 1, .5, -2, -1, -3}, nil, []int32{1, 3, 4, 5}, []float64{.657233, .241783, .088947, .012038}},
		{"before the minimum length", Config{Temperature: 1, MinLength: 2, PromptLen: 3, EndTokens: []int32{0, 2}}, []float32{2, 1, .5, 0, -1, -3}, []int32{0, 0, 0, 0}, []int32{1, 3, 4, 5}, []float64{.657233, .241783, .088947, .012038}},
		{"at the minimum length", Config{Temperature: 1, MinLength: 2, PromptLen: 3, EndTokens: []int32{0, 2}}, rowA, []int32{0, 0, 0, 0, 0}, all, pA},
		{"history shorter than the prompt", Config{Temperature: 1, MinLength: 1, PromptLen: 3, EndTokens: []int32{0, 2}}, []float32{2, 1, .5, 0, -1, -3}, nil, []int32{1, 3, 4, 5}, []float64{.657233, .241783, .088947, .012038}},

		{"no 3-gram twice", Config{Temperature: 1, NoRepeatNGram: 3}, make([]float32, 5), []int32{1, 2, 3, 1, 2}, []int32{0, 1, 2, 4}, quarters},
		{"no 3-gram twice, two of them", Config{Temperature: 1, NoRepeatNGram: 3}, make([]float32, 6), []int32{1, 2, 3, 1, 2, 4, 1, 2}, []int32{0, 1, 2, 5}, quarters},
		{"no 2-gram twice", Config{Temperature: 1, NoRepeatNGram: 2}, make([]float32, 5), []int32{1, 2, 1}, []int32{0, 1, 3, 4}, quarters},
		{"no token twice", Config{Temperature: 1, NoRepeatNGram: 1}, make([]float32, 6), []int32{1, 2, 1}, []int32{0, 3, 4, 5}, quarters},
		{"no 3-gram yet", Config{Temperature: 1, NoRepeatNGram: 3}, make([]float32, 4), []int32{1, 2}, []int32{0, 1, 2, 3}, quarters},
		{"no 2-gram of equal tokens twice", Config{Temperature: 1, NoRepeatNGram: 2}, make([]float32, 9), []int32{7, 7, 7}, []int32{0, 1, 2, 3, 4, 5, 6, 8}, nil},

		{"penalties without the prompt", Config{Temperature: 1, RepeatPenalty: 1.2, FrequencyPenalty: .5, PresencePenalty: .3, PenaltyLastN: 64, PenaltySkipPrompt: true, PromptLen: 3}, []float32{2, -1, 0, .5}, []int32{2, 3, 3, 0, 0, 1},
			[]int32{3, 0, 2, 1}, []float64{.390048, .341359, .236576, .032017}},
		{"penalties with one exempt", Config{Temperature: 1, RepeatPenalty: 1.2, FrequencyPenalty: .5, PresencePenalty: .3, PenaltyLastN: 64, PenaltyExempt: []int32{3, 99}}, []float32{2, -1, 0, .5}, []int32{3, 3, 3, 0, 0, 1},
			[]int32{3, 0, 2, 1}, []float64{.390048, .341359, .236576, .032017}},

		{"dry, nothing repeated", Config{Temperature: 1, DRYMultiplier: 1, DRYBase: 1.1, DRYAllowedLength: 2, DRYLastN: 4}, logs(.25, .25, .25, .25), []int32{0, 1}, []int32{0, 1, 2, 3}, quarters},
		{"dry", Config{Temperature: 1, DRYMultiplier: 1, DRYBase: 1.1, DRYAllowedLength: 2, DRYLastN: 5}, logs(.25, .25, .25, .25), []int32{0, 1, 2, 0, 1}, []int32{0, 1, 3, 2}, []float64{.296923, .296923, .296923, .109232}},
		{"dry with a breaker", Config{Temperature: 1, DRYMultiplier: 1, DRYBase: 1.1, DRYAllowedLength: 2, DRYLastN: 6, DRYBreakers: [][]int32{{3}}}, logs(.2, .2, .2, .2, .2), []int32{0, 1, 3, 4, 0, 1}, []int32{0, 1, 2, 3, 4}, []float64{.2, .2, .2, .2, .2}},
		{"dry, multiplier 2", Config{Temperature: 1, DRYMultiplier: 2, DRYBase: 1.1, DRYAllowedLength: 2, DRYLastN: 5}, logs(.2, .2, .2, .2, .2), []int32{0, 1, 2, 0, 1}, []int32{0, 1, 3, 4, 2}, []float64{.241818, .241818, .241818, .241818, .032727}},
		{"dry, allowed length 4", Config{Temperature: 1, DRYMultiplier: 1, DRYBase: 1.1, DRYAllowedLength: 4, DRYLastN: 7}, logs(.2, .2, .2, .2, .2), []int32{0, 1, 2, 3, 4, 0, 1}, []int32{0, 1, 2, 3, 4}, []float64{.2, .2, .2, .2, .2}},

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

// The queue tests of llama.cpp's test-sampling: token i of 10,000 has
// probability proportional to i, so whole numbers say how many stay.
func TestQueues(t *testing.T) {
	const n, k, p, minP = 10000, 100, 4. / 5, 1. / 10
	row := make([]float32, n)
	for i := range row {
		row[i] = float32(math.Log(float64(i)))
	}
	weight := func(m int) int { return m * (2*n - 1 - m) / 2 } // of the m most likely
	for _, queue := range []string{"k", "p", "m", "kp", "km", "pk", "pm", "mk", "mp", "kpm", "kmp", "pkm", "pmk", "mkp", "mpk"} {
		c, want := Config{Temperature: 1}, n-1 // token 0 is banned
		for _, filter := range queue {
			switch filter {
			case 'k':
				c.TopK, c.Order = k, append(c.Order, "top_k")
				want = min(want, k)
			case 'p':
				c.TopP, c.Order = p, append(c.Order, "top_p")
				m := 0
				for 5*weight(m) < 4*weight(want) {
					m++
				}
				want = m
			case 'm':
				c.MinP, c.Order = minP, append(c.Order, "min_p")
				m := want
				for 10*(n-m) < n-1 { // the m-th most likely token is n-m
					m--
				}
				want = m
			}
		}
		ids, _ := distOf(t, c, row)
		if assert.Len(t, ids, want, queue) {
			for i, id := range ids {
				require.Equal(t, int32(n-1-i), id, queue)
			}
		}
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

// TestEveryOptionMatters: each field of Config alone changes what comes out of
// some chain, so that none is accepted and ignored.
func TestEveryOptionMatters(t *testing.T) {
	history := []int32{0, 0, 0}
	outcome := func(c Config) (out string, ok bool) {
		s, err := New(c)
		if err != nil {
			return "", false
		}
		var d Dist
		for pos := range 5 {
			at := Draw{Pos: pos + 1}
			require.NoError(t, s.DistAt(&d, rowA, history, at))
			id, err := s.Pick(rowA, history, at)
			require.NoError(t, err)
			s.Accept(0)
			out += fmt.Sprint(d.ranking().ids, d.ranking().probs, id)
		}
		return out, true
	}
	bases := []Config{
		{Temperature: 1, PenaltyLastN: 64, XTCThreshold: .1, DRYBase: 1.1, DRYLastN: 64, EndTokens: []int32{2}, MirostatTau: 2, MirostatEta: .2},
		{Temperature: 2, DynTempRange: 1, TopA: .2, XTCProbability: 1, XTCThreshold: .2},
		{Temperature: 1, FrequencyPenalty: .2, PenaltyLastN: 3, DRYMultiplier: .2, DRYBase: 2, DRYAllowedLength: 1, DRYLastN: 5, PromptLen: 1},
		{Temperature: 1, MinLength: 3, PromptLen: 1, EndTokens: []int32{4}},
		{Temperature: 1, Mirostat: 2, MirostatTau: 2, MirostatEta: .1},
		{Temperature: 1, AdaptiveTarget: .4, AdaptiveDecay: .5},
		{Temperature: 1, Order: []string{"own"}, Steps: map[string]Step{"own": StepFunc(func(*Candidates, []int32) error { return nil })}},
	}
	changes := map[string]func(c *Config){
		"Temperature":       func(c *Config) { c.Temperature = .7 },
		"DynTempRange":      func(c *Config) { c.DynTempRange = .5 },
		"DynTempExponent":   func(c *Config) { c.DynTempExponent = 3 },
		"TopK":              func(c *Config) { c.TopK = 3 },
		"TopKShare":         func(c *Config) { c.TopKShare = .5 },
		"TopNSigma":         func(c *Config) { c.TopNSigma = 1 },
		"TypicalP":          func(c *Config) { c.TypicalP = .9 },
		"Epsilon":           func(c *Config) { c.Epsilon = .05 },
		"Eta":               func(c *Config) { c.Eta = .05 },
		"TailFreeZ":         func(c *Config) { c.TailFreeZ = .95 },
		"TopA":              func(c *Config) { c.TopA = .6 },
		"TopAPower":         func(c *Config) { c.TopAPower = 1 },
		"TopP":              func(c *Config) { c.TopP = .9 },
		"MinP":              func(c *Config) { c.MinP = .1 },
		"XTCProbability":    func(c *Config) { c.XTCProbability = .9 },
		"XTCThreshold":      func(c *Config) { c.XTCThreshold = .6 },
		"XTCExempt":         func(c *Config) { c.XTCExempt = []int32{0} },
		"MinKeep":           func(c *Config) { c.MinKeep = 5 },
		"RepeatPenalty":     func(c *Config) { c.RepeatPenalty = 1.1 },
		"FrequencyPenalty":  func(c *Config) { c.FrequencyPenalty = .1 },
		"PresencePenalty":   func(c *Config) { c.PresencePenalty = .1 },
		"PenaltyLastN":      func(c *Config) { c.PenaltyLastN = 1 },
		"PenaltySkipPrompt": func(c *Config) { c.PenaltySkipPrompt = true },
		"PenaltyExempt":     func(c *Config) { c.PenaltyExempt = []int32{0} },
		"DRYMultiplier":     func(c *Config) { c.DRYMultiplier = 1 },
		"DRYBase":           func(c *Config) { c.DRYBase = 3 },
		"DRYAllowedLength":  func(c *Config) { c.DRYAllowedLength = 5 },
		"DRYLastN":          func(c *Config) { c.DRYLastN = 2 },
		"DRYBreakers":       func(c *Config) { c.DRYBreakers = [][]int32{{0}} },
		"NoRepeatNGram":     func(c *Config) { c.NoRepeatNGram = 1 },
		"MinLength":         func(c *Config) { c.MinLength = 5 },
		"EndTokens":         func(c *Config) { c.EndTokens = []int32{0} },
		"PromptLen":         func(c *Config) { c.PromptLen = 0 },
		"Suppress":          func(c *Config) { c.Suppress = []int32{5} },
		"LogitBias":         func(c *Config) { c.LogitBias = map[int32]float64{3: .5} },
		"Mirostat":          func(c *Config) { c.Mirostat = 2 },
		"MirostatTau":       func(c *Config) { c.MirostatTau = 1 },
		"MirostatEta":       func(c *Config) { c.MirostatEta = 2 },
		"AdaptiveTarget":    func(c *Config) { c.AdaptiveTarget = .1 },
		"AdaptiveDecay":     func(c *Config) { c.AdaptiveDecay = .9 },
		"Constraint":        func(c *Config) { c.Constraint = below(3) },
		"DrawMethod":        func(c *Config) { c.DrawMethod = DrawInverse },
		"Order":             func(c *Config) { c.Order = []string{"temperature", "top_a", "xtc"} },
		"Steps": func(c *Config) {
			c.Steps = map[string]Step{"own": StepFunc(func(c *Candidates, _ []int32) error { c.KeepTop(2); return nil })}
		},
	}
	for i := range reflect.TypeFor[Config]().NumField() {
		name := reflect.TypeFor[Config]().Field(i).Name
		change := changes[name]
		if !assert.NotNil(t, change, "%s is tested", name) {
			continue
		}
		changed := false
		for _, c := range bases {
			before, _ := outcome(c)
			change(&c)
			after, ok := outcome(c)
			changed = changed || ok && before != after
		}
		assert.True(t, changed, name)
	}
}

// below is a constraint that allows the tokens below it.
type below int32

func (b below) Allow(dst, tokens []int32) ([]int32, error) {
	for _, id := range tokens {
		if id < int32(b) {
			dst = append(dst, id)
		}
	}
	return dst, nil
}

func (b below) Accept(int32) error { return nil }
func (b below) Clone() any         { return b }
