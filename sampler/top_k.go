package sampler

import "strconv"

// topK keeps the k most likely tokens.
type topK struct{ k int }

func newTopK(c *Config) (Step, error) {
	if c.TopK <= 0 {
		return nil, nil
	}
	return topK{max(c.TopK, c.MinKeep)}, nil
}

func (f topK) Apply(c *Candidates, _ []int32) error {
	c.KeepTop(f.k)
	return nil
}

func (f topK) String() string { return strconv.Itoa(f.k) }
