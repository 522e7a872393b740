package sampler

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func TestGuideVectors(t *testing.T) {
	cond, uncond := []float32{2, 1, 0}, []float32{1, 1, 1}
	for _, test := range []struct {
		scale  float64
		logits []float32
		probs  []float64 // in the order of the tokens
	}{
		{1, []float32{2, 1, 0}, []float64{.665241, .244728, .090031}},
		{1.5, []float32{2.5, 1, -.5}, []float64{.785597, .175290, .039113}},
		{0, []float32{1, 1, 1}, []float64{1. / 3, 1. / 3, 1. / 3}},
		{3, []float32{4, 1, -2}, []float64{.950330, .047314, .002356}},
		{-1, []float32{0, 1, 2}, []float64{.090031, .244728, .665241}},
	} {
		dst := make([]float32, 3)
		Guide(dst, cond, uncond, test.scale)
		assert.Equal(t, test.logits, dst, "scale %v", test.scale)
		ids, probs := distOf(t, Config{Temperature: 1}, dst)
		for i, id := range ids {
			assert.InDelta(t, test.probs[id], probs[i], 1e-6, "scale %v", test.scale)
		}
		copy(dst, cond)
		Guide(dst, dst, uncond, test.scale)
		assert.Equal(t, test.logits, dst, "in place")
	}
}

func TestGuideEdges(t *testing.T) {
	dst := make([]float32, 4)
	Guide(dst, []float32{1, -inf, -inf, 2}, []float32{1, -inf, 3, -inf}, 2)
	assert.Equal(t, []float32{1, -inf, -inf, inf}, dst)
	// Scale 1 changes nothing, not even in the last bit.
	Guide(dst, []float32{.1, 1e-30, -3e38, 7}, []float32{1e30, 5, 3e38, -1e-45}, 1)
	assert.Equal(t, []float32{.1, 1e-30, -3e38, 7}, dst)
	Guide(dst, []float32{nan, 0, 0, 0}, []float32{0, 0, nan, 0}, 2)
	assert.True(t, dst[0] != dst[0] && dst[2] != dst[2])
	for _, rows := range [][3]int{{3, 4, 4}, {4, 3, 4}, {4, 4, 3}} {
		assert.PanicsWithValue(t, "sampler: rows of different lengths", func() {
			Guide(make([]float32, rows[0]), make([]float32, rows[1]), make([]float32, rows[2]), 2)
		})
	}
}

var (
	expertRow   = []float32{3, 2.5, 1, 0}
	amateurRow  = []float32{2, .5, 1.5, 0}
	amateurRow2 = []float32{0, 1, 0, 0}
)

