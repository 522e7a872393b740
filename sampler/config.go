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

	// DynTempRange makes the temperature dynamic: it runs from that much below
	// Temperature (not below 0) to that much above, with the entropy of the
	// candidates over the highest that so many can have, to the power of
	// DynTempExponent. Finite, not negative; 0 is off.
	DynTempRange float64

	// DynTempExponent shapes the dynamic temperature. Positive; 0 means 1.
	DynTempExponent float64

	// TopK keeps the k most likely tokens. 0 and below is off.
	TopK int

	// TopKShare is top-k as a share of the vocabulary, rounded up, in place of
	// TopK. 0 to 1; 0 and 1 are off.
	TopKShare float64

	// TopNSigma keeps the tokens whose logit is at most n standard deviations
	// of all logits below the highest. 0 and below is off.
	TopNSigma float64

	// TypicalP keeps the tokens whose surprise is nearest to the entropy until
	// their probabilities exceed p together. 0 to 1; 0 and 1 are off.
	TypicalP float64

	// Epsilon keeps the tokens of at least that probability. 0 to below 1; 0 is
	// off.
	Epsilon float64

	// Eta keeps the tokens whose probability is at least the smaller of eta and
	// sqrt(eta) * exp(-entropy). 0 to below 1; 0 is off.
	Eta float64

	// TailFreeZ cuts the tail where the second differences of the sorted
	// probabilities, as shares of their sum, exceed z together. 0 to 1; 0 and 1
	// are off.
	TailFreeZ float64

	// TopA keeps the tokens whose probability is at least TopA times the
	// TopAPower-th power of the highest. Finite, not negative; 0 is off.
	TopA float64

	// TopAPower is the exponent of top-a. Positive; 0 means 2.
	TopAPower float64

	// TopP keeps the shortest list of most likely tokens whose probabilities
	// reach p together; the token that crosses p stays. 0 to 1; 0 and 1 are
	// off. (llama.cpp takes 0 for "one token", which is TopK 1 here.)
	TopP float64

	// MinP keeps the tokens that are at least p times as likely as the most
	// likely one. 0 to 1; 0 is off.
	MinP float64

	// XTCProbability is how often xtc acts: it then removes, of the tokens
	// whose probability is XTCThreshold or more, all but the least likely. 0 to
	// 1; 0 is off. The seed and the position of a draw decide.
	XTCProbability float64

	// XTCThreshold is the probability from which xtc removes tokens. 0 to 1;
	// must be set where XTCProbability is. Above 0.5 nothing is removed, since
	// no two tokens reach it.
	XTCThreshold float64

	// XTCExempt lists tokens that xtc leaves alone, such as ends of text and of
	// lines. llama.cpp has none.
	XTCExempt []int32

	// MinKeep is the number of tokens that each filter that looks at
	// probabilities leaves at least, if there are as many. 0 means 1.
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

	// PenaltySkipPrompt makes the three penalties look at generated tokens
	// only, those from PromptLen on. llama.cpp counts the prompt.
	PenaltySkipPrompt bool

	// PenaltyExempt lists tokens that the three penalties leave alone.
	PenaltyExempt []int32

	// DRYMultiplier is the strength of the penalty on repeated sequences: a
	// token that would lengthen a repetition of n tokens loses
	// DRYMultiplier * DRYBase^(n - DRYAllowedLength). Finite, not negative; 0
	// is off.
	DRYMultiplier float64

	// DRYBase is how fast that penalty grows. Finite, at least 1; must be set
	// where DRYMultiplier is.
	DRYBase float64

	// DRYAllowedLength is the shortest repetition that is penalised. 0 or more
	// tokens.
	DRYAllowedLength int

	// DRYLastN is the window of the penalty on repeated sequences: the last n
	// tokens of the history, prompt included. It must be set where
	// DRYMultiplier is.
	DRYLastN int

	// DRYBreakers are sequences of tokens over which no repetition reaches.
	// [DRYBreakers] finds those of a text.
	DRYBreakers [][]int32

	// NoRepeatNGram bans tokens that would repeat a sequence of n tokens. 0 is
	// off.
	NoRepeatNGram int

	// MinLength bans the EndTokens until that many tokens have been generated,
	// counted from PromptLen. 0 is off.
	MinLength int

	// EndTokens are the tokens that end a text: all of them.
	EndTokens []int32

	// PromptLen is how many tokens at the head of the history are the prompt.
	// Not negative.
	PromptLen int

	// LogitBias is added to the logits of its tokens; -Inf bans a token.
	LogitBias map[int32]float64

	// Suppress lists tokens that are banned, whatever their bias.
	Suppress []int32

	// Mirostat is 1 or 2 for the versions of mirostat, which keeps the surprise
	// of the text near MirostatTau bits; 0 is off. As in llama.cpp it stands at
	// the end of the chain and takes the place of other filters: of the order
	// only the bans (logit_bias, min_length, no_repeat_ngram), temperature and
	// the user's own steps remain, and what else is set has no effect. The
	// sampler then has a state: see [Sampler.Accept].
	Mirostat int

	// MirostatTau is the surprise, in bits, that mirostat aims at. Finite,
	// positive where Mirostat is on.
	MirostatTau float64

	// MirostatEta is how fast mirostat adapts. Finite, positive where Mirostat
	// is on.
	MirostatEta float64

	// AdaptiveTarget prefers tokens of about that probability, by adaptive-p
	// at the end of the chain. At most 1; 0 and below is off. The sampler then
	// has a state: see [Sampler.Accept].
	AdaptiveTarget float64

	// AdaptiveDecay is how much of its past adaptive-p keeps at each token. 0
	// to 0.99.
	AdaptiveDecay float64

	// Constraint, where not nil, says which tokens may come at all, such as a
	// grammar does. It stands before the chain, and has no name in Order. The
	// sampler then has a state: see [Sampler.Accept].
	Constraint Constraint

	// DrawMethod is how [Sampler.Pick] draws from what the chain leaves.
	DrawMethod DrawMethod

	// Order lists the filters by name, first to last. Empty means
	// [DefaultOrder]. It may leave out what is not set, never what is.
	Order []string

	// Steps are filters of the user's own, by the names that place them in
	// Order.
	Steps map[string]Step
}

