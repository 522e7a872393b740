package sampler

import (
	"math"
	"strconv"
)

// minP keeps the tokens that are at least p times as likely as the most likely
// one (Nguyen et al. 2024, arXiv:2407.01082). As logits: none below
// max + ln p. Equality stays.
type minP struct {
	p     float64
	least int
}

func newMinP(c *Config) (Step, error) {
	if !(c.MinP >= 0 && c.MinP <= 1) {
		return nil, badValue("min-p", c.MinP, "0 to 1")
	}
	if c.MinP == 0 {
		return nil, nil
	}
	return minP{c.MinP, c.MinKeep}, nil
}

func (f minP) Apply(c *Candidates, _ []int32) error {
	c.keepAbove(float64(c.Max())+c.temp*math.Log(f.p), f.least)
	return nil
}

func (f minP) String() string { return strconv.FormatFloat(f.p, 'g', -1, 64) }
