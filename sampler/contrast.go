package sampler

import (
	"math"
	"slices"
)

// A ContrastForm is one of the published forms of contrastive decoding.
type ContrastForm int

const (
	// ContrastLogProbs is the form of Li et al. 2022 (arXiv:2210.15097):
	// log-probability of the expert minus that of the amateur; of several
	// amateurs, minus the mean of theirs.
	ContrastLogProbs ContrastForm = iota
	// ContrastLogits is the form of O'Brien and Lewis 2023 (arXiv:2309.09117):
	// (1 + beta) times the logit of the expert minus beta times that of the
	// amateur; of several amateurs, each with that beta, all at once.
	ContrastLogits
)

// A Contrast holds the settings of contrastive decoding.
type Contrast struct {
	Form ContrastForm

	// Alpha keeps the tokens that the expert gives at least Alpha times the
	// probability of its most likely one. 0 to 1; 0 keeps all.
	Alpha float64

	// Beta is the weight of each amateur in ContrastLogits. Finite, not
	// negative. The other form has none.
	Beta float64

	// AmateurTemperature divides the logits of the amateurs. Finite, 1e-5 or
	// more; 0 means 1.
	AmateurTemperature float64
}

// Check returns an error that names the first setting out of range.
func (c Contrast) Check() error {
	switch {
	case c.Form != ContrastLogProbs && c.Form != ContrastLogits:
		return badValue("the form of contrast", int(c.Form), "ContrastLogProbs or ContrastLogits")
	case !(c.Alpha >= 0 && c.Alpha <= 1):
		return badValue("the alpha of contrast", c.Alpha, "0 to 1")
	case !(c.Beta >= 0 && finite(c.Beta)):
		return badValue("the beta of contrast", c.Beta, "a finite number, 0 or more")
	case c.AmateurTemperature != 0 && !(c.AmateurTemperature >= greedyBelow && finite(c.AmateurTemperature)):
		return badValue("the temperature of the amateurs", c.AmateurTemperature, "a finite number, 1e-05 or more, or 0, which means 1")
	}
	return nil
}

// Logits makes dst the contrast of the expert's logits with those of the
// amateurs, from the same history and vocabulary. Tokens that Alpha does not
// keep have -Inf. dst may be the expert's row.
//
// Without amateurs, and with Beta 0 in ContrastLogits, only Alpha acts. A token
// that an amateur bans has +Inf, a row with NaN gives NaN: a [Sampler] reports
// both. Logits panics if the rows differ in length or [Contrast.Check] fails.
func (c Contrast) Logits(dst, expert []float32, amateurs ...[]float32) {
	if c.Check() != nil {
		panic("sampler: contrast with a setting out of range")
	}
	if len(dst) != len(expert) || slices.ContainsFunc(amateurs, func(a []float32) bool { return len(a) != len(expert) }) {
		panic("sampler: rows of different lengths")
	}
	inv := 1.0
	if c.AmateurTemperature > 0 {
		inv = 1 / c.AmateurTemperature
	}
	bound := float64(maxLogit(expert)) + math.Log(c.Alpha)
	own, other := 1.0, 0.0 // weights of the expert and of each amateur
	norm := 0.0            // taken from every result
	if len(amateurs) > 0 && c.Form == ContrastLogits {
		own, other = 1+c.Beta*float64(len(amateurs)), c.Beta
	} else if len(amateurs) > 0 {
		other = 1 / float64(len(amateurs))
		norm = LogSumExp(expert)
		for _, a := range amateurs {
			norm -= other * logSumExp(a, inv)
		}
	}
	for i, e := range expert {
		if float64(e) < bound || e == negInf {
			dst[i] = negInf
			continue
		}
		sum := 0.0
		if other > 0 {
			for _, a := range amateurs {
				sum += float64(a[i])
			}
		}
		dst[i] = float32(own*float64(e) - other*inv*sum - norm)
	}
}
