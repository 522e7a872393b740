package sampler

import (
	"fmt"
	"math"
	"strconv"
)

// temperature divides the logits; candidates keep it as a number of its own.
type temperature float64

// greedyBelow is where a temperature counts as 0. One logit then beats
// another that is lower by a thousandth e^100 times as often.
const greedyBelow = 1e-5

func newTemperature(c *Config) (Step, error) {
	exponent := c.DynTempExponent
	if exponent == 0 {
		exponent = 1
	}
	switch {
	case !(c.Temperature >= 0 && finite(c.Temperature)):
		return nil, badValue("the temperature", c.Temperature, "a finite number, 0 (greedy) or more")
	case !(c.DynTempRange >= 0 && finite(c.Temperature+c.DynTempRange)):
		return nil, badValue("the range of the dynamic temperature", c.DynTempRange, "a finite number, 0 or more")
	case !(exponent > 0 && finite(exponent)):
		return nil, badValue("the exponent of the dynamic temperature", exponent, "a finite number above 0")
	case c.DynTempRange > 0:
		return dynamicTemperature{c.Temperature, c.DynTempRange, exponent}, nil
	case c.Temperature == 1:
		return nil, nil
	}
	return temperature(c.Temperature), nil
}

// greedy reports whether the temperature leaves one token: then it is a filter,
// and does not only scale.
func (t temperature) greedy() bool { return t < greedyBelow }

func (t temperature) Apply(c *Candidates, _ []int32) error {
	if t.greedy() {
		c.KeepTop(1)
	} else {
		c.temp *= float64(t)
	}
	return nil
}

func (t temperature) String() string { return strconv.FormatFloat(float64(t), 'g', -1, 64) }

// dynamicTemperature is a temperature that rises with the entropy of the
// candidates, from range below to range above (kalomaze's; llama.cpp's
// temp_ext, but that banned tokens do not count among the candidates).
type dynamicTemperature struct{ temp, spread, exponent float64 }

func (t dynamicTemperature) Apply(c *Candidates, history []int32) error {
	s, n := c.spread(), c.count()
	if n <= 1 {
		return nil
	}
	low, high := max(0, t.temp-t.spread), t.temp+t.spread
	flatness := max(0, s.entropy()/math.Log(float64(n)))
	return temperature(low+(high-low)*math.Pow(flatness, t.exponent)).Apply(c, history)
}

func (t dynamicTemperature) String() string {
	return fmt.Sprintf("%v, range %v, exponent %v", t.temp, t.spread, t.exponent)
}
