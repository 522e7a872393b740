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
	if !c.listed && f.least == 1 {
		f.listNear(c, s)
	}
	c.Sort()
	lo, hi := f.choose(c, s)
	c.list = append(c.list[:0], c.list[lo:hi]...) // a slice of it would lose what is before
	return nil
}

// choose moves the tokens to keep to one place in the sorted list, and returns
// that place. Surprise and entropy are depth and mean depth plus the same
// number. In the order of the list the depth rises, so the nearest tokens are
// those around one place: from there the walk goes up and down by turns.
func (f typical) choose(c *Candidates, s spread) (lo, hi int) {
	c.weigh()
	mass := s.mass * f.p
	depth := func(i int) float64 { return s.top - float64(c.list[i].Logit) }
	for hi < len(c.list) && depth(hi) < s.depth {
		hi++
	}
	lo = hi // list[lo:hi] is kept
	sum, n := 0.0, 0
	for enough := false; !enough && (lo > 0 || hi < len(c.list)); {
		if lo == 0 || hi < len(c.list) && depth(hi)-s.depth < s.depth-depth(lo-1) {
			sum += c.weights[hi]
			hi++
			n++
			enough = sum > mass && n >= f.least
			continue
		}
		// Of equal depths the first come first, though the walk goes up.
		first := lo - 1
		for first > 0 && depth(first-1) == depth(first) {
			first--
		}
		i := first
		for ; i < lo && !enough; i++ {
			sum += c.weights[i]
			n++
			enough = sum > mass && n >= f.least
		}
		copy(c.list[first+lo-i:], c.list[first:i]) // next to what is kept below
		lo = first + lo - i
	}
	return lo, hi
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
