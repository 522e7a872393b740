package sampler

import (
	"fmt"
	"math"
	"slices"
)

// adaptiveP prefers tokens whose probability is near a target, which it shifts
// so that the mean over the tokens of the text, recent ones weighing more,
// comes out at the target (llama.cpp's llama_sampler_adaptive_p).
type adaptiveP struct {
	target, decay float64
	sum, weight   float64 // of the probabilities so far, each decayed
	offered
}

func newAdaptiveP(c *Config) (Step, error) {
	switch {
	case !(c.AdaptiveTarget <= 1):
		return nil, badValue("the adaptive-p target", c.AdaptiveTarget, "at most 1")
	case !(c.AdaptiveDecay >= 0 && c.AdaptiveDecay <= 0.99):
		return nil, badValue("the adaptive-p decay", c.AdaptiveDecay, "0 to 0.99")
	case c.AdaptiveTarget <= 0:
		return nil, nil
	}
	weight := 1 / (1 - c.AdaptiveDecay)
	return &adaptiveP{target: c.AdaptiveTarget, decay: c.AdaptiveDecay, sum: c.AdaptiveTarget * weight, weight: weight}, nil
}

func (f *adaptiveP) Apply(c *Candidates, _ []int32) error {
	c.Max() // finds bad logits
	if c.err != nil {
		return nil
	}
	f.hold(c)
	aim := min(max(2*f.target-f.sum/f.weight, 0), 1)
	if c.listed {
		for i, p := range f.probs {
			c.list[i].Logit = shift(p, aim)
		}
	} else {
		c.shifted = slices.Grow(c.shifted[:0], len(c.row))[:len(c.row)]
		for i, logit := range f.row {
			c.shifted[i] = negInf
			if logit > negInf {
				c.shifted[i] = shift(f.probOf(logit), aim)
			}
		}
		c.row = c.shifted
	}
	c.temp, c.sorted = 1, false
	return nil
}

// shift returns the logit that adaptive-p gives to a probability.
func shift(p, aim float64) float32 {
	const width, peak, sharpness = 0.3, 5, 10
	d := math.Abs(p-aim) / width
	return float32(peak - float64(sharpness*d*d/(1+d)))
}

// Accept adds the token's probability before the shift to the mean. A token
// that was not there changes nothing.
func (f *adaptiveP) Accept(token int32) {
	if p := f.take(token); p > 0 {
		f.sum = p + f.decay*f.sum
		f.weight = 1 + f.decay*f.weight
	}
}

func (f *adaptiveP) Clone() Stateful {
	n := *f
	n.offered = f.offered.clone()
	return &n
}

func (f *adaptiveP) String() string { return fmt.Sprintf("target %v, decay %v", f.target, f.decay) }
