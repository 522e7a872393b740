package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sortes-llm/sortes/sampler"
)

// A filter is one of those that --samplers puts in order.
type filter struct {
	name   string
	letter rune     // of --sampler-seq: llama.cpp's, or one that it does not use
	alias  []string // other names

	// strength are the flags that switch it on; without is what a notice says
	// of its other flags while all of these are off.
	strength []strength
	others   []string
	without  string

	// cuts says that it removes tokens, and never the most likely one.
	cuts bool
	off  func(c *sampler.Config)
}

// A strength is a flag, and whether its value is another than off.
type strength struct {
	flag string
	isOn func(c *sampler.Config) bool
}

// filters holds all of them in the default order, which is that of llama.cpp
// with ours among its.
var filters = []filter{
	{name: "logit_bias", letter: 'b', alias: []string{"logit-bias"},
		strength: []strength{
			{"--logit-bias", func(c *sampler.Config) bool { return len(c.LogitBias) > 0 }},
			{"--suppress", func(c *sampler.Config) bool { return len(c.Suppress) > 0 }},
		}},
	{name: "min_length", letter: 'l', alias: []string{"min-length"},
		strength: []strength{{"--min-tokens", func(c *sampler.Config) bool { return c.MinLength > 0 }}}},
	{name: "no_repeat_ngram", letter: 'n', alias: []string{"no-repeat-ngram"},
		strength: []strength{{"--no-repeat-ngram", func(c *sampler.Config) bool { return c.NoRepeatNGram > 0 }}}},
	{name: "penalties", letter: 'e',
		strength: []strength{
			{"--repeat-penalty", func(c *sampler.Config) bool { return c.RepeatPenalty != 1 }},
			{"--presence-penalty", func(c *sampler.Config) bool { return c.PresencePenalty != 0 }},
			{"--frequency-penalty", func(c *sampler.Config) bool { return c.FrequencyPenalty != 0 }},
		},
		others: []string{"--repeat-last-n", "--penalty-exempt", "--penalty-prompt"}, without: "while all penalties are off",
		off: func(c *sampler.Config) { c.RepeatPenalty, c.PresencePenalty, c.FrequencyPenalty = 1, 0, 0 }},
	{name: "dry", letter: 'd',
		strength: []strength{{"--dry-multiplier", func(c *sampler.Config) bool { return c.DRYMultiplier > 0 }}},
		others:   []string{"--dry-base", "--dry-allowed-length", "--dry-penalty-last-n", "--dry-sequence-breaker"}, without: "without --dry-multiplier",
		off: func(c *sampler.Config) { c.DRYMultiplier = 0 }},
	{name: "top_n_sigma", letter: 's', alias: []string{"top-n-sigma", "top-nsigma"}, cuts: true,
		strength: []strength{{"--top-nsigma", func(c *sampler.Config) bool { return c.TopNSigma > 0 }}},
		off:      func(c *sampler.Config) { c.TopNSigma = 0 }},
	{name: "top_k", letter: 'k', alias: []string{"top-k", "topk"}, cuts: true,
		strength: []strength{
			{"--top-k", func(c *sampler.Config) bool { return c.TopK > 0 }},
			{"--top-k-frac", func(c *sampler.Config) bool { return c.TopKShare > 0 }},
		},
		off: func(c *sampler.Config) { c.TopK, c.TopKShare = 0, 0 }},
	{name: "typ_p", letter: 'y', alias: []string{"typ-p", "typ", "typical", "typical-p"},
		strength: []strength{{"--typical", func(c *sampler.Config) bool { return c.TypicalP < 1 }}},
		off:      func(c *sampler.Config) { c.TypicalP = 1 }},
	{name: "epsilon", letter: 'c', alias: []string{"epsilon-cutoff"}, cuts: true,
		strength: []strength{{"--epsilon-cutoff", func(c *sampler.Config) bool { return c.Epsilon > 0 }}},
		off:      func(c *sampler.Config) { c.Epsilon = 0 }},
	{name: "eta", letter: 'h', alias: []string{"eta-cutoff"}, cuts: true,
		strength: []strength{{"--eta-cutoff", func(c *sampler.Config) bool { return c.Eta > 0 }}},
		off:      func(c *sampler.Config) { c.Eta = 0 }},
	{name: "tfs", letter: 'f', alias: []string{"tfs_z", "tfs-z"}, cuts: true,
		strength: []strength{{"--tfs", func(c *sampler.Config) bool { return c.TailFreeZ < 1 }}},
		off:      func(c *sampler.Config) { c.TailFreeZ = 1 }},
	{name: "top_a", letter: 'o', alias: []string{"top-a"}, cuts: true,
		strength: []strength{{"--top-a", func(c *sampler.Config) bool { return c.TopA > 0 }}},
		others:   []string{"--top-a-power"}, without: "without --top-a",
		off: func(c *sampler.Config) { c.TopA = 0 }},
	{name: "top_p", letter: 'p', alias: []string{"top-p", "topp", "nucleus"}, cuts: true,
		strength: []strength{{"--top-p", func(c *sampler.Config) bool { return c.TopP < 1 }}},
		off:      func(c *sampler.Config) { c.TopP = 1 }},
	{name: "min_p", letter: 'm', alias: []string{"min-p", "minp"}, cuts: true,
		strength: []strength{{"--min-p", func(c *sampler.Config) bool { return c.MinP > 0 }}},
		off:      func(c *sampler.Config) { c.MinP = 0 }},
	{name: "xtc", letter: 'x',
		strength: []strength{{"--xtc-probability", func(c *sampler.Config) bool { return c.XTCProbability > 0 }}},
		others:   []string{"--xtc-threshold", "--xtc-exempt"}, without: "without --xtc-probability",
		off: func(c *sampler.Config) { c.XTCProbability = 0 }},
	{name: "temperature", letter: 't', alias: []string{"temp"},
		strength: []strength{
			{"--temp", func(c *sampler.Config) bool { return c.Temperature != 1 }},
			{"--dynatemp-range", func(c *sampler.Config) bool { return c.DynTempRange > 0 }},
		},
		off: func(c *sampler.Config) { c.Temperature, c.DynTempRange = 1, 0 }},
	{name: "adaptive_p", letter: 'a', alias: []string{"adaptive-p"},
		strength: []strength{{"--adaptive-target", func(c *sampler.Config) bool { return c.AdaptiveTarget >= 0 }}},
		others:   []string{"--adaptive-decay"}, without: "without --adaptive-target",
		off: func(c *sampler.Config) { c.AdaptiveTarget = -1 }},
}

