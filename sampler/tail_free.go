package sampler

import (
	"math"
	"strconv"
)

// tailFree cuts where the curve of sorted probabilities flattens: where the
// absolute second differences, made to sum to 1, exceed z together (Bricken
// 2019; llama.cpp's sampler of that name, which it has dropped). The token
// where they do goes.
type tailFree struct {
	z     float64
	least int
}

func newTailFree(c *Config) (Step, error) {
	if !(c.TailFreeZ >= 0 && c.TailFreeZ <= 1) {
		return nil, badValue("tail-free z", c.TailFreeZ, "0 to 1")
	}
	if c.TailFreeZ == 0 || c.TailFreeZ == 1 {
		return nil, nil
	}
	return tailFree{c.TailFreeZ, max(1, c.MinKeep)}, nil
}

func (f tailFree) Apply(c *Candidates, _ []int32) error {
	c.Sort()
	mass, n := c.weigh(), len(c.list)-2
	if n <= 0 {
		return nil
	}
	p := c.weights
	total := 0.0
	for i := range n {
		p[i] = math.Abs(p[i]-2*p[i+1]+p[i+2]) / mass
		total += p[i]
	}
	flat := total <= 1e-6
	if flat {
		total = float64(n)
	}
	sum := 0.0
	for i := range n {
		if flat {
			sum += 1 / total
		} else {
			sum += p[i] / total
		}
		if sum > f.z && i >= f.least {
			c.KeepTop(i)
			break
		}
	}
	return nil
}

func (f tailFree) String() string { return strconv.FormatFloat(f.z, 'g', -1, 64) }
