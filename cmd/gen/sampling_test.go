package main

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/gguf"
	"github.com/sortes-llm/sortes/internal/tinymodel"
	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/sampler"
)

// vocabulary is that of a model file.
func vocabulary(t *testing.T, path string) *llama.Vocab {
	t.Helper()
	m, err := llama.Open(context.Background(), path, llama.ModelOptions{VocabOnly: true})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m.Vocab()
}

// samplerOf is the sampler of a command line.
func samplerOf(t *testing.T, v *llama.Vocab, promptLen int, args ...string) *sampler.Sampler {
	t.Helper()
	c, err := parse(t, args...).samplerConfig(v)
	require.NoError(t, err, args)
	c.PromptLen = promptLen
	s, err := sampler.New(c)
	require.NoError(t, err, args)
	return s
}

// letter is the token of a character in the tiny vocabulary.
func letter(c byte) int32 { return tinymodel.Byte + int32(c) }

// craftedText draws 40 tokens from rows of which twelve letters, and now and
// then an end of turn, are likely. What follows a letter prefers its neighbour,
// so that texts repeat.
func craftedText(t *testing.T, v *llama.Vocab, seed uint64, args []string) []int32 {
	t.Helper()
	history := []int32{letter('a'), letter('b'), letter('c')}
	s := samplerOf(t, v, len(history), args...)
	row := make([]float32, v.Size())
	for range 40 {
		for i := range row {
			row[i] = -6
		}
		last := int(history[len(history)-1])
		for i := range 12 {
			row[letter(byte('a'+i))] = float32((i*7+last*5)%13) / 3
		}
		row[letter(byte('a'+(last+1)%12))] = 6
		row[tinymodel.EOT] = 3
		id, err := s.Pick(row, history, sampler.Draw{Seed: seed, Pos: len(history)})
		require.NoError(t, err, args)
		s.Accept(id)
		history = append(history, id)
	}
	return history
}

