package sampler

import "strconv"

// temperature divides the logits; candidates keep it as a number of its own.
type temperature float64

// greedyBelow is where a temperature counts as 0. One logit then beats
// another that is lower by a thousandth e^100 times as often.
const greedyBelow = 1e-5

func newTemperature(c *Config) (Step, error) {
	if !(c.Temperature >= 0 && finite(c.Temperature)) {
		return nil, badValue("the temperature", c.Temperature, "a finite number, 0 (greedy) or more")
	}
	if c.Temperature == 1 {
		return nil, nil
	}
	return temperature(c.Temperature), nil
}

func (t temperature) Apply(c *Candidates, _ []int32) error {
	if t < greedyBelow {
		c.KeepTop(1)
	} else {
		c.temp *= float64(t)
	}
	return nil
}

func (t temperature) String() string { return strconv.FormatFloat(float64(t), 'g', -1, 64) }
