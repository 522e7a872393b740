package sampler

import (
	"fmt"
	"slices"
)

// minLength bans the tokens that end a text until enough have been generated.
// The prompt does not count.
type minLength struct {
	n, prompt int
	ends      []int32
}

func newMinLength(c *Config) (Step, error) {
	f := minLength{c.MinLength, c.PromptLen, slices.Clone(c.EndTokens)}
	switch {
	case f.n < 0:
		return nil, badValue("the minimum length", f.n, "0 or more tokens")
	case f.n == 0:
		return nil, nil
	case len(f.ends) == 0:
		return nil, badValue("the minimum length", f.n, "0, since no end token is set")
	case slices.Min(f.ends) < 0:
		return nil, badValue("an end token", slices.Min(f.ends), "0 or more")
	}
	return f, nil
}

func (f minLength) Apply(c *Candidates, history []int32) error {
	if len(history)-f.prompt >= f.n {
		return nil
	}
	for _, token := range f.ends {
		if err := c.has(token); err != nil {
			return err
		}
		c.SetLogit(token, negInf)
	}
	return nil
}

func (f minLength) String() string { return fmt.Sprintf("%d tokens", f.n) }