// TestEveryFlagChangesTheText: each sampling flag, alone or beside the flag
// that switches its filter on, changes a text. A flag without a case fails.
func TestEveryFlagChangesTheText(t *testing.T) {
	v := vocabulary(t, tiny)
	id := func(c byte) string { return idText(letter(c)) }
	cases := map[string]struct{ with, flag string }{
		"--samplers":             {"", "--samplers temperature"},
		"--sampler-seq":          {"", "--sampler-seq pt"},
		"--draw":                 {"", "--draw inverse"},
		"--temp":                 {"", "--temp 3"},
		"--dynatemp-range":       {"--temp 1.5", "--dynatemp-range 1.4"},
		"--dynatemp-exp":         {"--temp 1.5 --dynatemp-range 1.4", "--dynatemp-exp 5"},
		"--top-k":                {"--temp 3", "--top-k 2"},
		"--top-k-frac":           {"--temp 3", "--top-k-frac 0.004"},
		"--top-p":                {"--temp 3", "--top-p 0.5"},
		"--min-p":                {"--temp 3", "--min-p 0.3"},
		"--top-nsigma":           {"--temp 3", "--top-nsigma 0.2"},
		"--typical":              {"--temp 3", "--typical 0.3"},
		"--top-a":                {"--temp 3", "--top-a 0.3"},
		"--top-a-power":          {"--temp 3 --top-a 0.1", "--top-a-power 0.1"},
		"--epsilon-cutoff":       {"--temp 3", "--epsilon-cutoff 0.2"},
		"--eta-cutoff":           {"--temp 3", "--eta-cutoff 0.3"},
		"--tfs":                  {"--temp 3", "--tfs 0.3"},
		"--xtc-probability":      {"", "--xtc-probability 0.5"},
		"--xtc-threshold":        {"--xtc-probability 0.9", "--xtc-threshold 0.4"},
		"--xtc-exempt":           {"--xtc-probability 0.9", "--xtc-exempt " + id('b') + "," + id('i')},
		"--adaptive-target":      {"", "--adaptive-target 0.1"},
		"--adaptive-decay":       {"--temp 3 --adaptive-target 0.5", "--adaptive-decay 0.1"},
		"--mirostat":             {"--temp 3", "--mirostat 2"},
		"--mirostat-lr":          {"--temp 3 --mirostat 2 --mirostat-ent 1", "--mirostat-lr 0.9"},
		"--mirostat-ent":         {"--temp 3 --mirostat 2", "--mirostat-ent 1"},
		"--repeat-last-n":        {"--repeat-penalty 2", "--repeat-last-n 2"},
		"--repeat-penalty":       {"", "--repeat-penalty 2"},
		"--presence-penalty":     {"", "--presence-penalty 3"},
		"--frequency-penalty":    {"", "--frequency-penalty 1"},
		"--penalty-prompt":       {"--presence-penalty 9", "--penalty-prompt off"},
		"--penalty-exempt":       {"--presence-penalty 9", "--penalty-exempt " + id('d')},
		"--dry-multiplier":       {"--temp 0", "--dry-multiplier 2"},
		"--dry-base":             {"--temp 0.3 --dry-multiplier 0.2", "--dry-base 4"},
		"--dry-allowed-length":   {"--temp 0.3 --dry-multiplier 2", "--dry-allowed-length 6"},
		"--dry-penalty-last-n":   {"--temp 0.3 --dry-multiplier 2", "--dry-penalty-last-n 14"},
		"--dry-sequence-breaker": {"--temp 0.3 --dry-multiplier 2", "--dry-sequence-breaker a"},
		"--no-repeat-ngram":      {"", "--no-repeat-ngram 2"},
		"--min-tokens":           {"--temp 3 --top-p 1 --min-p 0", "--min-tokens 40"},
		"--logit-bias":           {"", "--logit-bias " + id('d') + "-9"},
		"--suppress":             {"", "--suppress " + id('d')},
	}
	for _, s := range newOptions().settings {
		if s.group != groupSampling || s.name() == "--seed" {
			continue
		}
		c, ok := cases[s.name()]
		if !assert.True(t, ok, "%s has no case", s.name()) {
			continue
		}
		with := strings.Fields(c.with)
		flag := append(slices.Clone(with), strings.Fields(c.flag)...)
		assert.True(t, parse(t, flag...).find(s.name()).source == fromFlag || s.of != nil, c.flag)
		assert.NotEqual(t, craftedText(t, v, 2, with), craftedText(t, v, 2, flag), "%s %s", c.with, c.flag)
		o := parse(t, flag...)
		o.noteIdleSampling(2)
		assert.Empty(t, o.notices, flag)
	}
	assert.NotEqual(t, craftedText(t, v, 2, nil), craftedText(t, v, 3, nil), "the seed")
	assert.NotEqual(t, craftedText(t, v, 2, []string{"--draw", "inverse"}), craftedText(t, v, 2, []string{"--draw", "mt19937"}))
	assert.NotEqual(t, craftedText(t, v, 2, []string{"--mirostat", "1", "--temp", "3"}), craftedText(t, v, 2, []string{"--mirostat", "2", "--temp", "3"}))
}

// idText is a token as flags take it.
func idText(id int32) string { return strconv.Itoa(int(id)) }

