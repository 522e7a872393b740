package sampler

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// logitBias adds a number to the logits of its tokens, sorted by token.
type logitBias []bias

type bias struct {
	token int32
	add   float64
}

func newLogitBias(c *Config) (Step, error) {
	var f logitBias
	for _, token := range slices.Sorted(maps.Keys(c.LogitBias)) {
		add := c.LogitBias[token]
		if token < 0 {
			return nil, badValue("a token of the logit bias", token, "0 or more")
		}
		if !(add <= math.MaxFloat32) {
			return nil, badValue(fmt.Sprintf("the logit bias of token %d", token), add, "a finite number or -Inf")
		}
		f = append(f, bias{token, add})
	}
	if len(f) == 0 {
		return nil, nil
	}
	return f, nil
}

func (f logitBias) Apply(c *Candidates, _ []int32) error {
	if last := f[len(f)-1].token; int(last) >= len(c.row) {
		return fmt.Errorf("token %d is outside the vocabulary of %d", last, len(c.row))
	}
	for _, b := range f {
		if logit, ok := c.Logit(b.token); ok {
			c.SetLogit(b.token, float32(float64(logit)+b.add*c.temp))
		}
	}
	return nil
}

func (f logitBias) String() string { return fmt.Sprintf("tokens: %d", len(f)) }
