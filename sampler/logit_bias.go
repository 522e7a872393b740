package sampler

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// logitBias adds a number to the logits of its tokens, sorted by token. What
// is suppressed has -Inf.
type logitBias []bias

type bias struct {
	token int32
	add   float64
}

func newLogitBias(c *Config) (Step, error) {
	bans := make(map[int32]bool, len(c.Suppress))
	for _, token := range c.Suppress {
		if token < 0 {
			return nil, badValue("a suppressed token", token, "0 or more")
		}
		bans[token] = true
	}
	var f logitBias
	for _, token := range slices.Sorted(maps.Keys(c.LogitBias)) {
		add := c.LogitBias[token]
		if token < 0 {
			return nil, badValue("a token of the logit bias", token, "0 or more")
		}
		if !(add <= math.MaxFloat32) {
			return nil, badValue(fmt.Sprintf("the logit bias of token %d", token), add, "a finite number or -Inf")
		}
		if !bans[token] {
			f = append(f, bias{token, add})
		}
	}
	for token := range bans {
		f = append(f, bias{token, math.Inf(-1)})
	}
	slices.SortFunc(f, func(a, b bias) int { return cmp.Compare(a.token, b.token) })
	if len(f) == 0 {
		return nil, nil
	}
	return f, nil
}

func (f logitBias) Apply(c *Candidates, _ []int32) error {
	if err := c.has(f[len(f)-1].token); err != nil {
		return err
	}
	for _, b := range f {
		if logit, ok := c.Logit(b.token); ok {
			c.SetLogit(b.token, float32(float64(logit)+b.add*c.temp))
		}
	}
	return nil
}

func (f logitBias) String() string { return fmt.Sprintf("tokens: %d", len(f)) }