// A DrawMethod is a way to draw a token from a distribution.
type DrawMethod int

const (
	// DrawGumbel takes the token with the largest score and noise. It is the
	// default, and the only one that ties drafts to the text.
	DrawGumbel DrawMethod = iota
	// DrawInverse takes the token at which the sum of the probabilities, the
	// most likely first, reaches one uniform number, which follows from the
	// [Draw].
	DrawInverse
	// DrawMT19937 is DrawInverse with the numbers of llama.cpp where that is
	// built with libstdc++: the n-th generated token, counted from
	// Config.PromptLen, gets the n-th number of std::mt19937, seeded with the
	// low 32 bits of Draw.Seed, and xtc the same from a generator of its own.
	// Draw.Stream does not matter. The tokens are llama.cpp's where its
	// candidates are sorted, as after top_k, and logits and settings are the
	// same. Not so with mirostat and adaptive-p, which draw in another way
	// there, nor with xtc behind a filter that left a single token, for which
	// llama.cpp draws no number.
	DrawMT19937
)

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
// top-p 0.95, min-p 0.05 and all else off. What is off has its secondary
// settings, such as a window of 64 tokens for the penalties.
func Default() Config {
	return Config{
		Temperature: 0.8, DynTempExponent: 1,
		TopK: 40, TopP: 0.95, MinP: 0.05,
		XTCThreshold:  0.1,
		RepeatPenalty: 1, PenaltyLastN: 64,
		MirostatTau: 5, MirostatEta: 0.1, AdaptiveDecay: 0.9,
		DRYBase: 1.75, DRYAllowedLength: 2, DRYLastN: 64,
	}
}

// A filter has a function that checks its settings and makes a Step of them,
// nil where they switch it off.
type filter struct {
	name string
	make func(c *Config) (Step, error)
}

// filters holds the filters of the package in the default order.
var filters = []filter{
	{"logit_bias", newLogitBias},
	{"min_length", newMinLength},
	{"no_repeat_ngram", newNoRepeatNGram},
	{"penalties", newPenalties},
	{"dry", newDRY},
	{"top_n_sigma", newTopNSigma},
	{"top_k", newTopK},
	{"typ_p", newTypical},
	{"epsilon", newEpsilon},
	{"eta", newEta},
	{"tfs", newTailFree},
	{"top_a", newTopA},
	{"top_p", newTopP},
	{"min_p", newMinP},
	{"xtc", newXTC},
	{"temperature", newTemperature},
}

// last holds the filters that stand behind all others, and in no order.
var last = []filter{
	{"mirostat", newMirostat},
	{"adaptive_p", newAdaptiveP},
}

// underMirostat are the filters that may stand before mirostat.
var underMirostat = []string{"logit_bias", "min_length", "no_repeat_ngram", "temperature"}

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
	if c.PromptLen < 0 {
		return nil, badValue("the length of the prompt", c.PromptLen, "0 or more tokens")
	}
	if c.DrawMethod < DrawGumbel || c.DrawMethod > DrawMT19937 {
		return nil, badValue("the draw method", int(c.DrawMethod), "DrawGumbel, DrawInverse or DrawMT19937")
	}
	set := map[string]namedStep{}
	for _, f := range filters {
		step, err := f.make(c)
		if err != nil {
			return nil, err
		}
		if step != nil && (c.Mirostat == 0 || slices.Contains(underMirostat, f.name)) {
			set[f.name] = namedStep{Step: step, name: f.name}
		}
	}
	known := DefaultOrder()
	for _, name := range slices.Sorted(maps.Keys(c.Steps)) {
		switch {
		case slices.Contains(known, name) || slices.ContainsFunc(last, func(f filter) bool { return f.name == name }):
			return nil, fmt.Errorf("sampler: the step %q has the name of a filter", name)
		case c.Steps[name] == nil:
			return nil, fmt.Errorf("sampler: the step %q is nil", name)
		}
		step := c.Steps[name]
		if v, ok := step.(Stateful); ok {
			step = v.Clone()
		}
		set[name] = namedStep{Step: step, name: name, own: true}
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
	if c.Mirostat != 0 && c.AdaptiveTarget > 0 {
		return nil, badValue("the adaptive-p target", c.AdaptiveTarget, "0 (off), since mirostat is on")
	}
	for _, f := range last {
		step, err := f.make(c)
		if err != nil {
			return nil, err
		}
		if step != nil {
			chain = append(chain, namedStep{Step: step, name: f.name})
		}
	}
	return chain, nil
}

func badValue(name string, value any, want string) error {
	return fmt.Errorf("sampler: %s is %v, want %s", name, value, want)
}

// finite reports whether x is neither NaN nor infinite.
func finite(x float64) bool { return math.Abs(x) <= math.MaxFloat64 }
