package sampler

import (
	"math"
	"slices"
)

// A TokenLogProb is a token with its natural log-probability.
type TokenLogProb struct {
	ID      int32
	LogProb float64
}

// LogProb returns the natural log-probability that the model gives a token:
// its logit minus [LogSumExp], before any filter and at temperature 1. It
// panics if the token is outside the row.
func LogProb(logits []float32, token int32) float64 {
	return float64(logits[token]) - LogSumExp(logits)
}

// TopLogProbs appends the n most likely tokens with their log-probabilities to
// dst, the most likely first, of equals the lower id. There are fewer where
// fewer tokens are not banned, and none if a logit is NaN or +Inf.
func TopLogProbs(dst []TokenLogProb, logits []float32, n int) []TokenLogProb {
	norm := LogSumExp(logits)
	if n <= 0 || !finite(norm) {
		return dst
	}
	start := len(dst)
	floor := negInf
	for i := nextAbove(logits, 0, floor); i < len(logits); i = nextAbove(logits, i+1, floor) {
		if len(dst)-start == n {
			dst = dst[:len(dst)-1]
		}
		at, _ := slices.BinarySearchFunc(dst[start:], logits[i], func(x TokenLogProb, logit float32) int {
			if logits[x.ID] >= logit { // of equals the one already there has the lower id
				return -1
			}
			return 1
		})
		dst = slices.Insert(dst, start+at, TokenLogProb{int32(i), float64(logits[i]) - norm})
		if len(dst)-start == n {
			floor = logits[dst[len(dst)-1].ID]
		}
	}
	return dst
}

// LogSumExp returns ln(sum(exp(logit))) of a row, summed in float64: what a
// logit exceeds its log-probability by. It is NaN if a logit is NaN, and an
// infinity if a logit is +Inf or all are -Inf.
func LogSumExp(logits []float32) float64 { return logSumExp(logits, 1) }

// logSumExp is LogSumExp of the logits times inv.
func logSumExp(logits []float32, inv float64) float64 {
	top := maxLogit(logits)
	if !finite(float64(top)) {
		return float64(top)
	}
	mass, _ := expSum(logits, top, inv, negInf)
	return float64(top)*inv + math.Log(mass)
}

// maxLogit returns the highest logit of a row, -Inf for an empty one, or NaN if
// there is one.
func maxLogit(logits []float32) float32 {
	top := negInf
	for i := nextAbove(logits, 0, top); i < len(logits); i = nextAbove(logits, i+1, top) {
		if top = logits[i]; top != top {
			return top
		}
	}
	return top
}
