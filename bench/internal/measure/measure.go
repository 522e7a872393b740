// Package measure holds what the programs in bench share: medians, and the
// machine's name for the head of a report.
package measure

import (
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
)

// Median returns the median of at least one value, of an even number the mean of
// the two in the middle.
func Median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// GeometricMean returns the geometric mean of values above 0, and 0 of none.
func GeometricMean(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	sum := 0.0
	for _, x := range v {
		sum += math.Log(x)
	}
	return math.Exp(sum / float64(len(v)))
}

// CPU returns the processor's name, as the kernel gives it.
func CPU() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return runtime.GOARCH
}

// LastLine returns the last line of a program's messages, where it says why it
// failed.
func LastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