// bans are the filters that need no place in --samplers: where they have none
// they come first, as llama.cpp's logit bias does.
var bans = []string{"logit_bias", "min_length", "no_repeat_ngram"}

// defaultSamplers is what --samplers is without the flag.
func defaultSamplers() []string {
	var names []string
	for _, f := range filters[len(bans):] {
		names = append(names, f.name)
	}
	return names
}

func letterNames() string {
	var names []string
	for _, f := range filters {
		names = append(names, string(f.letter)+" "+f.name)
	}
	return strings.Join(names, ", ")
}

func filterNames() string {
	return strings.Join(slices.Concat(bans, defaultSamplers()), ", ")
}

// findFilter returns the filter that a name or an alias calls so.
func findFilter(text string) *filter {
	text = strings.ToLower(strings.TrimSpace(text))
	for i := range filters {
		if f := &filters[i]; f.name == text || slices.Contains(f.alias, text) {
			return f
		}
	}
	return nil
}

const noInfill = "gen has no infill filter: leave it out"

func samplersValue(p *[]string) value {
	return value{
		set: func(text string) error {
			names := []string{}
			for _, item := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' }) {
				f := findFilter(item)
				switch {
				case strings.TrimSpace(item) == "infill":
					return errors.New(noInfill)
				case f == nil || slices.Contains(names, f.name):
					return fmt.Errorf("want each at most once of %s, separated by semicolons", filterNames())
				}
				names = append(names, f.name)
			}
			*p = names
			return nil
		},
		get: func() string { return strings.Join(*p, ";") },
	}
}

// samplerLetters turns the letters of --sampler-seq into names.
func samplerLetters(text string) (string, error) {
	var names []string
	for _, letter := range text {
		i := slices.IndexFunc(filters, func(f filter) bool { return f.letter == letter })
		switch {
		case letter == 'i':
			return "", errors.New(noInfill)
		case i < 0:
			return "", fmt.Errorf("want letters of %s", letterNames())
		}
		names = append(names, filters[i].name)
	}
	return strings.Join(names, ";"), nil
}
