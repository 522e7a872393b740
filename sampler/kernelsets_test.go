package sampler

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// kernelResults is what every kernel makes of one row.
type kernelResults struct {
	above, contender int
	collected        []int32
	next             int
	sums             [2]uint64 // bits
}

// runKernels calls every kernel on a row from index i on. The sum, for which a
// row has no NaN and nothing above its top, is over a copy that obeys.
func runKernels(row []float32, i int, floor, ceiling float32, inv float64, f fence, k key) (r kernelResults) {
	r.above = nextAbove(row, i, floor)
	r.contender = nextContender(row, i, f, k)
	r.collected, r.next = collectBetween(make([]int32, 0, 70), row, i, floor, ceiling)
	top := negInf
	tame := slices.Clone(row[i:])
	for j, v := range tame {
		if !(v <= math.MaxFloat32) {
			tame[j] = negInf
		}
		top = max(top, tame[j])
	}
	if top > negInf {
		mass, moment := expSum(tame, top, inv, floor)
		r.sums = [2]uint64{math.Float64bits(mass), math.Float64bits(moment)}
	}
	return r
}

// sameKernels requires that all sets of kernels that this machine has give the
// same, to the last bit.
func sameKernels(t *testing.T, row []float32, i int, floor, ceiling float32, inv float64, f fence, k key) {
	t.Helper()
	defer func(best kernelSet) { kernels = best }(kernels)
	best := kernels
	kernels = kernelsGo
	want := runKernels(row, i, floor, ceiling, inv, f, k)
	for kernels = kernelsGo + 1; kernels <= best; kernels++ {
		require.Equal(t, want, runKernels(row, i, floor, ceiling, inv, f, k), "%s, from %d of %v above %v, %v", Kernels(), i, row, floor, f)
	}
}

// Rows of every length up to 200, from unaligned starts, with special values
// anywhere.
func TestKernelSets(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	special := []float32{nan, -nan, inf, -inf, 0, float32(math.Copysign(0, -1)), math.MaxFloat32, -math.MaxFloat32, 5e-45, -80, 40}
	memory := make([]float32, 300)
	for n := range 201 {
		for try := range 20 {
			row := memory[try : try+n : try+n]
			for j := range row {
				row[j] = float32(r.NormFloat64() * 3)
				if try%4 == 1 && r.IntN(20) == 0 {
					row[j] = special[r.IntN(len(special))]
				}
			}
			if n > 0 && try%4 == 2 {
				row[r.IntN(n)] = special[try%len(special)]
			}
			floor := []float32{-inf, 12, 3, 0, float32(r.NormFloat64())}[r.IntN(5)]
			f := newFence([]float64{.7, 1, 1e-4, 30}[r.IntN(4)])
			if r.IntN(5) > 0 {
				f.raise(3 + 8*r.Float64())
			}
			sameKernels(t, row, r.IntN(n+1), floor, []float32{inf, 1, floor + 1}[r.IntN(3)], []float64{1, 1.25, .01}[r.IntN(3)], f, key{r.Uint64(), r.Uint64()})
		}
	}
}

func FuzzKernels(f *testing.F) {
	f.Add([]byte{}, uint(0), float32(0), float32(1), 1.0, 1.0, uint64(1), uint64(2))
	bytes := make([]byte, 4*100)
	for i := range 100 {
		binary.LittleEndian.PutUint32(bytes[4*i:], math.Float32bits(float32(i%17)-8))
	}
	f.Add(bytes, uint(3), float32(5.5), float32(7), .8, 9.0, uint64(3), uint64(4))
	binary.LittleEndian.PutUint32(bytes[4*77:], math.Float32bits(nan))
	f.Add(bytes, uint(0), float32(8), inf, 1.3, 30.0, uint64(5), uint64(6))
	f.Fuzz(func(t *testing.T, data []byte, start uint, floor, ceiling float32, temp, best float64, a, b uint64) {
		if !(temp >= greedyBelow && temp <= 1e30 && floor == floor && ceiling == ceiling) {
			return
		}
		row := make([]float32, len(data)/4)
		for i := range row {
			row[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
		fence := newFence(temp)
		fence.raise(best)
		sameKernels(t, row, int(start%uint(len(row)+1)), floor, ceiling, 1/temp, fence, key{a, b})
	})
}

// Against math.Exp, over the whole range.
func TestExpOf(t *testing.T) {
	for x := 0.0; x > -690; x -= .00731 {
		require.InEpsilon(t, math.Exp(x), expOf(x), 3e-13, "%v", x)
	}
	require.Equal(t, 1.0, expOf(0))
	require.Zero(t, expOf(-691))
	require.Zero(t, expOf(math.Inf(-1)))
}
