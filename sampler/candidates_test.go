package sampler

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inStep runs f as the only filter, on a row and on the same tokens as a list.
func inStep(t *testing.T, logits []float32, f func(t *testing.T, c *Candidates)) {
	t.Helper()
	for _, form := range []string{"row", "list"} {
		t.Run(form, func(t *testing.T) {
			row := append([]float32(nil), logits...)
			step := StepFunc(func(c *Candidates, history []int32) error {
				if form == "list" {
					c.List()
				}
				assert.Equal(t, []int32{4, 2}, history)
				f(t, c)
				return nil
			})
			s := mustNew(t, Config{Temperature: 1, Order: []string{"own"}, Steps: map[string]Step{"own": step}})
			_, err := s.Pick(row, []int32{4, 2}, Draw{})
			require.NoError(t, err)
			assert.Equal(t, logits, row)
		})
	}
}

func TestCandidatesReadAndWrite(t *testing.T) {
	inStep(t, []float32{3, -inf, 1, 2}, func(t *testing.T, c *Candidates) {
		assert.Equal(t, 1.0, c.Temperature())
		assert.Equal(t, float32(3), c.Max())
		for id, want := range map[int32]float32{0: 3, 2: 1, 3: 2} {
			l, ok := c.Logit(id)
			assert.True(t, ok)
			assert.Equal(t, want, l)
		}
		for _, id := range []int32{-1, 1, 4, math.MaxInt32} {
			_, ok := c.Logit(id)
			assert.False(t, ok)
			c.SetLogit(id, 5)
			_, ok = c.Logit(id)
			assert.False(t, ok, "not a candidate before, not a candidate now")
		}

		c.SetLogit(2, 9)
		assert.Equal(t, float32(9), c.Max())
		c.SetLogit(2, 8)
		c.SetLogit(0, -inf)
		_, ok := c.Logit(0)
		assert.False(t, ok)
		c.Sort()
		assert.Equal(t, []Candidate{{2, 8}, {3, 2}}, c.List())
		c.Sort()
		c.SetLogit(2, 1)
		assert.Equal(t, float32(2), c.Max())
		c.Sort()
		assert.Equal(t, []Candidate{{3, 2}, {2, 1}}, c.List())
	})
}

func TestCandidatesCut(t *testing.T) {
	logits := []float32{3, 5, 1, 5, -inf, 2}
	inStep(t, logits, func(t *testing.T, c *Candidates) {
		c.KeepTop(100)
		c.Keep(func(x Candidate) bool { return x.ID != 0 })
		c.KeepAbove(2, 0)
		c.Sort()
		assert.Equal(t, []Candidate{{1, 5}, {3, 5}, {5, 2}}, c.List())
		c.KeepAbove(5, 1)
		c.KeepTop(1)
		assert.Equal(t, []Candidate{{1, 5}}, c.List())
	})
	inStep(t, logits, func(t *testing.T, c *Candidates) {
		c.KeepAbove(5.5, 3)
		c.Sort()
		assert.Equal(t, []Candidate{{1, 5}, {3, 5}, {0, 3}}, c.List())
	})
	inStep(t, logits, func(t *testing.T, c *Candidates) {
		c.KeepTop(3)
		c.Sort()
		c.KeepTop(2)
		assert.Equal(t, []Candidate{{1, 5}, {3, 5}}, c.List())
	})
}

// A bound between two neighbouring float32 values keeps the upper one only.
func TestKeepAboveIsExact(t *testing.T) {
	up := math.Nextafter32(1, 2)
	for _, sign := range []float32{1, -1} {
		low, high := min(sign*1, sign*up), max(sign*1, sign*up)
		for bound, want := range map[float64]int{
			float64(low): 2, (float64(low) + float64(high)) / 2: 1, float64(high): 1,
			math.Nextafter(float64(low), 9): 1, math.Nextafter(float64(high), -9): 1,
		} {
			inStep(t, []float32{low, high}, func(t *testing.T, c *Candidates) {
				c.KeepAbove(bound, 1)
				assert.Len(t, c.List(), want, "bound %v", bound)
				_, ok := c.Logit(1)
				assert.True(t, ok)
			})
		}
	}
}

func TestCandidatesProbs(t *testing.T) {
	inStep(t, logs(.2, .5, .3), func(t *testing.T, c *Candidates) {
		assert.InDeltaSlice(t, []float64{.2, .5, .3}, c.Probs(), 1e-7)
		c.Sort()
		assert.InDeltaSlice(t, []float64{.5, .3, .2}, c.Probs(), 1e-7)
	})
}

// Logits changed in place, also to a ban, count; the list is put in order.
func TestListInPlace(t *testing.T) {
	s := mustNew(t, Config{Temperature: 1, TopK: 3, Order: []string{"top_k", "own", "temperature"},
		Steps: map[string]Step{"own": StepFunc(func(c *Candidates, _ []int32) error {
			c.Sort()
			list := c.List()
			list[0].Logit, list[1].Logit = -inf, -7
			return nil
		})}})
	var d Dist
	require.NoError(t, s.Dist(&d, rowA, nil))
	assert.Equal(t, []int32{2, 1}, d.ranking().ids)
	assert.InDelta(t, 1/(1+math.Exp(-7.5)), d.ProbOf(2), 1e-12)
	assert.Equal(t, d.Prob(0), d.ProbOf(d.Token(0)))
	assert.Zero(t, d.ProbOf(0))
}

// A step sees the row as the filters before it have left it.
func TestStepsInTheChain(t *testing.T) {
	var seen []float32
	look := StepFunc(func(c *Candidates, _ []int32) error {
		c.Sort()
		for _, x := range c.List() {
			seen = append(seen, x.Logit)
		}
		assert.Equal(t, .5, c.Temperature())
		return nil
	})
	s := mustNew(t, Config{Temperature: .5, TopK: 2, LogitBias: map[int32]float64{5: 4},
		Order: []string{"logit_bias", "temperature", "top_k", "look"}, Steps: map[string]Step{"look": look}})
	_, err := s.Pick(append([]float32(nil), rowA...), nil, Draw{})
	require.NoError(t, err)
	assert.Equal(t, []float32{2, 1}, seen)
}
