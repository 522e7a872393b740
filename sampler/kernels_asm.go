//go:build amd64 && !purego

package sampler

import "github.com/klauspost/cpuid/v2"

func bestKernels() kernelSet {
	switch {
	case !cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.BMI1):
		return kernelsGo
	case !cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512DQ, cpuid.AVX512VL):
		return kernelsAVX2
	}
	return kernelsAVX512
}

// skipBelow returns an index up to which nextAbove would find nothing.
func skipBelow(row []float32, i int, floor float32) int {
	if kernels >= kernelsAVX2 {
		return nextAboveAVX2(row, i, floor)
	}
	return i
}

// collectBlocks does what it can of collectBetween. It returns how many indices
// it has written and where to go on.
func collectBlocks(dst []int32, row []float32, i int, floor, ceiling float32) (n, next int) {
	if kernels >= kernelsAVX2 {
		return collectBetweenAVX2(dst, row, i, floor, ceiling)
	}
	return 0, i
}

// skipLosers returns an index up to which nextContender would find nothing.
func skipLosers(row []float32, i int, f fence, k key) int {
	counter := k.a + uint64(i)*golden
	switch kernels {
	case kernelsAVX2:
		return nextContenderAVX2(row, i, f.slope, f.height, counter, k.b)
	case kernelsAVX512:
		return nextContenderAVX512(row, i, f.slope, f.height, counter, k.b)
	}
	return i
}

// sumBlocks adds a multiple of 16 tokens to the sums of expSum.
func sumBlocks(row []float32, top, scale float64, floor float32, sums *[32]float64) {
	switch kernels {
	case kernelsAVX2:
		expSumAVX2(row, top, scale, floor, &expBits, sums)
	case kernelsAVX512:
		expSumAVX512(row, top, scale, floor, &expBits, sums)
	default:
		sumBlocksGo(row, top, scale, floor, sums)
	}
}
