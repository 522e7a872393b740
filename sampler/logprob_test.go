package sampler

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLogProb(t *testing.T) {
	for id, p := range []float64{.560893, .206341, .125152, .075909, .027925, .003779} {
		assert.InDelta(t, math.Log(p), LogProb(rowA, int32(id)), 2e-4)
	}
	assert.InDelta(t, math.Log(.3), LogProb(logs(.1, .2, .3, .4), 2), 1e-7)
	assert.Equal(t, math.Inf(-1), LogProb(rowB, 3))
	assert.Panics(t, func() { LogProb(rowA, 6) })
}

func TestLogSumExp(t *testing.T) {
	assert.InDelta(t, 1000+math.Log(1+1/math.E), LogSumExp([]float32{1000, 999, -1000}), 1e-10)
	assert.InDelta(t, -1000+math.Log(1+1/math.E), LogSumExp([]float32{-1000, -1001, -inf}), 1e-10)
	assert.InDelta(t, math.Log(100000), LogSumExp(make([]float32, 100000)), 1e-12)
	assert.Equal(t, math.Inf(-1), LogSumExp(nil))
	assert.Equal(t, math.Inf(-1), LogSumExp([]float32{-inf, -inf}))
	assert.Equal(t, math.Inf(1), LogSumExp([]float32{0, inf}))
	for at := range 3 {
		row := []float32{inf, 0, 1}
		row[at] = nan
		assert.True(t, math.IsNaN(LogSumExp(row)), "NaN at %d", at)
	}

	r := rand.New(rand.NewPCG(2, 2))
	row := make([]float32, 30000)
	for i := range row {
		row[i] = float32(r.NormFloat64() * 4)
	}
	sum := 0.0
	for _, v := range row {
		sum += math.Exp(float64(v))
	}
	assert.InDelta(t, math.Log(sum), LogSumExp(row), 1e-11)
}

func TestTopLogProbs(t *testing.T) {
	norm := math.Log(2*math.Exp(2) + 2*math.Exp(1) + 1)
	row := []float32{1, 2, -inf, 2, 0, 1}
	want := []TokenLogProb{{1, 2 - norm}, {3, 2 - norm}, {0, 1 - norm}, {5, 1 - norm}, {4, -norm}}
	for n := -1; n < 8; n++ {
		keep := TokenLogProb{99, 0}
		got := TopLogProbs([]TokenLogProb{keep}, row, n)
		k := min(max(n, 0), len(want))
		assert.Len(t, got, 1+k)
		assert.Equal(t, keep, got[0])
		for i, x := range got[1:] {
			assert.Equal(t, want[i].ID, x.ID, "n %d", n)
			assert.InDelta(t, want[i].LogProb, x.LogProb, 1e-11)
		}
	}
	for _, row := range [][]float32{nil, {-inf}, {1, nan}, {1, inf}} {
		assert.Empty(t, TopLogProbs(nil, row, 3))
	}
	// Log-probabilities that round to the same number are still in order.
	got := TopLogProbs(nil, []float32{10, 1e-30, 2e-30}, 3)
	assert.Equal(t, []int32{0, 2, 1}, []int32{got[0].ID, got[1].ID, got[2].ID})
}
