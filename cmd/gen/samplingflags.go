package main

import (
	"errors"
	"math"
	"strconv"

	"github.com/sortes-llm/sortes/sampler"
)

// defaultSampling returns llama.cpp's defaults, with the values for off that
// its flags have.
func defaultSampling() sampler.Config {
	c := sampler.Default()
	c.TopNSigma, c.TypicalP, c.TailFreeZ, c.AdaptiveTarget = -1, 1, 1, -1
	c.TopAPower = 2
	return c
}

// samplingSettings lists the flags that say how a token is chosen.
func (o *options) samplingSettings() []*setting {
	const (
		anyInt   = math.MaxInt32
		anyFloat = math.MaxFloat32
		above0   = math.SmallestNonzeroFloat64
	)
	below1 := math.Nextafter(1, 0)
	c := &o.sampling
	samplers := &setting{
		names: "--samplers", arg: "A;B;...", meta: "general.sampling.sequence", value: samplersValue(&o.samplers),
		usage: "filters in the order in which they run; one that is not listed is off, except that logit_bias, min_length and no_repeat_ngram " +
			"come first where they are not listed; adaptive_p always comes last",
	}
	settings := []*setting{
		samplers,
		{names: "--sampler-seq, --sampling-seq", arg: "LETTERS", of: samplers, convert: samplerLetters,
			usage: "the same by letters: " + letterNames()},
		{names: "-s, --seed", arg: "N", value: seedValue(&o.seed, &o.random),
			usage: "seed of the draws; -1 = random"},
		{names: "--draw", arg: "HOW",
			value: choiceValue(&c.DrawMethod, choice[sampler.DrawMethod]{"gumbel", sampler.DrawGumbel},
				choice[sampler.DrawMethod]{"inverse", sampler.DrawInverse}, choice[sampler.DrawMethod]{"mt19937", sampler.DrawMT19937}),
			usage: "how a token is drawn: gumbel (largest score and noise), inverse (one number on the cumulated probabilities), " +
				"mt19937 (the same with llama.cpp's generator)"},
		{names: "--temp, --temperature", arg: "N", env: "LLAMA_ARG_TEMPERATURE", meta: "general.sampling.temp",
			value: floatValue(&c.Temperature, 0, anyFloat, "0 (greedy) or a positive number"),
			usage: "temperature; 0 = greedy, 1 = off"},
		{names: "--dynatemp-range", arg: "N",
			value: floatValue(&c.DynTempRange, 0, anyFloat, "0 (off) or a positive number"),
			usage: "let the temperature move by N to both sides with the entropy of the candidates; 0 = off"},
		{names: "--dynatemp-exp", arg: "N",
			value: floatValue(&c.DynTempExponent, above0, anyFloat, "a positive number"),
			usage: "the exponent of the entropy in --dynatemp-range"},
		{names: "--top-k", arg: "N", env: "LLAMA_ARG_TOP_K", meta: "general.sampling.top_k",
			value: intValue(&c.TopK, math.MinInt32, anyInt, "a whole number; 0 = off"),
			usage: "keep the N most likely tokens; 0 = off"},
		{names: "--top-k-frac", arg: "F",
			value: floatValue(&c.TopKShare, 0, 1, "0 (off) to 1"),
			usage: "keep that share of the vocabulary, rounded up, in place of --top-k; 0 = off"},
		{names: "--top-p", arg: "P", env: "LLAMA_ARG_TOP_P", meta: "general.sampling.top_p",
			value: floatValue(&c.TopP, 0, 1, "0 to 1; 1 = off"),
			usage: "keep the most likely tokens that reach probability P together, at least one; 1 = off"},
		{names: "--min-p", arg: "P", env: "LLAMA_ARG_MIN_P", meta: "general.sampling.min_p",
			value: floatValue(&c.MinP, 0, 1, "0 to 1; 0 = off"),
			usage: "keep tokens at least P times as likely as the most likely one; 0 = off"},
		{names: "--top-nsigma, --top-n-sigma", arg: "N",
			value: floatValue(&c.TopNSigma, -anyFloat, anyFloat, "a number; 0 and below = off"),
			usage: "keep tokens at most N standard deviations of all logits below the best; 0 and below = off"},
		{names: "--typical, --typical-p", arg: "P",
			value: floatValue(&c.TypicalP, 0, 1, "0 to 1; 1 = off"),
			usage: "keep tokens about as surprising as the average, until they exceed probability P, at least one; 1 = off"},
		{names: "--top-a", arg: "A",
			value: floatValue(&c.TopA, 0, anyFloat, "0 (off) or a positive number"),
			usage: "keep tokens of at least A times a power of the highest probability; 0 = off"},
		{names: "--top-a-power", arg: "N",
			value: floatValue(&c.TopAPower, above0, anyFloat, "a positive number"),
			usage: "the power in --top-a"},
		{names: "--epsilon-cutoff", arg: "P",
			value: floatValue(&c.Epsilon, 0, below1, "0 (off) to below 1"),
			usage: "keep tokens of at least probability P; 0 = off"},
		{names: "--eta-cutoff", arg: "P",
			value: floatValue(&c.Eta, 0, below1, "0 (off) to below 1"),
			usage: "keep tokens of at least the smaller of probability P and sqrt(P) * exp(-entropy); 0 = off"},
		{names: "--tfs", arg: "Z",
			value: floatValue(&c.TailFreeZ, 0, 1, "0 to 1; 1 = off"),
			usage: "cut the tail where the curve of probabilities flattens (tail-free); 1 = off"},
		{names: "--xtc-probability", arg: "P", meta: "general.sampling.xtc_probability",
			value: floatValue(&c.XTCProbability, 0, 1, "0 to 1; 0 = off"),
			usage: "how often to remove all but the least likely of the tokens that reach the threshold; 0 = off"},
		{names: "--xtc-threshold", arg: "P", meta: "general.sampling.xtc_threshold",
			value: floatValue(&c.XTCThreshold, 0, 1, "0 to 1; above 0.5 = off"),
			usage: "the threshold in --xtc-probability; above 0.5 = off"},
		{names: "--xtc-exempt", arg: "ID,...", value: idsValue(&c.XTCExempt),
			usage: "tokens that XTC does not remove"},
		{names: "--adaptive-target", arg: "P",
			value: floatValue(&c.AdaptiveTarget, -anyFloat, 1, "at most 1; below 0 = off"),
			usage: "prefer tokens of about probability P (adaptive-p); below 0 = off"},
		{names: "--adaptive-decay", arg: "N",
			value: floatValue(&c.AdaptiveDecay, 0, 0.99, "0 to 0.99"),
			usage: "how much of its past adaptive-p keeps at each token"},
		{names: "--mirostat", arg: "N", meta: "general.sampling.mirostat",
			value: intValue(&c.Mirostat, 0, 2, "0 (off), 1 or 2"),
			usage: "keep the surprise of the text level, by version 1 or 2 of Mirostat, with the temperature and in place of the other filters; 0 = off"},
		{names: "--mirostat-lr", arg: "N", meta: "general.sampling.mirostat_eta",
			value: floatValue(&c.MirostatEta, above0, anyFloat, "a positive number"),
			usage: "how fast Mirostat adapts (eta)"},
		{names: "--mirostat-ent", arg: "N", meta: "general.sampling.mirostat_tau",
			value: floatValue(&c.MirostatTau, above0, anyFloat, "a positive number"),
			usage: "the surprise that it aims at, in bits (tau)"},
		{names: "--repeat-last-n", arg: "N", meta: "general.sampling.penalty_last_n",
			value: intValue(&c.PenaltyLastN, 0, anyInt, "0 (off) or more tokens"),
			usage: "the last N tokens are those the penalties see; 0 = penalties off"},
		{names: "--repeat-penalty", arg: "N", env: "LLAMA_ARG_REPEAT_PENALTY", meta: "general.sampling.penalty_repeat",
			value: floatValue(&c.RepeatPenalty, 1e-38, 1e38, "a positive number; 1 = off"),
			usage: "divide the logits of tokens seen by N; 1 = off"},
		{names: "--presence-penalty", arg: "N", env: "LLAMA_ARG_PRESENCE_PENALTY",
			value: floatValue(&c.PresencePenalty, -anyFloat, anyFloat, "a number; 0 = off"),
			usage: "subtract N from the logits of tokens seen; 0 = off"},
		{names: "--frequency-penalty", arg: "N", env: "LLAMA_ARG_FREQUENCY_PENALTY",
			value: floatValue(&c.FrequencyPenalty, -anyFloat, anyFloat, "a number; 0 = off"),
			usage: "subtract N for each time a token was seen; 0 = off"},
		{names: "--penalty-prompt", arg: "on|off", value: switchValue(&c.PenaltySkipPrompt, false),
			usage: "whether the penalties see the prompt"},
		{names: "--penalty-exempt", arg: "ID,...", value: idsValue(&c.PenaltyExempt),
			usage: "tokens that the penalties leave alone"},
		{names: "--dry-multiplier", arg: "N",
			value: floatValue(&c.DRYMultiplier, 0, anyFloat, "0 (off) or a positive number"),
			usage: "DRY: lower tokens that would lengthen a repetition of n tokens by N * base^(n - allowed length); 0 = off"},
		{names: "--dry-base", arg: "N",
			value: floatValue(&c.DRYBase, 1, anyFloat, "a number of 1 or more"),
			usage: "the base in --dry-multiplier"},
		{names: "--dry-allowed-length", arg: "N",
			value: intValue(&c.DRYAllowedLength, 0, anyInt, "0 or more tokens"),
			usage: "the allowed length in --dry-multiplier"},
		{names: "--dry-penalty-last-n", arg: "N",
			value: intValue(&c.DRYLastN, 0, anyInt, "0 (off) or more tokens"),
			usage: "the last N tokens, prompt included, are those DRY sees; 0 = DRY off"},
		{names: "--dry-sequence-breaker", arg: "TEXT", value: breakersValue(&o.breakers),
			usage: "a text over which no repetition reaches, in place of the default ones; none = no breakers; may be given several times"},
		{names: "--no-repeat-ngram", arg: "N",
			value: intValue(&c.NoRepeatNGram, 0, anyInt, "0 (off) or more tokens"),
			usage: "ban tokens that would repeat N tokens, the prompt's included; 0 = off"},
		{names: "--min-tokens", arg: "N",
			value: intValue(&c.MinLength, 0, anyInt, "0 (off) or more tokens"),
			usage: "ban end tokens until N tokens are generated; 0 = off"},
		{names: "-l, --logit-bias", arg: "ID+BIAS", value: biasValue(&c.LogitBias),
			usage: "add to the logit of a token, such as 15043+1 or 15043-1; -inf bans it; may be given several times"},
		{names: "--suppress", arg: "ID,...", value: idsValue(&c.Suppress),
			usage: "ban tokens"},
	}
	for _, s := range settings {
		s.group = groupSampling
	}
	return settings
}

// idsValue is a list of tokens; a flag that is given again adds to it.
func idsValue(p *[]int32) value {
	return listValue(p, parseIDs, func(id int32) string { return strconv.Itoa(int(id)) })
}

// defaultBreakers are llama.cpp's.
var defaultBreakers = []string{"\n", ":", `"`, "*"}

const wantBreaker = "want a text of 1 to 40 bytes, or none"

// breakersValue is a list of texts: the first takes the place of the default,
// and none empties it.
func breakersValue(p *[]string) value {
	given := false
	return listValue(p, func(text string) ([]string, error) {
		if text == "" {
			return nil, errors.New(wantBreaker)
		}
		if !given || text == "none" {
			given, *p = true, nil
		}
		if text == "none" {
			return nil, nil
		}
		return []string{text}, nil
	}, strconv.Quote)
}
