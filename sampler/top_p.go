package sampler

import "strconv"

// topP keeps the shortest list of most likely tokens that reach probability p
// together: nucleus sampling (Holtzman et al. 2019, arXiv:1904.09751). The
// token that crosses p stays.
type topP struct {
	p     float64
	least int
}

func newTopP(c *Config) (Step, error) {
	if !(c.TopP >= 0 && c.TopP <= 1) {
		return nil, badValue("top-p", c.TopP, "0 to 1")
	}
	if c.TopP == 0 || c.TopP == 1 {
		return nil, nil
	}
	return topP{c.TopP, c.MinKeep}, nil
}

func (f topP) Apply(c *Candidates, _ []int32) error {
	wasRow := !c.listed
	n := c.reach(f.p)
	if n < f.least && wasRow {
		c.listed = false // the row still has them all
	}
	c.KeepTop(max(n, f.least))
	return nil
}

func (f topP) String() string { return strconv.FormatFloat(f.p, 'g', -1, 64) }
