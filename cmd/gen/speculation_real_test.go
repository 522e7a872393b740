package main

import (
	"context"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/generate"
	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/sampler"
	"github.com/sortes-llm/sortes/speculative"
)

// smol is the path of the real model in a weight type.
func smol(t *testing.T, weights string) string {
	t.Helper()
	name := strings.Replace(modelPath, "Q4_1", weights, 1)
	if _, err := os.Stat(name); err != nil {
		t.Fatalf("%v: run `make models`", err)
	}
	return name
}

// openWith opens the models of a command line in this process. It returns nil
// models where exact mode is not possible on this machine.
func openWith(t *testing.T, args ...string) (*options, *models) {
	t.Helper()
	return openFor(t, 0, args...)
}

// openFor is openWith with so many sequences, where gen has one or two; 0 for
// those.
func openFor(t *testing.T, sequences int, args ...string) (*options, *models) {
	t.Helper()
	o := parse(t, args...)
	require.NoError(t, o.resolve())
	if sequences > 0 {
		o.session.Sequences = sequences
		o.session.Outputs = sequences * (o.speculation.most + 1)
	}
	a := &app{ctx: t.Context(), stdout: io.Discard, stderr: io.Discard}
	a.log = newLogHandler(io.Discard)
	t.Cleanup(a.log.close)
	m, err := a.openModels(o)
	require.NoError(t, err)
	t.Cleanup(m.close)
	if err := m.start(a.ctx, o); err != nil {
		require.ErrorContains(t, err, "exact mode: ")
		t.Log(err)
		return o, nil
	}
	return o, m
}

