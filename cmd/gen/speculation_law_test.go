package main

import (
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/generate"
	"github.com/sortes-llm/sortes/sampler"
	"github.com/sortes-llm/sortes/speculative"
)

// TestRulesKeepTheLaw compares texts of the block and token rules with plain
// ones, prompt by prompt: whether they have a line break by McNemar's exact test,
// their lengths and the mean of their log-probabilities under the model by that
// of Kolmogorov and Smirnov. 500 prompts (make stress) would show a share that is
// off by some 8 points.
func TestRulesKeepTheLaw(t *testing.T) {
	prompts, least := 6, 1e-4
	if os.Getenv("SORTES_STRESS") != "" {
		prompts, least = 500, 1e-3
	}
	o, m := openWith(t, "-m", smol(t, "Q8_0"), "-md", smol(t, "Q4_0"), "-c", "512", "--spec-adaptive", "off", "--spec-draft-n-max", "4")
	words := generate.Vocab(m.target.Vocab())
	type sample struct {
		broken        bool
		length, score float64
	}
	run := func(types []string, rule speculative.Rule, salt uint64) (all []sample) {
		o.speculation.types, o.speculation.rule = types, rule
		require.NoError(t, m.session.Clear())
		e, err := m.engine(o, words, nil, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		defer e.Close()
		for i := range prompts {
			text := realPrompts[i%len(realPrompts)] + strings.Repeat(" and", i/len(realPrompts)%7)
			prompt, err := promptTokens(m.target.Vocab(), text)
			require.NoError(t, err)
			var s sample
			request := generate.Request{Prompt: prompt, MaxTokens: 24, Seed: uint64(i) + salt, LogProbs: true, Sampling: sampler.Config{Temperature: 1, TopP: 0.95}}
			for token, err := range e.Stream(t.Context(), request) {
				require.NoError(t, err)
				s.broken = s.broken || strings.Contains(token.Text, "\n")
				s.score = (s.score*s.length + token.LogProb) / (s.length + 1)
				s.length++
			}
			all = append(all, s)
		}
		return all
	}
	plain := run(nil, speculative.Coupled, 0)
	for i, rule := range []speculative.Rule{speculative.Block, speculative.Token} {
		got := run([]string{drafterModel}, rule, 1000*uint64(i+1))
		var only [2]int // broken on one side
		var lengths, scores [2][]float64
		for j := range plain {
			if plain[j].broken != got[j].broken {
				only[map[bool]int{true: 1}[got[j].broken]]++
			}
			lengths = [2][]float64{append(lengths[0], plain[j].length), append(lengths[1], got[j].length)}
			scores = [2][]float64{append(scores[0], plain[j].score), append(scores[1], got[j].score)}
		}
		for name, p := range map[string]float64{
			"line breaks": mcNemar(only[0], only[1]), "lengths": kolmogorov(lengths[0], lengths[1]), "log-probabilities": kolmogorov(scores[0], scores[1]),
		} {
			t.Logf("%v: %s: p = %.3f", rule, name, p)
			assert.Greater(t, p, least, "%v: %s", rule, name)
		}
	}
}

// mcNemar is the two-sided exact test of b against c differing pairs.
func mcNemar(b, c int) float64 {
	n, k := b+c, min(b, c)
	p, term := 0.0, math.Pow(2, -float64(n))
	for i := 0; i <= k; i++ {
		p += term
		term *= float64(n-i) / float64(i+1)
	}
	return min(1, 2*p)
}

// kolmogorov is the two-sided test of two samples, by the limiting distribution
// (with ties it errs towards 1).
func kolmogorov(a, b []float64) float64 {
	largest := 0.0
	for _, x := range slices.Concat(a, b) {
		share := func(s []float64) float64 {
			n := 0
			for _, y := range s {
				if y <= x {
					n++
				}
			}
			return float64(n) / float64(len(s))
		}
		largest = max(largest, math.Abs(share(a)-share(b)))
	}
	n := math.Sqrt(float64(len(a)*len(b)) / float64(len(a)+len(b)))
	l := (n + 0.12 + 0.11/n) * largest
	if l < 0.3 {
		return 1
	}
	p := 0.0
	for j := 1; j <= 100; j++ {
		p += 2 * math.Pow(-1, float64(j-1)) * math.Exp(-2*l*l*float64(j*j))
	}
	return min(1, max(0, p))
}

// Values of tables: 1 against 9 pairs, and D = 0.5 of 20 against 20.
func TestTwoSampleTests(t *testing.T) {
	assert.InDelta(t, 22.0/1024, mcNemar(1, 9), 1e-12, "2 (1 + 10) / 2^10")
	assert.Equal(t, 1.0, mcNemar(0, 0))
	var a, b []float64
	for i := range 20 {
		a, b = append(a, float64(i)), append(b, float64(i+10))
	}
	assert.InDelta(t, 0.0082, kolmogorov(a, b), 0.001, "l = (3.1623 + .12 + .0348) / 2 = 1.6585")
	assert.Equal(t, 1.0, kolmogorov(a, a))
}
