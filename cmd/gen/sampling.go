package main

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/sampler"
)

// filters are the filters that --samplers puts in order, with llama.cpp's
// letters and other names for them, and the flags that set their strength,
// each with the value that switches it off.
var filters = []struct {
	name   string
	letter rune
	alias  []string
	flags  map[string]string
}{
	{"penalties", 'e', nil, map[string]string{"--repeat-penalty": "1", "--presence-penalty": "0", "--frequency-penalty": "0", "--repeat-last-n": "0"}},
	{"top_k", 'k', []string{"top-k", "topk"}, map[string]string{"--top-k": "0"}},
	{"top_p", 'p', []string{"top-p", "topp", "nucleus"}, map[string]string{"--top-p": "1"}},
	{"min_p", 'm', []string{"min-p", "minp"}, map[string]string{"--min-p": "0"}},
	{"temperature", 't', []string{"temp"}, map[string]string{"--temp": "1"}},
}

func samplerNames() []string {
	var names []string
	for _, f := range filters {
		names = append(names, f.name)
	}
	return names
}

func letterNames() []string {
	var names []string
	for _, f := range filters {
		names = append(names, string(f.letter)+" "+f.name)
	}
	return names
}

// filterName returns the name of the filter that text calls so.
func filterName(text string) (string, bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	for _, f := range filters {
		if f.name == text || slices.Contains(f.alias, text) {
			return f.name, true
		}
	}
	return "", false
}

func samplersValue(p *[]string) value {
	return value{
		set: func(text string) error {
			names := []string{}
			for _, item := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' }) {
				name, ok := filterName(item)
				if !ok || slices.Contains(names, name) {
					return fmt.Errorf("want each at most once of %s, separated by semicolons", strings.Join(samplerNames(), ", "))
				}
				names = append(names, name)
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
		for _, f := range filters {
			if f.letter == letter {
				names = append(names, f.name)
			}
		}
	}
	if len(names) != len([]rune(text)) {
		return "", fmt.Errorf("want letters of %s", strings.Join(letterNames(), ", "))
	}
	return strings.Join(names, ";"), nil
}

// useModelSampling takes the model's own recommendations for what the user has
// not set (llama.cpp's common_init_sampler_from_model).
func (o *options) useModelSampling(m *llama.Model) error {
	known := map[string]bool{}
	for _, s := range o.settings {
		if s.meta == "" {
			continue
		}
		known[s.meta] = true
		text, ok := m.Meta(s.meta)
		if !ok {
			continue
		}
		if s.meta == "general.sampling.sequence" {
			text = o.knownFilters(text)
		}
		if err := s.assign(text, fromModel); err != nil {
			return fmt.Errorf("%s: the model's %s is %s: %w; %s overrides it", o.model, s.meta, text, err, s.name())
		}
	}
	for _, kv := range m.Metadata() {
		if strings.HasPrefix(kv.Key, "general.sampling.") && !known[kv.Key] {
			o.notef("the model's %s %s has no effect: gen does not have it yet", kv.Key, kv.Value)
		}
	}
	return nil
}

// knownFilters drops from a model's sequence what does not exist here.
func (o *options) knownFilters(sequence string) string {
	var names, missing []string
	for item := range strings.SplitSeq(sequence, ";") {
		if name, ok := filterName(item); ok {
			names = append(names, name)
		} else if item != "" {
			missing = append(missing, item)
		}
	}
	if len(missing) > 0 {
		o.notef("the model's general.sampling.sequence names %s, which gen does not have yet", strings.Join(missing, ", "))
	}
	return strings.Join(names, ";")
}

// resolveSeed draws the seed where it is random.
func (o *options) resolveSeed() {
	if !o.random {
		return
	}
	// 32 bits are easier to type in again.
	o.seed, o.random = uint64(rand.Uint32N(randomSeed)), false
	o.find("--seed").note = "-1: drawn at random"
}

// samplerConfig makes the configuration of the sampler: filters that are not
// listed are off, and what must not be generated is banned.
func (o *options) samplerConfig(v *llama.Vocab) (sampler.Config, error) {
	c := o.sampling
	c.Order = append([]string{"logit_bias"}, o.samplers...)
	on := func(name string) bool { return slices.Contains(o.samplers, name) }
	if !on("penalties") || c.PenaltyLastN == 0 {
		c.RepeatPenalty, c.PresencePenalty, c.FrequencyPenalty = 1, 0, 0
	}
	if !on("top_k") {
		c.TopK = 0
	}
	switch {
	case !on("top_p"):
		c.TopP = 1
	case c.TopP == 0: // one token; in the sampler's configuration it means off
		c.TopK, c.TopP = 1, 1
		if !on("top_k") {
			c.Order[slices.Index(c.Order, "top_p")] = "top_k"
		}
	}
	if !on("min_p") {
		c.MinP = 0
	}
	if !on("temperature") {
		c.Temperature = 1
	}

	c.LogitBias = maps.Clone(c.LogitBias)
	for id := range c.LogitBias {
		if !v.Has(id) {
			return c, badUsage("--logit-bias %d: the vocabulary has %d tokens, 0 to %d", id, v.Size(), v.Size()-1)
		}
	}
	banned := v.Suppressed()
	if o.ignoreEOS {
		banned = append(banned, v.EndTokens()...)
	}
	for _, id := range banned {
		if c.LogitBias == nil {
			c.LogitBias = map[int32]float64{}
		}
		c.LogitBias[id] = math.Inf(-1)
	}
	_, err := sampler.New(c)
	return c, err
}

// noteIdleSampling names the sampling flags that change nothing.
func (o *options) noteIdleSampling() {
	greedy := o.sampling.Temperature == 0 && slices.Contains(o.samplers, "temperature")
	for _, f := range filters {
		for _, flag := range slices.Sorted(maps.Keys(f.flags)) {
			if o.find(flag).get() == f.flags[flag] {
				continue // switched off, as asked
			}
			switch {
			case !slices.Contains(o.samplers, f.name):
				o.noteIdle(flag, "without "+f.name+" among the samplers")
			case greedy && (f.name == "top_k" || f.name == "top_p" || f.name == "min_p"):
				o.noteIdle(flag, "at temperature 0, which takes the most likely token")
			case f.name != "penalties":
			case o.sampling.PenaltyLastN == 0:
				o.noteIdle(flag, "with --repeat-last-n 0")
			case o.sampling.RepeatPenalty == 1 && o.sampling.PresencePenalty == 0 && o.sampling.FrequencyPenalty == 0:
				o.noteIdle(flag, "while all penalties are off")
			}
		}
	}
	if greedy {
		o.noteIdle("--seed", "at temperature 0, which draws nothing")
	}
}
