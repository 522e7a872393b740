package sampler

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What other samplers got wrong and no test of a single filter would show here.

// A row that cannot be drawn from leaves what mirostat and adaptive-p remember
// as it was.
func TestBadRowsLeaveTheState(t *testing.T) {
	for _, c := range stateful {
		s := mustNew(t, c)
		_, err := s.Pick(rowA, nil, Draw{Seed: 1})
		require.NoError(t, err)
		s.Accept(1)
		undisturbed := s.Clone()
		for _, bad := range [][]float32{{1, nan, 2}, {1, inf, 2}, {-inf, -inf}} {
			_, err = s.Pick(bad, nil, Draw{Seed: 1, Pos: 1})
			require.Error(t, err)
		}
		for pos := 1; pos < 4; pos++ {
			var want, got Dist
			require.NoError(t, undisturbed.Dist(&want, rowA, nil))
			require.NoError(t, s.Dist(&got, rowA, nil))
			assert.Equal(t, want, got, "%v", s)
			undisturbed.Accept(0)
			s.Accept(0)
		}
	}
}

// With a temperature near 0 the most likely token is left, not token 0, and
// nothing is NaN on the way.
func TestTinyTemperatures(t *testing.T) {
	for _, temperature := range []float64{0, 5e-324, 1e-45, 1e-39, 1e-38, 1e-12, 1e-7, 9e-6} {
		for _, c := range []Config{{Temperature: temperature}, {Temperature: temperature, TopK: 2}, {Temperature: temperature, TopP: 1e-4}, {Temperature: temperature, MinP: .1}} {
			ids, probs := distOf(t, c, []float32{1, -4, 3, 2})
			assert.Equal(t, []int32{2}, ids, "%v", c)
			assert.Equal(t, []float64{1}, probs, "%v", c)
		}
	}
	// 3e38/1e-4 is more than a float32 holds.
	ids, _ := distOf(t, Config{Temperature: 1e-4}, []float32{-3e38, 0, 3e38})
	assert.Equal(t, int32(2), ids[0])
}

// Filters in an order that is not the usual one leave a token, also where one of
// them has made the others' choice unlikely.
func TestDRYBetweenCuts(t *testing.T) {
	order := []string{"top_k", "dry", "min_p", "temperature", "top_p"}
	c := Config{TopK: 2, DRYMultiplier: 1, DRYBase: 1.75, DRYAllowedLength: 2, DRYLastN: 64, MinP: .9, Temperature: .5, TopP: .5, Order: order}
	// 0 0 0 ends in 0 0, which 0 has followed: 2 - 1, beside 1 of token 1.
	ids, _ := distOf(t, c, rowA, 0, 0, 0)
	assert.Equal(t, []int32{0}, ids, "half of the mass is enough, and the lower id comes first")
	c.DRYMultiplier = 3 // -1 beside 1
	ids, _ = distOf(t, c, rowA, 0, 0, 0)
	assert.Equal(t, []int32{1}, ids)
	ids, probs := distOf(t, Config{Temperature: 1, TopK: 1, DRYMultiplier: 1e30, DRYBase: 1, DRYLastN: 64, Order: []string{"top_k", "dry", "temperature"}}, rowA, 0, 0, 0)
	assert.Equal(t, []int32{0}, ids)
	assert.Equal(t, []float64{1}, probs)
}

// A million tokens to look back on: what compares every end with every other
// would not come back.
func TestDRYLooksBackFar(t *testing.T) {
	const n = 1 << 20
	c := Config{Temperature: 1, DRYMultiplier: .8, DRYBase: 1, DRYAllowedLength: 2, DRYLastN: n}
	ids, probs := distOf(t, c, make([]float32, 3), slices.Repeat([]int32{1}, n)...)
	assert.Equal(t, []int32{0, 2, 1}, ids)
	rest := math.Exp(-.8) // of what the others have
	assert.InDeltaSlice(t, []float64{1 / (2 + rest), 1 / (2 + rest), rest / (2 + rest)}, probs, 1e-7)
}

// Tokens beyond the first 32768 are cut as all are: weights 10, 4 and 1 beside
// one of 10.
func TestMinPOfALargeVocabulary(t *testing.T) {
	row := make([]float32, 40000)
	row[33000], row[39999] = float32(math.Log(10)), float32(math.Log(4))
	ids, probs := distOf(t, Config{Temperature: 1, MinP: .3}, row)
	assert.Equal(t, []int32{33000, 39999}, ids)
	assert.InDeltaSlice(t, []float64{10. / 14, 4. / 14}, probs, 1e-7)
}

// The repeat penalty depends on where 0 is: the same probabilities, a unit
// higher, keep a distance of 3 - 0, where 2 - -1*2 is 4.
func TestRepeatPenaltyKnowsZero(t *testing.T) {
	c := Config{Temperature: 1, RepeatPenalty: 2, PenaltyLastN: 64}
	for _, row := range [][]float32{{2, -1}, {3, 0}} {
		_, plain := distOf(t, Config{Temperature: 1}, row)
		assert.InDelta(t, math.Exp(3), plain[0]/plain[1], 1e-4)
	}
	_, probs := distOf(t, c, []float32{2, -1}, 1)
	assert.InDelta(t, math.Exp(4), probs[0]/probs[1], 1e-4)
	_, probs = distOf(t, c, []float32{3, 0}, 1)
	assert.InDelta(t, math.Exp(3), probs[0]/probs[1], 1e-4)
}
