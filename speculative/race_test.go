//go:build race

package speculative

// raceDetector makes the long tests shorter.
const raceDetector = true
