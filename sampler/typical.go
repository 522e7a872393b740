package sampler

import (
	"math"
	"strconv"
)

// typical keeps the tokens whose surprise is nearest to the entropy until
// they exceed probability p together: locally typical sampling (Meister et al.
// 2022, arXiv:2202.00666). The token that crosses p stays. The most likely
// token may go.
type typical struct {
	p     float64
	least int
}

func newTypical(c *Config) (Step, error) {
	if !(c.TypicalP >= 0 && c.TypicalP <= 1) {
		return nil, badValue("typical-p", c.TypicalP, "0 to 1")
	}
	if c.TypicalP == 0 || c.TypicalP == 1 {
		return nil, nil
	}
	return typical{c.TypicalP, max(1, c.MinKeep)}, nil
}

func (f typical) Apply(c *Candidates, _ []int32) error {
	s := c.spread()
	if c.err != nil {
		return nil
	}
	z := zone{spread: s, centre: s.top - s.depth, mass: f.p * s.mass, exceed: true}
	if !c.listed && f.least == 1 {
		if _, few, rest := c.listFew(math.Inf(1)); rest > 0 && c.cutTo(z, few, rest) {
			return nil
		}
		f.listNear(c, s)
	}
	c.Sort()
	lo, hi, _ := c.nearest(z, 0, 0, f.least)
	c.list = append(c.list[:0], c.list[lo:hi]...) // a slice of it would lose what is before
	return nil
}

// listNear makes the list from the most likely tokens of a row, down to where
// those within one distance of the mean depth exceed p.
func (f typical) listNear(c *Candidates, s spread) {
	const width = math.Ln2 / depthsPerBit
	var mass depths
	massByDepth(c.row, float32(s.top), s.inv, &mass)
	mean := s.depth * s.inv / width // all in entries of the histogram
	for r := 1.0; mean+r < float64(len(mass)); r++ {
		sum := 0.0
		for d, w := range mass {
			if float64(d) > mean-r+.01 && float64(d+1) < mean+r-.01 {
				sum += w
			}
		}
		if sum > f.p*s.mass*(1+1e-9) {
			c.listAbove(s.top - (mean+r)*width*c.temp)
			return
		}
	}
	c.expand()
}

func (f typical) String() string { return strconv.FormatFloat(f.p, 'g', -1, 64) }
