package sampler

import (
	"math"
	"strconv"
)

// eta is epsilon with a bound that falls where the model is unsure: the
// smaller of epsilon and sqrt(epsilon) * exp(-entropy) (Hewitt, Manning, Liang
// 2022, arXiv:2210.15191).
type eta struct {
	epsilon float64
	least   int
}

func newEta(c *Config) (Step, error) {
	if !(c.Eta >= 0 && c.Eta < 1) {
		return nil, badValue("eta", c.Eta, "0 to below 1")
	}
	if c.Eta == 0 {
		return nil, nil
	}
	return eta{c.Eta, max(1, c.MinKeep)}, nil
}

func (f eta) Apply(c *Candidates, _ []int32) error {
	s := c.spread()
	log := math.Log(f.epsilon)
	c.keepProb(min(log, log/2-s.entropy()), s, f.least)
	return nil
}

func (f eta) String() string { return strconv.FormatFloat(f.epsilon, 'g', -1, 64) }
