package sampler

import (
	"math"
	"strconv"
)

// topNSigma keeps the tokens whose logit is at most n standard deviations
// below the highest (Tang et al. 2024, arXiv:2411.07641). Banned tokens have
// no part in the deviation. Equality stays.
type topNSigma struct {
	n     float64
	least int
}

func newTopNSigma(c *Config) (Step, error) {
	switch {
	case c.TopNSigma <= 0:
		return nil, nil
	case !finite(c.TopNSigma):
		return nil, badValue("top-n-sigma", c.TopNSigma, "a finite number")
	}
	return topNSigma{c.TopNSigma, c.MinKeep}, nil
}

func (f topNSigma) Apply(c *Candidates, _ []int32) error {
	top := float64(c.Max())
	n, sum, squares := 0.0, 0.0, 0.0
	add := func(logit float32) {
		depth := top - float64(logit)
		n++
		sum += depth
		squares += depth * depth
	}
	if c.listed {
		for _, x := range c.list {
			add(x.Logit)
		}
	} else {
		for _, v := range c.row {
			if v > negInf {
				add(v)
			}
		}
	}
	mean := sum / n
	sigma := math.Sqrt(max(0, squares/n-mean*mean))
	c.keepAbove(top-f.n*sigma, f.least)
	return nil
}

func (f topNSigma) String() string { return strconv.FormatFloat(f.n, 'g', -1, 64) }
