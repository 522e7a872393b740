package sampler

import (
	"fmt"
	"slices"
)

// penalties lowers the logits of the tokens in the last part of the history.
// As in llama.cpp the prompt counts, unless it is to be skipped.
type penalties struct {
	repeat, frequency, presence float64
	lastN                       int
	skip                        int // tokens at the head of the history that do not count
	exempt                      []int32
}

func newPenalties(c *Config) (Step, error) {
	f := penalties{
		repeat: c.RepeatPenalty, frequency: c.FrequencyPenalty, presence: c.PresencePenalty,
		lastN: c.PenaltyLastN, exempt: slices.Clone(c.PenaltyExempt),
	}
	if c.PenaltySkipPrompt {
		f.skip = c.PromptLen
	}
	if f.repeat == 0 {
		f.repeat = 1
	}
	switch {
	case !(f.repeat > 0 && finite(f.repeat) && finite(1/f.repeat)):
		return nil, badValue("the repeat penalty", c.RepeatPenalty, "a finite number above 0")
	case !finite(f.frequency):
		return nil, badValue("the frequency penalty", f.frequency, "a finite number")
	case !finite(f.presence):
		return nil, badValue("the presence penalty", f.presence, "a finite number")
	case f.lastN < 0:
		return nil, badValue("the penalty window", f.lastN, "0 or more tokens")
	case f.repeat == 1 && f.frequency == 0 && f.presence == 0:
		return nil, nil
	case f.lastN == 0:
		return nil, badValue("the penalty window", f.lastN, "1 token or more, since a penalty is set")
	}
	return f, nil
}

func (f penalties) Apply(c *Candidates, history []int32) error {
	from := max(len(history)-f.lastN, min(f.skip, len(history)), 0)
	c.countWindow(history[from:])
	for _, token := range c.window {
		count := float64(c.counts[token])
		c.counts[token] = 0
		logit, ok := c.Logit(token)
		if !ok || slices.Contains(f.exempt, token) {
			continue
		}
		l := float64(logit)
		if l <= 0 { // dividing would raise it
			l *= f.repeat
		} else {
			l /= f.repeat
		}
		l -= (count*f.frequency + f.presence) * c.temp
		c.SetLogit(token, float32(l))
	}
	return nil
}

// countWindow sets c.window to the distinct tokens of a part of the history
// and c.counts to their numbers. Tokens outside the vocabulary can not be
// drawn and do not count.
func (c *Candidates) countWindow(history []int32) {
	c.counts = slices.Grow(c.counts[:0], len(c.row))[:len(c.row)]
	c.window = c.window[:0]
	for _, token := range history {
		if uint(token) >= uint(len(c.counts)) {
			continue
		}
		if c.counts[token] == 0 {
			c.window = append(c.window, token)
		}
		c.counts[token]++
	}
}

func (f penalties) String() string {
	text := fmt.Sprintf("repeat %v, frequency %v, presence %v, last %d", f.repeat, f.frequency, f.presence, f.lastN)
	if f.skip > 0 {
		text += ", without the prompt"
	}
	if len(f.exempt) > 0 {
		text += fmt.Sprintf(", exempt tokens: %d", len(f.exempt))
	}
	return text
}