// TestChains: what a command line makes of the chain.
func TestChains(t *testing.T) {
	v := vocabulary(t, tiny)
	for args, want := range map[string]string{
		"": "top_k(40) -> top_p(0.95) -> min_p(0.05) -> temperature(0.8) -> draw",
		"--samplers temp;nucleus;typical --typical 0.5":          "temperature(0.8) -> top_p(0.95) -> typ_p(0.5) -> draw",
		"--sampler-seq mkt":                                      "min_p(0.05) -> top_k(40) -> temperature(0.8) -> draw",
		"--samplers top_k;adaptive_p;temp --adaptive-target 0.3": "top_k(40) -> temperature(0.8) -> adaptive_p(target 0.3, decay 0.9) -> draw",
		"--samplers top_k --adaptive-target 0.3":                 "top_k(40) -> draw",
		"--mirostat 2 --top-k 5 --repeat-penalty 2 --dynatemp-range 1 --sampler-seq k --adaptive-target 0.5 -l 5+1": "logit_bias(tokens: 1) -> temperature(0.8) -> mirostat(version 2, tau 5, eta 0.1) -> draw",
		"--min-tokens 3 --no-repeat-ngram 2 --suppress 4 --sampler-seq k":                                           "logit_bias(tokens: 1) -> min_length(3 tokens) -> no_repeat_ngram(2) -> top_k(40) -> draw",
		"--no-repeat-ngram 2 --min-tokens 3 --sampler-seq kn":                                                       "min_length(3 tokens) -> top_k(40) -> no_repeat_ngram(2) -> draw",
		"--top-k-frac 0.5 --top-p 1 --min-p 0 --temp 1":                                                             "top_k(0.5 of the vocabulary) -> draw",
		"--top-k-frac 1 --top-p 1 --min-p 0 --temp 1":                                                               "draw",
		"--dry-multiplier 1 --dry-penalty-last-n 0 --repeat-penalty 2 --repeat-last-n 0 --sampler-seq edt":          "temperature(0.8) -> draw",
		"--dry-multiplier 1 --dry-sequence-breaker none --sampler-seq d":                                            "dry(multiplier 1, base 1.75, allowed length 2, last 64, breakers: 0) -> draw",
		"--xtc-probability 0.2 --xtc-exempt 3,4 --penalty-exempt 5 --repeat-penalty 2 --sampler-seq ex":             "penalties(repeat 2, frequency 0, presence 0, last 64, exempt tokens: 1) -> xtc(probability 0.2, threshold 0.1, exempt tokens: 2) -> draw",
		"--top-k 0 --top-p 1 --min-p 0 --temp 1 --top-nsigma 0 --adaptive-target -2 --draw mt19937":                 "draw(mt19937)",
		"--sampler-seq bnledskychfopmxta":                                                                           "top_k(40) -> top_p(0.95) -> min_p(0.05) -> temperature(0.8) -> draw",
		"--top-a 0.1 --epsilon-cutoff 0.01 --eta-cutoff 0.02 --tfs 0.9 --typical 0.8 --top-nsigma 2 --xtc-probability 0.3": "top_n_sigma(2) -> top_k(40) -> typ_p(0.8) -> " +
			"epsilon(0.01) -> eta(0.02) -> tfs(0.9) -> top_a(0.1, power 2) -> top_p(0.95) -> min_p(0.05) -> xtc(probability 0.3, threshold 0.1) -> temperature(0.8) -> draw",
	} {
		assert.Equal(t, want, samplerOf(t, v, 0, strings.Fields(args)...).String(), args)
	}
}

// TestZeros: 0 means to top-p, typical, tail-free, the XTC threshold and the
// adaptive target what it means to llama.cpp.
func TestZeros(t *testing.T) {
	v := vocabulary(t, tiny)
	row := make([]float32, v.Size())
	for i := range row {
		row[i] = float32(math.Inf(-1))
	}
	copy(row[letter('a'):], []float32{2, 1, .5, 0, -1, -3})
	for args, want := range map[string][]int32{
		"--top-p 0":   {letter('a')},
		"--typical 0": {letter('b')}, // scores .648559 .351441 .851441 ...: the second is nearest to the entropy
		"--tfs 0":     {letter('a')},
		"--xtc-probability 1 --xtc-threshold 0 --top-p 1": {letter('f')}, // all but the least likely go
	} {
		var d sampler.Dist
		s := samplerOf(t, v, 0, append(strings.Fields(args), "--min-p", "0", "--top-k", "0")...)
		require.NoError(t, s.DistAt(&d, row, nil, sampler.Draw{}))
		var got []int32
		for i := range d.Len() {
			got = append(got, d.Token(i))
		}
		assert.Equal(t, want, got, args)
	}

	// A target of 0 aims at 0 for ever: the scores are 5 - 10d²/(1+d) with
	// d = p/0.3, and p the probabilities of row A.
	s := samplerOf(t, v, 0, "--adaptive-target", "0", "--sampler-seq", "a")
	var d sampler.Dist
	require.NoError(t, s.Dist(&d, row, nil))
	score := func(p float64) float64 { x := p / .3; return 5 - 10*x*x/(1+x) }
	var total float64
	p := []float64{.560893, .206341, .125152, .075909, .027925, .003779}
	for _, x := range p {
		total += math.Exp(score(x))
	}
	for i, x := range p {
		assert.InDelta(t, math.Exp(score(x))/total, d.ProbOf(letter('a')+int32(i)), 1e-5)
	}
}

