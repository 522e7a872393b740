//go:build !race

package speculative

const raceDetector = false
