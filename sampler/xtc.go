package sampler

import (
	"errors"
	"fmt"
	"slices"
)

// xtc removes, at some steps, all but the least likely of the tokens that
// reach a probability ("exclude top choices", p-e-w; llama.cpp's sampler of
// that name). Exempt tokens stay.
type xtc struct {
	probability, threshold float64
	exempt                 []int32
	least                  int
}

func newXTC(c *Config) (Step, error) {
	f := xtc{c.XTCProbability, c.XTCThreshold, slices.Clone(c.XTCExempt), c.MinKeep}
	switch {
	case !(f.probability >= 0 && f.probability <= 1):
		return nil, badValue("the XTC probability", f.probability, "0 to 1")
	case !(f.threshold >= 0 && f.threshold <= 1):
		return nil, badValue("the XTC threshold", f.threshold, "0 to 1")
	case f.probability == 0:
		return nil, nil
	case f.threshold == 0:
		return nil, badValue("the XTC threshold", f.threshold, "above 0 to 1, since the XTC probability is set")
	}
	return f, nil
}

var errNoDraw = errors.New("what it removes depends on the draw: DistAt and Pick name one, Dist does not")

func (f xtc) Apply(c *Candidates, _ []int32) error {
	if !c.placed {
		return errNoDraw
	}
	if c.coin() > f.probability {
		return nil
	}
	c.Sort()
	bound, n := f.threshold*c.weigh(), 0
	for n < len(c.list) && c.weights[n] >= bound {
		n++
	}
	last := n - 1 // the least likely that reaches the threshold
	if last <= 0 || len(c.list)-last < f.least {
		return nil
	}
	i := 0
	c.list = slices.DeleteFunc(c.list, func(x Candidate) bool {
		i++
		return i <= last && !slices.Contains(f.exempt, x.ID)
	})
	return nil
}

func (f xtc) String() string {
	text := fmt.Sprintf("probability %v, threshold %v", f.probability, f.threshold)
	if len(f.exempt) > 0 {
		text += fmt.Sprintf(", exempt tokens: %d", len(f.exempt))
	}
	return text
}