// generateWith returns the text of a request with the drafters of o. The model
// reads the prompt anew.
func generateWith(t *testing.T, o *options, m *models, r generate.Request) ([]int32, generate.Stats) {
	t.Helper()
	for _, s := range append([]*llama.Session{m.session}, m.followers...) {
		require.NoError(t, s.Clear())
	}
	e, err := m.engine(o, generate.Vocab(m.target.Vocab()), nil, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer e.Close()
	var stats generate.Stats
	r.Stats = &stats
	var ids []int32
	for token, err := range e.Stream(t.Context(), r) {
		require.NoError(t, err)
		ids = append(ids, token.ID)
	}
	return ids, stats
}

// longPrompts are n texts of several kinds, more than 280 tokens each.
func longPrompts(t *testing.T, v *llama.Vocab, n int) [][]int32 {
	kinds := append(slices.Clone(realPrompts),
		"The night was cold, and the old lighthouse keeper climbed the stairs once more. He lit the lamp, as he had done every evening for forty years, and looked out over the black water. ",
		"def area(width, height):\n    \"\"\"Return the area of a rectangle.\"\"\"\n    return width * height\n\ndef volume(width, height, depth):\n    \"\"\"Return the volume of a box.\"\"\"\n    return area(width, height) * depth\n\n",
		"{\"name\": \"Ada\", \"born\": 1815, \"city\": \"London\"}\n{\"name\": \"Alan\", \"born\": 1912, \"city\": \"London\"}\n{\"name\": \"Grace\", \"born\": 1906, \"city\": \"New York\"}\n",
		"Question: What is 12 + 30?\nAnswer: 42\nQuestion: What is 7 times 8?\nAnswer: 56\n")
	var all [][]int32
	for i := range n {
		text := ""
		var tokens []int32
		for j := 0; len(tokens) < 281+i; j++ {
			text += kinds[(i+j*(1+i%4))%len(kinds)]
			var err error
			tokens, err = promptTokens(v, text)
			require.NoError(t, err)
		}
		all = append(all, tokens[:281+i])
	}
	return all
}

// A way to draft, with a length that is drafted in every round as far as there
// is anything to propose.
var waysToDraft = []wayToDraft{{types: "draft", most: 4}, {types: "ngram", most: 9}, {types: "draft,ngram", most: 6}}

type wayToDraft struct {
	types  string
	most   int
	widths []int
}

func samplings() []sampler.Config {
	return []sampler.Config{{}, {Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05}}
}

// TestDraftedTextIsPlain: in exact mode the text with drafts is that without,
// token for token, behind 280 tokens and more, whoever drafts. The models are
// evaluated by llama.cpp: what this shows beyond the tests of package generate is
// that a row does not depend on the drafts beside it, nor on those that fell.
func TestDraftedTextIsPlain(t *testing.T) {
	prompts, tokens, weights := 4, 40, []string{"F16", "Q8_0", "Q4_1"}
	stress := os.Getenv("SORTES_STRESS") != ""
	if stress {
		prompts, tokens = 20, 100
	}
	for _, w := range weights {
		o, m := openWith(t, "-m", smol(t, w), "-md", smol(t, "Q4_0"), "-c", "512", "--exact", "--spec-adaptive", "off")
		if m == nil {
			continue
		}
		var drafts speculative.Stats
		for i, prompt := range longPrompts(t, m.target.Vocab(), prompts) {
			for j, sampling := range samplings() {
				if !stress && i%2 != j {
					continue
				}
				r := generate.Request{Prompt: prompt, MaxTokens: tokens, Sampling: sampling, Seed: uint64(i), IgnoreEOG: true}
				o.speculation.types = nil
				want, _ := generateWith(t, o, m, r)
				for _, way := range waysToDraft {
					require.NoError(t, o.find("--spec-type").set(way.types))
					o.speculation.most = way.most
					got, stats := generateWith(t, o, m, r)
					assert.Equal(t, want, got, "%s, prompt %d, temperature %v, %s", w, i, sampling.Temperature, way.types)
					drafts.Merge(stats.Drafts)
				}
			}
		}
		m.close()
		t.Logf("%s: %d drafts, acceptance %.2f", w, drafts.Drafts, drafts.Acceptance())
		assert.Greater(t, drafts.Acceptance(), 0.3)
		assert.Less(t, drafts.Acceptance(), 0.99, "some drafts have to fall")
	}
}

// TestDraftedTextIsPlainButForTies: outside exact mode a row may depend on those
// beside it, by as much as the probe says. Where a text differs from the plain
// one, its first other token and the plain one must lie closer than twice that.
func TestDraftedTextIsPlainButForTies(t *testing.T) {
	prompts := 2
	if os.Getenv("SORTES_STRESS") != "" {
		prompts = 20
	}
	o, m := openWith(t, "-m", smol(t, "Q4_1"), "-md", smol(t, "Q4_0"), "-c", "1024", "--spec-adaptive", "off", "--spec-draft-widths", "3,2")
	ways := append(slices.Clone(waysToDraft), wayToDraft{"draft", 7, o.speculation.widths})
	branched := 0
	noise, err := m.session.Probe(t.Context())
	require.NoError(t, err)
	t.Logf("noise of a row by those beside it: %.3g", noise.MaxAbs)
	for i, prompt := range longPrompts(t, m.target.Vocab(), prompts) {
		for _, temperature := range []float64{0, 0.8} {
			r := generate.Request{Prompt: prompt, MaxTokens: 60, Sampling: sampler.Config{Temperature: temperature}, Seed: uint64(i), IgnoreEOG: true}
			o.speculation.types = nil
			want, _ := generateWith(t, o, m, r)
			for _, way := range ways {
				require.NoError(t, o.find("--spec-type").set(way.types))
				o.speculation.most, o.speculation.widths = way.most, way.widths
				got, stats := generateWith(t, o, m, r)
				if d := stats.Drafts; way.widths != nil {
					branched += d.Drafter[0].Drafted - 4*d.Drafter[0].Drafts // 7 tokens, of which 4 follow one another
				}
				at := 0
				for at < len(want) && got[at] == want[at] {
					at++
				}
				if at == len(want) {
					continue
				}
				text := append(slices.Clone(prompt), want[:at]...)
				require.NoError(t, m.session.Clear())
				row := rowAfter(t, m.session, 0, text)
				scale, noiseOf := 1.0, func(int32) float64 { return 0 }
				if temperature > 0 {
					draw := sampler.Draw{Seed: r.Seed, Pos: len(text)}
					scale, noiseOf = temperature, draw.Gumbel
				}
				score := func(id int32) float64 { return row[id]/scale + noiseOf(id) }
				gap := math.Abs(score(want[at])-score(got[at])) * scale
				t.Logf("prompt %d, temperature %v, %s %v: the texts differ from token %d on, where the two are %.3g apart", i, temperature, way.types, way.widths, at, gap)
				assert.LessOrEqual(t, gap, 2*noise.MaxAbs)
			}
		}
	}
	assert.Greater(t, branched, 50, "drafts were trees")
}

// rowAfter evaluates what a sequence does not hold of a text yet, token by token,
// and returns the logits that follow.
func rowAfter(t *testing.T, s *llama.Session, seq int, text []int32) []float64 {
	t.Helper()
	for _, id := range text[s.Len(seq):] {
		require.NoError(t, s.Eval(context.Background(), []eval.Row{{Token: id, Seq: seq, Output: true}}))
	}
	row := make([]float64, s.Limits().Vocab)
	for i, x := range s.Logits(0) {
		row[i] = float64(x)
	}
	return row
}

// TestCombinedTextIsByTheFormulas: contrastive decoding with the model's own
// 4-bit form as the amateur, and guidance, against a loop that evaluates every
// row by itself and has the published formulas:
//
//	guidance (Sanchez et al. 2023)       l = c + (g - 1) (c - u)
//	contrast (O'Brien and Lewis 2023)    l = (1 + b) e - b a    where e >= max e + log alpha
//	contrast (Li et al. 2022)            l = log softmax(e) - log softmax(a/T)    likewise
//
// All in exact mode, so that the texts must be the same to the last token, with
// drafts as without.
func TestCombinedTextIsByTheFormulas(t *testing.T) {
	const tokens = 12
	amateur := smol(t, "Q4_0")
	o, m := openWith(t, "-m", smol(t, "F16"), "-md", amateur, "--cd-model", amateur, "--guidance-scale", "2",
		"-c", "512", "--exact", "--spec-adaptive", "off", "--spec-draft-n-max", "3")
	if m == nil {
		return
	}
	prompt, err := promptTokens(m.target.Vocab(), realPrompts[0])
	require.NoError(t, err)
	negative, err := promptTokens(m.target.Vocab(), "Bad")
	require.NoError(t, err)
	for _, flags := range []string{
		"--cd-model x",
		"--cd-model x --cd-form log --cd-alpha 0.02 --cd-temp 1.3",
		"--guidance-scale 1.7 --negative-prompt Bad",
		"--guidance-scale 0.4 --negative-prompt Bad --cd-model x --cd-beta 1.5",
	} {
		o.contrast = parse(t, strings.Fields(flags)...).contrast
		for _, sampling := range samplings() {
			r := generate.Request{Prompt: prompt, MaxTokens: tokens, Sampling: sampling, Seed: 9, IgnoreEOG: true}
			require.NoError(t, o.combine(&r, m.target.Vocab(), 512))
			got, stats := generateWith(t, o, m, r)
			assert.Positive(t, stats.Drafts.Drafts, flags)
			r.NoDrafts = true
			plain, _ := generateWith(t, o, m, r)
			assert.Equal(t, plain, got, flags)

			require.NoError(t, m.session.Clear())
			require.NoError(t, m.followers[0].Clear())
			s, err := sampler.New(sampling)
			require.NoError(t, err)
			text, other := slices.Clone(prompt), slices.Clone(negative)
			for len(text) < len(prompt)+tokens {
				row := rowAfter(t, m.session, 0, text)
				if g := o.contrast.scale; g != 1 {
					u := rowAfter(t, m.session, 1, other)
					for i, c := range row {
						row[i] = float64(float32(c + (g-1)*(c-u[i])))
					}
				}
				if len(o.contrast.amateurs) > 0 {
					contrast(row, rowAfter(t, m.followers[0], 0, text), o.contrast.settings)
				}
				logits := make([]float32, len(row))
				for i, x := range row {
					logits[i] = float32(x)
				}
				id, err := s.Pick(logits, text, sampler.Draw{Seed: r.Seed, Pos: len(text)})
				require.NoError(t, err)
				text, other = append(text, id), append(other, id)
			}
			assert.Equal(t, text[len(prompt):], got, "%s, temperature %v", flags, sampling.Temperature)
		}
	}
}

// contrast makes the logits e of the model those of contrastive decoding.
func contrast(e, a []float64, c sampler.Contrast) {
	bound := slices.Max(e) + math.Log(c.Alpha)
	for i := range a {
		a[i] /= c.AmateurTemperature
	}
	eSum, aSum := logSum(e), logSum(a)
	for i, x := range e {
		switch {
		case x < bound:
			e[i] = math.Inf(-1)
		case c.Form == sampler.ContrastLogProbs:
			e[i] = (x - eSum) - (a[i] - aSum)
		default:
			e[i] = (1+c.Beta)*x - c.Beta*a[i]
		}
	}
}

func logSum(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(v)
	}
	return math.Log(sum)
}
