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
	if c.listed {
		c.KeepTop(max(c.reach(f.p), f.least))
		return nil
	}
	s := c.spread()
	if c.err != nil {
		return nil
	}
	z := zone{spread: s, centre: s.top, mass: f.p * s.mass}
	if enough, few, rest := c.listFew(z.mass); !enough {
		if rest > 0 && f.least <= len(c.list) && c.cutTo(z, few, rest) {
			return nil
		}
		c.listMass(z.mass)
	}
	c.Sort()
	c.weigh()
	n := prefix(c.weights, z.mass)
	if n < f.least {
		c.listed = false // the row still has them all
	}
	c.KeepTop(max(n, f.least))
	return nil
}

func (f topP) String() string { return strconv.FormatFloat(f.p, 'g', -1, 64) }
