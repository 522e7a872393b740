package sampler

import (
	"math"
	"strconv"
)

// topK keeps the k most likely tokens.
type topK struct{ k int }

// topShare keeps that share of the vocabulary, rounded up.
type topShare struct {
	share float64
	least int
}

func newTopK(c *Config) (Step, error) {
	switch {
	case !(c.TopKShare >= 0 && c.TopKShare <= 1):
		return nil, badValue("the share of top-k", c.TopKShare, "0 to 1")
	case c.TopKShare > 0 && c.TopK > 0:
		return nil, badValue("the share of top-k", c.TopKShare, "0, since top-k is set as a number")
	case c.TopK > 0:
		return topK{max(c.TopK, c.MinKeep)}, nil
	case c.TopKShare > 0 && c.TopKShare < 1:
		return topShare{c.TopKShare, c.MinKeep}, nil
	}
	return nil, nil
}

func (f topK) Apply(c *Candidates, _ []int32) error {
	c.KeepTop(f.k)
	return nil
}

func (f topK) String() string { return strconv.Itoa(f.k) }

func (f topShare) Apply(c *Candidates, _ []int32) error {
	k := int(math.Ceil(f.share * float64(len(c.row))))
	c.KeepTop(max(1, k, f.least))
	return nil
}

func (f topShare) String() string {
	return strconv.FormatFloat(f.share, 'g', -1, 64) + " of the vocabulary"
}
