package sampler

import (
	"slices"
	"strconv"
)

// noRepeatNGram bans every token that would end an n-gram which the history,
// prompt included, already holds (Paulus et al. 2017, arXiv:1705.04304; HF
// transformers' no_repeat_ngram_size).
type noRepeatNGram struct{ n int }

func newNoRepeatNGram(c *Config) (Step, error) {
	if c.NoRepeatNGram < 0 {
		return nil, badValue("no-repeat-ngram", c.NoRepeatNGram, "0 or more tokens")
	}
	if c.NoRepeatNGram == 0 {
		return nil, nil
	}
	return noRepeatNGram{c.NoRepeatNGram}, nil
}

func (f noRepeatNGram) Apply(c *Candidates, history []int32) error {
	head := f.n - 1
	if len(history) < head {
		return nil
	}
	last := history[len(history)-head:]
	for i := range len(history) - head {
		if slices.Equal(history[i:i+head], last) {
			c.SetLogit(history[i+head], negInf)
		}
	}
	return nil
}

func (f noRepeatNGram) String() string { return strconv.Itoa(f.n) }