func TestContrastVectors(t *testing.T) {
	for _, test := range []struct {
		name     string
		c        Contrast
		amateurs [][]float32
		logits   []float64
		ids      []int32
		probs    []float64
	}{
		{"log-probabilities", Contrast{Alpha: .1}, [][]float32{amateurRow}, []float64{.092352, 1.092352, -1.407648, math.Inf(-1)},
			[]int32{1, 0, 2}, []float64{.689672, .253716, .056612}},
		{"log-probabilities, amateur at .5", Contrast{Alpha: .1, AmateurTemperature: .5}, [][]float32{amateurRow},
			[]float64{-.221290, 2.278710, -1.221290, math.Inf(-1)}, []int32{1, 0, 2}, nil},
		{"logits, beta .5", Contrast{Form: ContrastLogits, Alpha: .1, Beta: .5}, [][]float32{amateurRow}, []float64{3.5, 3.5, .75, math.Inf(-1)}, []int32{0, 1, 2}, nil},
		{"logits, beta 1", Contrast{Form: ContrastLogits, Alpha: .1, Beta: 1}, [][]float32{amateurRow}, []float64{4, 4.5, .5, math.Inf(-1)},
			[]int32{1, 0, 2}, []float64{.615443, .373285, .011272}},
		{"logits, alpha .5", Contrast{Form: ContrastLogits, Alpha: .5, Beta: .5}, [][]float32{amateurRow}, nil, []int32{0, 1}, nil},
		{"logits, alpha .7", Contrast{Form: ContrastLogits, Alpha: .7, Beta: .5}, [][]float32{amateurRow}, nil, []int32{0}, nil},
		{"logits, alpha 1", Contrast{Form: ContrastLogits, Alpha: 1, Beta: .5}, [][]float32{amateurRow}, nil, []int32{0}, nil},
		{"logits, beta 0", Contrast{Form: ContrastLogits, Alpha: .1}, [][]float32{amateurRow}, []float64{3, 2.5, 1, math.Inf(-1)}, []int32{0, 1, 2}, nil},
		{"no amateur", Contrast{Alpha: .1}, nil, []float64{3, 2.5, 1, math.Inf(-1)}, []int32{0, 1, 2}, nil},
		{"alpha 0", Contrast{Form: ContrastLogits, Beta: 1}, [][]float32{amateurRow}, []float64{4, 4.5, .5, 0}, []int32{1, 0, 2, 3}, nil},
		{"logits, two amateurs", Contrast{Form: ContrastLogits, Alpha: .1, Beta: .5}, [][]float32{amateurRow, amateurRow2}, []float64{5, 4.25, 1.25, math.Inf(-1)},
			[]int32{0, 1, 2}, []float64{.668501, .315777, .015722}},
		// The amateur twice is the amateur once.
		{"log-probabilities, the same twice", Contrast{Alpha: .1}, [][]float32{amateurRow, amateurRow}, []float64{.092352, 1.092352, -1.407648, math.Inf(-1)},
			[]int32{1, 0, 2}, []float64{.689672, .253716, .056612}},
		{"logits, amateur at .5", Contrast{Form: ContrastLogits, Alpha: .1, Beta: .5, AmateurTemperature: .5}, [][]float32{amateurRow}, []float64{2.5, 3.25, 0, math.Inf(-1)}, []int32{1, 0, 2}, nil},
	} {
		dst := make([]float32, 4)
		test.c.Logits(dst, expertRow, test.amateurs...)
		for i, want := range test.logits {
			if math.IsInf(want, -1) {
				assert.Equal(t, -inf, dst[i], test.name)
			} else {
				assert.InDelta(t, want, float64(dst[i]), 1e-6, test.name)
			}
		}
		ids, probs := distOf(t, Config{Temperature: 1}, dst)
		assert.Equal(t, test.ids, ids, test.name)
		if test.probs != nil {
			assert.InDeltaSlice(t, test.probs, probs, 1e-6, test.name)
		}
	}
}

// Amateurs one after the other, as x-transformers has them: each call takes the
// result of the one before as its expert, and cuts anew.
func TestContrastFolded(t *testing.T) {
	c := Contrast{Form: ContrastLogits, Alpha: .1, Beta: .5}
	dst := append([]float32(nil), expertRow...)
	c.Logits(dst, dst, amateurRow)
	c.Logits(dst, dst, amateurRow2)
	assert.Equal(t, []float32{5.25, 4.75, -inf, -inf}, dst)
	_, probs := distOf(t, Config{Temperature: 1}, dst)
	assert.InDeltaSlice(t, []float64{.622459, .377541}, probs, 1e-6)
}

