package sampler

import (
	"fmt"
	"math"
)

// topA keeps the tokens whose probability is at least ratio times a power,
// the second by default, of the highest (BlinkDL's RWKV-LM; x-transformers'
// top_a): the surer the model, the fewer. Equality stays.
type topA struct {
	ratio, power float64
	least        int
}

func newTopA(c *Config) (Step, error) {
	f := topA{c.TopA, c.TopAPower, max(1, c.MinKeep)}
	if f.power == 0 {
		f.power = 2
	}
	switch {
	case !(f.ratio >= 0 && finite(f.ratio)):
		return nil, badValue("top-a", f.ratio, "a finite number, 0 or more")
	case !(f.power > 0 && finite(f.power)):
		return nil, badValue("the power of top-a", f.power, "a finite number above 0")
	case f.ratio == 0:
		return nil, nil
	}
	return f, nil
}

func (f topA) Apply(c *Candidates, _ []int32) error {
	s := c.spread()
	// The highest probability is 1/mass.
	c.keepProb(math.Log(f.ratio)-f.power*math.Log(s.mass), s, f.least)
	return nil
}

func (f topA) String() string { return fmt.Sprintf("%v, power %v", f.ratio, f.power) }
