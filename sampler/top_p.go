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
	wasRow, total := !c.listed, 0.0
	if wasRow {
		total = c.listMass(f.p)
	}
	c.Sort()
	listed := c.weigh()
	if !wasRow {
		total = listed
	}
	n := prefix(c.weights, f.p*total)
	if n < f.least && wasRow {
		c.listed = false // the row still has them all
	}
	c.KeepTop(max(n, f.least))
	return nil
}

// prefix returns how many of the weights it takes to reach the mass.
func prefix(weights []float64, mass float64) int {
	sum := 0.0
	for i, w := range weights {
		if sum >= mass {
			return i
		}
		sum += w
	}
	return len(weights)
}

func (f topP) String() string { return strconv.FormatFloat(f.p, 'g', -1, 64) }