func TestContrastEdges(t *testing.T) {
	for _, test := range []struct {
		c    Contrast
		want string
	}{
		{Contrast{Form: 2}, "sampler: the form of contrast is 2, want ContrastLogProbs or ContrastLogits"},
		{Contrast{Alpha: -1}, "sampler: the alpha of contrast is -1, want 0 to 1"},
		{Contrast{Alpha: 1.5}, "sampler: the alpha of contrast is 1.5, want 0 to 1"},
		{Contrast{Alpha: math.NaN()}, "sampler: the alpha of contrast is NaN, want 0 to 1"},
		{Contrast{Beta: -1}, "sampler: the beta of contrast is -1, want a finite number, 0 or more"},
		{Contrast{Beta: math.Inf(1)}, "sampler: the beta of contrast is +Inf, want a finite number, 0 or more"},
		{Contrast{AmateurTemperature: -1}, "sampler: the temperature of the amateurs is -1, want a finite number, 1e-05 or more, or 0, which means 1"},
		{Contrast{AmateurTemperature: 5e-324}, "sampler: the temperature of the amateurs is 5e-324, want a finite number, 1e-05 or more, or 0, which means 1"},
	} {
		assert.EqualError(t, test.c.Check(), test.want)
		assert.PanicsWithValue(t, "sampler: contrast with a setting out of range", func() { test.c.Logits(nil, nil) })
	}
	assert.NoError(t, Contrast{}.Check())
	for _, rows := range [][3]int{{3, 4, 4}, {4, 3, 4}, {4, 4, 3}} {
		assert.PanicsWithValue(t, "sampler: rows of different lengths", func() {
			Contrast{}.Logits(make([]float32, rows[0]), make([]float32, rows[1]), make([]float32, rows[2]))
		})
	}

	for _, c := range []Contrast{{Alpha: .1}, {Form: ContrastLogits, Alpha: .1, Beta: 1}} {
		dst := make([]float32, 3)
		c.Logits(dst, []float32{-inf, -inf, 2}, []float32{-inf, 0, -inf})
		assert.Equal(t, []float32{-inf, -inf, inf}, dst, "banned by the expert, by both, by the amateur")
		c.Logits(dst, []float32{-inf, -inf, -inf}, []float32{-inf, 0, 0})
		assert.Equal(t, []float32{-inf, -inf, -inf}, dst)
		c.Logits(dst, []float32{nan, 1, 2}, []float32{0, 0, 0})
		assert.True(t, dst[0] != dst[0])
		c.Logits(dst, []float32{3, 1, 2}, []float32{nan, 0, 0})
		assert.True(t, dst[0] != dst[0])
		c.Logits(nil, nil, nil)
	}
	Contrast{Form: ContrastLogits}.Logits(make([]float32, 1), []float32{1}, []float32{-inf})
}

// The chain on top of a contrast is that on probabilities worked out directly.
func TestContrastAgainstProbabilities(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "n")
		logits := rapid.SliceOfN(rapid.Float32Range(-8, 8), n, n)
		expert, amateur := logits.Draw(t, "expert"), logits.Draw(t, "amateur")
		alpha := float64(rapid.IntRange(1, 96).Draw(t, "alpha")) / 97
		dst := make([]float32, n)
		Contrast{Alpha: alpha}.Logits(dst, expert, amateur)

		p, q := rowProbs(expert), rowProbs(amateur)
		top, total := 0.0, 0.0
		for _, x := range p {
			top = max(top, x)
		}
		ratio := make([]float64, n)
		for i := range p {
			if p[i] >= alpha*top*(1-1e-12) {
				ratio[i] = p[i] / q[i]
				total += ratio[i]
			}
		}
		ids, probs := distOf(t, Config{Temperature: 1}, dst)
		for i, id := range ids {
			assert.InDelta(t, ratio[id]/total, probs[i], 1e-5)
			ratio[id] = 0
		}
		for _, x := range ratio {
			assert.Zero(t, x)
		}
	})
}

func rowProbs(row []float32) []float64 {
	sum := 0.0
	p := make([]float64, len(row))
	for i, l := range row {
		p[i] = math.Exp(float64(l))
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

func TestContrastAllocatesNothing(t *testing.T) {
	dst, e, a, b := make([]float32, 5000), make([]float32, 5000), make([]float32, 5000), make([]float32, 5000)
	for _, c := range []Contrast{{Alpha: .1}, {Form: ContrastLogits, Alpha: .1, Beta: 1}} {
		assert.Zero(t, testing.AllocsPerRun(20, func() {
			c.Logits(dst, e, a, b)
			Guide(dst, e, a, 2)
		}))
	}
}
