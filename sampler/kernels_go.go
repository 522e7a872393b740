//go:build !amd64 || purego

package sampler

func bestKernels() kernelSet { return kernelsGo }

func skipBelow(_ []float32, i int, _ float32) int { return i }

func collectBlocks(_ []int32, _ []float32, i int, _, _ float32) (n, next int) { return 0, i }

func skipLosers(_ []float32, i int, _ fence, _ key) int { return i }

func sumBlocks(row []float32, top, scale float64, floor float32, sums *[32]float64) {
	sumBlocksGo(row, top, scale, floor, sums)
}
