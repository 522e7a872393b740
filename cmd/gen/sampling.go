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
		if f := findFilter(item); f != nil {
			names = append(names, f.name)
		} else if item != "" {
			missing = append(missing, item)
		}
	}
	if len(missing) > 0 {
		o.notef("the model's general.sampling.sequence names %s, which gen does not have", strings.Join(missing, ", "))
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

// modelConfig is constrainedConfig after the settings have taken what the model
// recommends, and a seed where they have none.
func (o *options) modelConfig(m *llama.Model) (sampler.Config, error) {
	if err := o.useModelSampling(m); err != nil {
		return sampler.Config{}, err
	}
	o.resolveSeed()
	return o.constrainedConfig(m.Vocab())
}

// constrainedConfig is samplerConfig with the grammar.
func (o *options) constrainedConfig(v *llama.Vocab) (sampler.Config, error) {
	c, err := o.samplerConfig(v)
	if err == nil {
		err = o.grammar.bind(v, &c)
	}
	return c, err
}

// samplerConfig makes the configuration of the sampler: filters that are not
// listed are off, and what must not be generated is banned.
func (o *options) samplerConfig(v *llama.Vocab) (sampler.Config, error) {
	c := o.sampling
	c.Order = o.order()
	for _, f := range filters {
		if f.off != nil && !o.runs(f.name) {
			f.off(&c)
		}
	}
	if c.PenaltyLastN == 0 {
		c.RepeatPenalty, c.PresencePenalty, c.FrequencyPenalty = 1, 0, 0
	}
	if c.DRYLastN == 0 {
		c.DRYMultiplier = 0
	}
	if c.Mirostat != 0 {
		c.DynTempRange = 0
	}
	if c.TopKShare > 0 {
		c.TopK = 0
	}
	takeZeros(&c)

	for _, list := range []struct {
		flag string
		ids  []int32
	}{
		{"--logit-bias", slices.Sorted(maps.Keys(c.LogitBias))}, {"--suppress", c.Suppress},
		{"--penalty-exempt", c.PenaltyExempt}, {"--xtc-exempt", c.XTCExempt},
	} {
		for _, id := range list.ids {
			if !v.Has(id) {
				return c, badUsage("%s %d: the vocabulary has %d tokens, 0 to %d", list.flag, id, v.Size(), v.Size()-1)
			}
		}
	}
	c.Suppress = append(slices.Clone(c.Suppress), v.Suppressed()...)
	if o.ignoreEOS {
		c.Suppress = append(c.Suppress, v.EndTokens()...)
	}
	if c.MinLength > 0 {
		if c.EndTokens = v.EndTokens(); len(c.EndTokens) == 0 {
			c.MinLength = 0
		}
	}
	if c.DRYMultiplier > 0 {
		for _, text := range o.breakers {
			if o.escapes {
				text = unescape(text)
			}
			if len(text) > 40 {
				return c, badUsage("--dry-sequence-breaker %q: %s", text, wantBreaker)
			}
			sequences, err := sampler.DRYBreakers(text, v.Size(), v.SpecialPiece, func(text string) ([]int32, error) {
				return v.Tokenize(text, llama.TokenizeOptions{})
			})
			if err != nil {
				return c, err
			}
			c.DRYBreakers = append(c.DRYBreakers, sequences...)
		}
	}
	_, err := sampler.New(c)
	return c, err
}

// takeZeros keeps the meaning that llama.cpp gives to 0 where a sampler's
// configuration takes it for off: the smallest number leaves one token, too.
func takeZeros(c *sampler.Config) {
	for _, p := range []*float64{&c.TopP, &c.TypicalP, &c.TailFreeZ, &c.XTCThreshold, &c.AdaptiveTarget} {
		if *p == 0 {
			*p = math.SmallestNonzeroFloat64
		}
	}
}

// order is the chain by name: the bans where they are not listed, then what is.
// As in llama.cpp, adaptive-p comes last and with Mirostat there is only the
// temperature.
func (o *options) order() []string {
	listed := o.samplers
	if o.sampling.Mirostat != 0 {
		listed = []string{"temperature"}
	}
	var order []string
	for _, name := range bans {
		if !slices.Contains(listed, name) {
			order = append(order, name)
		}
	}
	for _, name := range listed {
		if name != "adaptive_p" {
			order = append(order, name)
		}
	}
	return order
}

// runs reports whether a filter has a place in the chain.
func (o *options) runs(name string) bool {
	return slices.Contains(o.order(), name) ||
		name == "adaptive_p" && o.sampling.Mirostat == 0 && slices.Contains(o.samplers, name)
}
