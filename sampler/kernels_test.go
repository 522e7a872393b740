package sampler

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func TestNextAbove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := []float32{-inf, -1, 0, float32(math.Copysign(0, -1)), 5e-45, 1, math.MaxFloat32, inf, nan, -nan}
		row := rapid.SliceOfN(rapid.SampledFrom(values), 0, 40).Draw(t, "row")
		floor := rapid.SampledFrom(values[:8]).Draw(t, "floor")
		from := rapid.IntRange(0, len(row)).Draw(t, "from")
		want := from
		for want < len(row) && row[want] <= floor {
			want++
		}
		assert.Equal(t, want, nextAbove(row, from, floor))
	})
}

// massByDepth is exact to 1e-11, and each token counts at its depth.
func TestMassByDepth(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, inv := range []float64{1, .3, 1 / .7, 100} {
		for name, shape := range shapes {
			row := make([]float32, 5000)
			shape(r, row)
			top := slices.Max(row)
			var mass depths
			massByDepth(row, top, inv, &mass)
			sum := 0.0
			for _, v := range row {
				sum += math.Exp((float64(v) - float64(top)) * inv)
			}
			assert.InEpsilon(t, sum, mass.total(), 1e-11, "%s, %v", name, inv)
		}
	}
	for x := 0.0; x < 44; x += .01 {
		var mass depths
		v := float32(-x)
		massByDepth([]float32{v}, 0, 1, &mass)
		d := int(-float64(v) * math.Log2E * depthsPerBit)
		got := mass[d]
		if d+1 < len(mass) { // rounding to the next step may cross over
			got += mass[d+1]
		}
		assert.InEpsilon(t, math.Exp(float64(v)), got, 1e-11, "%v", x)
	}
	var mass depths
	massByDepth([]float32{-inf, -50, -1e38}, 0, 1, &mass)
	assert.Zero(t, mass.total())
}

// nextContender never passes over a token that would win, and passes few
// others.
func TestNextContender(t *testing.T) {
	const n = 20000
	row := make([]float32, n)
	shapes["normal"](rand.New(rand.NewPCG(1, 1)), row)
	for _, temp := range []float64{1e-4, .8, 1, 5, 1e6} {
		passed := 0
		for pos := range 20 {
			k := Draw{Seed: 3, Pos: pos}.key()
			top := math.Inf(-1)
			f := newFence(temp)
			next := nextContender(row, 0, f, k)
			for i, v := range row {
				s := float64(v)/temp + k.gumbel(int32(i))
				if s >= top {
					assert.Equal(t, i, next, "temperature %v: token %d wins and was passed over", temp, i)
				}
				if i == next {
					passed++
					if s > top {
						top = s
						f.raise(top)
					}
					next = nextContender(row, i+1, f, k)
				}
			}
		}
		assert.Less(t, passed, 20*40, "temperature %v", temp)
	}
}

func TestRank(t *testing.T) {
	values := []float32{-inf, -math.MaxFloat32, -2, -1, -5e-45, 0, 5e-45, 1, 1.5, math.MaxFloat32, inf}
	for i, a := range values {
		for _, id := range []int32{0, 1, 262143, math.MaxInt32} {
			x := Candidate{id, a}
			assert.Equal(t, x, rankOf(x).candidate())
			for j, b := range values {
				want := cmp.Or(cmp.Compare(j, i), cmp.Compare(id, 7))
				assert.Equal(t, want, cmp.Compare(rankOf(x), rankOf(Candidate{7, b})), "%v %v", x, b)
			}
		}
	}
	assert.Equal(t, rankOf(Candidate{1, 0}), rankOf(Candidate{1, float32(math.Copysign(0, -1))}))
}

func TestSelectAndSort(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{1, 2, 3, 15, 16, 17, 40, 80, 333, radixMin - 1, radixMin, 5000} {
		for name, shape := range shapes {
			row := make([]float32, n)
			shape(r, row)
			ranks := make([]rank, n)
			for i, v := range row {
				ranks[i] = rankOf(Candidate{int32(i), v})
			}
			want := slices.Clone(ranks)
			slices.Sort(want)

			for _, mixed := range []bool{false, true} {
				if mixed {
					r.Shuffle(n, func(i, j int) { ranks[i], ranks[j] = ranks[j], ranks[i] })
				}
				got := slices.Clone(ranks)
				sortRanks(got, nil)
				assert.Equal(t, want, got, "sort %s %d", name, n)
				for _, k := range []int{1, n / 3, n / 2, n - 1, n, n + 5} {
					got := slices.Clone(ranks)
					selectTop(got, k)
					k = min(k, n)
					slices.Sort(got[:k])
					assert.Equal(t, want[:k], got[:k], "first %d of %s %d", k, name, n)
				}
			}
		}
	}
}

// A row in rising order is the worst for a running floor: the sample keeps it
// from passing every token.
func TestSampleFloor(t *testing.T) {
	const n, k = 100000, 40
	c := Candidates{row: make([]float32, n)}
	shapes["rising"](nil, c.row)
	floor := c.sampleFloor(k)
	above := 0
	for _, v := range c.row {
		if v > floor {
			above++
		}
	}
	assert.GreaterOrEqual(t, above, k)
	assert.Less(t, above, n/7)
	for i := range c.row { // no sample has k tokens that are not banned
		c.row[i] = -inf
	}
	c.row[0] = 1
	assert.Equal(t, -inf, c.sampleFloor(k))
}