// TestBreakers: the default breakers and those of the command line stop a
// repetition, with escapes replaced.
func TestBreakers(t *testing.T) {
	v := vocabulary(t, tiny)
	penalty := func(between byte, args ...string) float64 {
		history := []int32{letter('x'), letter('y'), letter(between), letter('z'), letter('x'), letter('y'), letter(between)}
		row := make([]float32, v.Size())
		var d sampler.Dist
		args = append([]string{"--dry-multiplier", "1", "--sampler-seq", "d"}, args...)
		require.NoError(t, samplerOf(t, v, 0, args...).Dist(&d, row, history))
		return -math.Log(d.ProbOf(letter('z')) / d.ProbOf(letter('q')))
	}
	assert.InDelta(t, 1.75, penalty('w'), 1e-5, "a repetition of three tokens, two of them allowed")
	for _, c := range []byte("\n:\"*") {
		assert.Zero(t, penalty(c))
		assert.InDelta(t, 1.75, penalty(c, "--dry-sequence-breaker", "none"), 1e-5)
		assert.InDelta(t, 1.75, penalty(c, "--dry-sequence-breaker", "w"), 1e-5, "the first takes the place of the default")
	}
	assert.Zero(t, penalty('w', "--dry-sequence-breaker", "w"))
	assert.Zero(t, penalty('w', "--dry-sequence-breaker", "v", "--dry-sequence-breaker", `\x77`))
	assert.InDelta(t, 1.75, penalty('w', "--dry-sequence-breaker", `\x77`, "--no-escape"), 1e-5)
	assert.Zero(t, penalty('\n', "--no-escape"), "the default is a newline in any case")

	r := gen(t, "-m", tiny, "-p", "x", "--dry-multiplier", "1", "--dry-sequence-breaker", strings.Repeat("long", 11))
	assert.Equal(t, exitUsage, r.status)
	assert.Equal(t, `gen: --dry-sequence-breaker "`+strings.Repeat("long", 11)+"\": want a text of 1 to 40 bytes, or none\n", r.stderr)
}

// TestBans: --suppress, the model's own list, --ignore-eos and --min-tokens.
func TestBans(t *testing.T) {
	model := withMetadata(t, gguf.NewKV("tokenizer.ggml.suppress_tokens", []int32{letter('a')}))
	v := vocabulary(t, model)
	banned := func(history []int32, args ...string) []int32 {
		row := make([]float32, v.Size())
		var d sampler.Dist
		args = append([]string{"--sampler-seq", ""}, args...)
		require.NoError(t, samplerOf(t, v, 2, args...).Dist(&d, row, history))
		var ids []int32
		for id := range int32(v.Size()) {
			if d.ProbOf(id) == 0 {
				ids = append(ids, id)
			}
		}
		return ids
	}
	ends := v.EndTokens()
	require.NotEmpty(t, ends)
	assert.Equal(t, []int32{letter('a')}, banned(nil))
	assert.Equal(t, []int32{letter('a'), letter('c')}, banned(nil, "--suppress", idText(letter('c'))))
	assert.Equal(t, []int32{letter('a')}, banned(nil, "-l", idText(letter('a'))+"+5"), "no bias lifts a ban")
	assert.Equal(t, append(slices.Clone(ends), letter('a')), banned(nil, "--ignore-eos"))
	assert.Equal(t, append(slices.Clone(ends), letter('a')), banned([]int32{5, 6, 7}, "--min-tokens", "2"), "one token is generated")
	assert.Equal(t, []int32{letter('a')}, banned([]int32{5, 6, 7, 8}, "--min-tokens", "2"))
}

func TestTokensOfFlagsOutsideTheVocabulary(t *testing.T) {
	v := vocabulary(t, tiny)
	for _, flag := range []string{"--suppress", "--penalty-exempt", "--xtc-exempt"} {
		_, err := parse(t, flag, "5,999999").samplerConfig(v)
		assert.ErrorContains(t, err, flag+" 999999: the vocabulary has ")
	}
}
