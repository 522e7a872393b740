//go:build !race

package sampler

const raceDetector = false
