package sampler

import (
	"fmt"
	"math"
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
	c.expand()
	if c.err != nil {
		return nil
	}
	f.hold(c)
	const width, peak, sharpness = 0.3, 5, 10
	aim := min(max(2*f.target-f.sum/f.weight, 0), 1)
	for i, p := range f.probs {
		d := math.Abs(p-aim) / width
		c.list[i].Logit = float32(peak - sharpness*d*d/(1+d))
	}
	c.temp, c.sorted = 1, false
	return nil
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
