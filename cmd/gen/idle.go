package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/sortes-llm/sortes/sampler"
)

// noteIdleSampling names the sampling flags that change nothing, for a model
// with so many end tokens.
func (o *options) noteIdleSampling(endTokens int) {
	if o.predict == 0 {
		for _, s := range o.settings {
			if s.group == groupSampling && s.of == nil {
				o.noteIdle(s.name(), "with -n 0")
			}
		}
		return
	}
	c := &o.sampling
	for i := range filters {
		f := &filters[i]
		because := o.idleFilter(f)
		for _, s := range f.strength {
			if because != "" && s.isOn(c) {
				o.noteIdle(s.flag, because)
			}
		}
		for _, flag := range f.others {
			switch {
			case isWindow(flag) && o.find(flag).get() == "0", flag == "--xtc-threshold" && c.XTCThreshold > 0.5:
				// It switches f off, as asked.
			case because != "":
				o.noteIdle(flag, because)
			case !isSet(f, c):
				o.noteIdle(flag, f.without)
			}
		}
	}
	if c.TopKShare > 0 && c.TopK > 0 && o.idleFilter(findFilter("top_k")) == "" {
		o.noteIdle("--top-k", "with --top-k-frac")
	}
	if c.MinLength > 0 {
		if o.ignoreEOS {
			o.noteIdle("--min-tokens", "with --ignore-eos")
		} else if endTokens == 0 {
			o.noteIdle("--min-tokens", "with this model, which has no end token")
		}
	}
	switch {
	case c.Mirostat != 0:
		with := o.withMirostat()
		o.noteIdle("--samplers", with)
		o.noteIdle("--dynatemp-exp", with)
		if c.DynTempRange > 0 {
			o.noteIdle("--dynatemp-range", with)
		}
	case c.DynTempRange == 0:
		o.noteIdle("--dynatemp-exp", "without --dynatemp-range")
	}
	if c.Mirostat == 0 {
		o.noteIdle("--mirostat-lr", "without --mirostat")
		o.noteIdle("--mirostat-ent", "without --mirostat")
	} else if o.greedy() {
		for _, flag := range []string{"--mirostat", "--mirostat-lr", "--mirostat-ent"} {
			o.noteIdle(flag, atZero)
		}
	}
	switch {
	case o.greedy() && !o.xtcActs():
		o.noteIdle("--seed", "at temperature 0, which draws nothing")
		o.noteIdle("--draw", "at temperature 0, which draws nothing")
	case c.DrawMethod == sampler.DrawMT19937 && !o.random && o.seed > math.MaxUint32:
		o.notef("--draw mt19937 uses the low 32 bits of the seed: %d", uint32(o.seed))
	}
}

const atZero = "at temperature 0, which takes the most likely token"

// idleFilter says why a filter that is on changes nothing, or is empty.
func (o *options) idleFilter(f *filter) string {
	c := &o.sampling
	switch {
	case c.Mirostat != 0 && !o.runs(f.name):
		return o.withMirostat()
	case !o.runs(f.name):
		return "without " + f.name + " among the samplers"
	case f.name == "penalties" && c.PenaltyLastN == 0:
		return "with --repeat-last-n 0"
	case f.name == "dry" && c.DRYLastN == 0:
		return "with --dry-penalty-last-n 0"
	case f.name == "xtc" && isSet(f, c) && c.XTCThreshold > 0.5:
		return "with an XTC threshold above 0.5, which no two tokens reach"
	case o.greedy() && o.idleAtZero(f):
		return atZero
	}
	return ""
}

func (o *options) withMirostat() string {
	with := fmt.Sprintf("with --mirostat %d", o.sampling.Mirostat)
	if s := o.find("--mirostat"); s.source == fromModel {
		with += ", which the model recommends (" + s.meta + ")"
	}
	return with
}

func isWindow(flag string) bool { return flag == "--repeat-last-n" || flag == "--dry-penalty-last-n" }

// isSet reports whether a flag switches a filter on.
func isSet(f *filter, c *sampler.Config) bool {
	return slices.ContainsFunc(f.strength, func(s strength) bool { return s.isOn(c) })
}

// greedy reports whether the temperature leaves one token.
func (o *options) greedy() bool {
	c := &o.sampling
	return o.runs("temperature") && c.Temperature < 1e-5 && (c.DynTempRange == 0 || c.Mirostat != 0)
}

// idleAtZero reports whether the temperature's choice of the most likely token
// makes a filter idle: one that follows it, and one that never removes that
// token, unless another that comes between may change which token that is.
func (o *options) idleAtZero(f *filter) bool {
	order := o.order()
	temperature := slices.Index(order, "temperature")
	at := slices.Index(order, f.name)
	switch {
	case f.name == "temperature" || slices.Contains(bans, f.name):
		return false
	case at < 0 || at > temperature:
		return true
	case !f.cuts:
		return false
	}
	for _, name := range order[at+1 : temperature] {
		if g := findFilter(name); !g.cuts && isSet(g, &o.sampling) && o.idleFilter(g) == "" {
			return false
		}
	}
	return true
}

// xtcActs reports whether XTC removes tokens before the temperature chooses.
func (o *options) xtcActs() bool {
	xtc := findFilter("xtc")
	return isSet(xtc, &o.sampling) && o.idleFilter(xtc) == ""
}
