//go:build race

package sampler

// raceDetector makes the statistical tests draw a tenth as often.
const raceDetector = true
