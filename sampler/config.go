package sampler

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Config holds the settings of a sampler. A field that is zero is not set: the
// zero Config is greedy and has no filter. [Default] has llama.cpp's values.
type Config struct {
	// Temperature divides the logits. 0, and anything below 1e-5, keeps only
	// the most likely token; 1 changes nothing. Finite, not negative.
	Temperature float64

	// TopK keeps the k most likely tokens. 0 and below is off.
	TopK int

	// TopP keeps the shortest list of most likely tokens whose probabilities
	// reach p together; the token that crosses p stays. 0 to 1; 0 and 1 are
	// off. (llama.cpp takes 0 for "one token", which is TopK 1 here.)
	TopP float64

	// MinP keeps the tokens that are at least p times as likely as the most
	// likely one. 0 to 1; 0 is off.
	MinP float64

	// MinKeep is the number of tokens that top_k, top_p and min_p leave at
	// least, if there are as many. 0 means 1.
	MinKeep int

	// RepeatPenalty divides the positive and multiplies the other logits of
	// the tokens in the window, once for each distinct token. Positive; 1 is
	// off, and so is 0, which means "not set".
	RepeatPenalty float64

	// FrequencyPenalty is subtracted from a token's logit once for each of its
	// occurrences in the window. Finite; 0 is off.
	FrequencyPenalty float64

	// PresencePenalty is subtracted once from the logit of each token in the
	// window. Finite; 0 is off.
	PresencePenalty float64

	// PenaltyLastN is the window of the three penalties: the last n tokens of
	// the history, prompt included. It must be set where one of them is.
	PenaltyLastN int

	// LogitBias is added to the logits of its tokens; -Inf bans a token.
	LogitBias map[int32]float64

	// Order lists the filters by name, first to last. Empty means
	// [DefaultOrder]. It may leave out what is not set, never what is.
	Order []string

	// Steps are filters of the user's own, by the names that place them in
	// Order.
	Steps map[string]Step
}

// A Step is one filter of a chain.
type Step interface {
	// Apply removes candidates or changes their logits. The history holds the
	// tokens so far, prompt included; Apply must not change or keep it, nor
	// keep c. Its error ends the call that sampled.
	Apply(c *Candidates, history []int32) error
}

// A StepFunc is a function as a Step.
type StepFunc func(c *Candidates, history []int32) error

// Apply calls f.
func (f StepFunc) Apply(c *Candidates, history []int32) error { return f(c, history) }

// Default returns the defaults of llama.cpp: temperature 0.8, top-k 40,
// top-p 0.95, min-p 0.05, and a penalty window of 64 with all penalties off.
func Default() Config {
	return Config{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1, PenaltyLastN: 64}
}

// filters holds every filter of the package in the default order. A make
// function checks the filter's settings; it returns a nil Step where they
// switch it off.
var filters = []struct {
	name string
	make func(c *Config) (Step, error)
}{
	{"logit_bias", newLogitBias},
	{"penalties", newPenalties},
	{"top_k", newTopK},
	{"top_p", newTopP},
	{"min_p", newMinP},
	{"temperature", newTemperature},
}

// DefaultOrder returns the names of all filters in their default order, which
// is that of llama.cpp.
func DefaultOrder() []string {
	order := make([]string, len(filters))
	for i, f := range filters {
		order[i] = f.name
	}
	return order
}

// A namedStep is a Step in its place in a chain.
type namedStep struct {
	Step
	name string
	own  bool // the user's own: what it leaves is checked
}

// compile checks a configuration and returns its chain, without the filters
// that are off.
func compile(c *Config) ([]namedStep, error) {
	if c.MinKeep < 0 {
		return nil, badValue("min-keep", c.MinKeep, "0 or more")
	}
	set := map[string]namedStep{}
	for _, f := range filters {
		step, err := f.make(c)
		if err != nil {
			return nil, err
		}
		if step != nil {
			set[f.name] = namedStep{Step: step, name: f.name}
		}
	}
	known := DefaultOrder()
	for _, name := range slices.Sorted(maps.Keys(c.Steps)) {
		switch {
		case slices.Contains(known, name):
			return nil, fmt.Errorf("sampler: the step %q has the name of a filter", name)
		case c.Steps[name] == nil:
			return nil, fmt.Errorf("sampler: the step %q is nil", name)
		}
		set[name] = namedStep{Step: c.Steps[name], name: name, own: true}
	}

	order := c.Order
	if len(order) == 0 {
		order = known
	}
	var chain []namedStep
	for i, name := range order {
		step, ok := set[name]
		switch {
		case slices.Contains(order[:i], name):
			return nil, fmt.Errorf("sampler: %q stands twice in the order", name)
		case ok:
			chain = append(chain, step)
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("sampler: unknown filter %q in the order, want one of %s", name, strings.Join(known, ", "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !slices.Contains(order, name) {
			return nil, fmt.Errorf("sampler: %s is set but missing from the order %s", name, strings.Join(order, ", "))
		}
	}
	return chain, nil
}

func badValue(name string, value any, want string) error {
	return fmt.Errorf("sampler: %s is %v, want %s", name, value, want)
}

// finite reports whether x is neither NaN nor infinite.
func finite(x float64) bool { return math.Abs(x) <= math.MaxFloat64 }
