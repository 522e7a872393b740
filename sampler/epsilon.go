package sampler

import (
	"math"
	"strconv"
)

// epsilon keeps the tokens whose probability is at least p (Hewitt, Manning,
// Liang 2022, arXiv:2210.15191, who drop equality; it stays here, as in HF
// transformers).
type epsilon struct {
	p     float64
	least int
}

func newEpsilon(c *Config) (Step, error) {
	if !(c.Epsilon >= 0 && c.Epsilon < 1) {
		return nil, badValue("epsilon", c.Epsilon, "0 to below 1")
	}
	if c.Epsilon == 0 {
		return nil, nil
	}
	return epsilon{c.Epsilon, max(1, c.MinKeep)}, nil
}

func (f epsilon) Apply(c *Candidates, _ []int32) error {
	c.keepProb(math.Log(f.p), c.spread(), f.least)
	return nil
}

func (f epsilon) String() string { return strconv.FormatFloat(f.p, 'g', -1, 64) }
