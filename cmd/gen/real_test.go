package main

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/llama"
)

// realPrompts are of several kinds: prose, code, a list, another alphabet, and
// a conversation in the model's own format.
var realPrompts = []string{
	"The capital of France is",
	"func fibonacci(n int) int {\n",
	"Shopping list:\n1. Milk\n2. Bread\n3.",
	"Москва - это",
	"<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n",
}

// tieBound is how far two logits may lie apart that rounding exchanges.
const tieBound = 0.05

// TestGreedyTextIsThatOfLlamaCpp compares with llama.cpp's own program, token
// for token. A difference must begin where the two best tokens nearly tie.
func TestGreedyTextIsThatOfLlamaCpp(t *testing.T) {
	model := realModel(t)
	if _, err := os.Stat(toolPath); err != nil {
		t.Fatalf("%v: run `./build.sh --tools=llama-completion`", err)
	}
	for _, prompt := range realPrompts {
		flags := []string{"-m", model, "-p", prompt, "-n", "64", "--temp", "0", "-c", "1024", "-no-cnv", "--no-display-prompt"}
		out, err := exec.Command(toolPath, flags...).Output()
		require.NoError(t, err)
		want := strings.TrimRight(string(out), "\n")
		want, ended := strings.CutSuffix(want, " [end of text]")

		var got string
		var ids []int32
		for line := range strings.Lines(text(t, append(flags, "--json")...)) {
			var token struct {
				ID   *int32
				Text string
			}
			require.NoError(t, json.Unmarshal([]byte(line), &token))
			if token.ID == nil {
				break // the statistics
			}
			if !strings.HasPrefix(want, strings.TrimRight(got+token.Text, "\n")) {
				gap := topGap(t, model, prompt, ids)
				t.Logf("%q: the texts differ from token %d on, where the best two logits differ by %g", prompt, len(ids), gap)
				assert.LessOrEqual(t, gap, tieBound, "gen %q, llama-completion %q", got+token.Text, want)
				want = ""
				break
			}
			ids = append(ids, *token.ID)
			got += token.Text
		}
		if want != "" {
			assert.Equal(t, want, strings.TrimRight(got, "\n"), prompt)
			assert.True(t, ended || len(ids) == 64, "%d tokens", len(ids))
		}
	}
}

// TestSamplingIsThatOfLlamaCpp: with llama.cpp's generator the sampling flags
// give the text of its own program. A difference must begin where rounding
// decides: where the two best logits nearly tie, or the number drawn lies next
// to where the share of the one token ends and that of the other begins.
func TestSamplingIsThatOfLlamaCpp(t *testing.T) {
	for i, sampling := range []string{
		"--temp 0.8",
		"--temp 0 --repeat-penalty 1.3",
		"--temp 0 --dry-multiplier 0.8 --dry-allowed-length 1",
		"--top-nsigma 1",
		"--dynatemp-range 0.5 --dynatemp-exp 1.5 --frequency-penalty 0.5 --presence-penalty 0.3",
		"--sampler-seq ktm --min-p 0.2 --temp 1.5",
	} {
		flags := append([]string{"-m", realModel(t), "-p", realPrompts[i%2], "-n", "24", "-c", "256", "-s", "42"}, strings.Fields(sampling)...)
		out, err := exec.Command(toolPath, append(flags, "-no-cnv", "--no-display-prompt")...).Output()
		require.NoError(t, err, sampling)
		want := strings.TrimSuffix(strings.TrimRight(string(out), "\n"), " [end of text]")

		file := filepath.Join(t.TempDir(), "trace")
		lines := strings.Split(text(t, append(flags, "--draw", "mt19937", "--trace", file, "--json", "--logprobs", "40")...), "\n")
		trace, err := os.ReadFile(file)
		require.NoError(t, err)
		got := ""
		for i, line := range strings.Split(strings.TrimSpace(string(trace)), "\n") {
			var chosen traceLine
			require.NoError(t, json.Unmarshal([]byte(line), &chosen))
			var token jsonToken
			require.NoError(t, json.Unmarshal([]byte(lines[i]), &token))
			if strings.HasPrefix(want, strings.TrimRight(got+token.Text, "\n")) {
				got += token.Text
				continue
			}
			near, sum := math.Inf(1), 0.0
			if strings.HasPrefix(sampling, "--temp 0 ") {
				top := chosen.Steps[len(chosen.Steps)-2].Top // of what the temperature chose from
				near = float64(top[0].Logit - top[1].Logit)
			} else {
				next := func(x jsonTop) bool { return strings.HasPrefix(want, got+x.Text) }
				for j, x := range token.PostSamplingTop[1:] {
					before := token.PostSamplingTop[j]
					sum += math.Exp(before.LogProb)
					if before.ID == token.ID && next(x) || x.ID == token.ID && next(before) {
						near = min(near, math.Abs(chosen.Uniform-sum))
					}
				}
			}
			t.Logf("%s: the texts differ from token %d on, which is %g from another", sampling, i, near)
			assert.LessOrEqual(t, near, tieBound/2, "%s: gen %q, llama-completion %q", sampling, got+token.Text, want)
			want = got
			break
		}
		assert.Equal(t, strings.TrimRight(want, "\n"), strings.TrimRight(got, "\n"), sampling)
	}
}

// topGap is the difference of the best two logits after a text.
func topGap(t *testing.T, path, prompt string, ids []int32) float64 {
	t.Helper()
	m, err := llama.Open(context.Background(), path, llama.ModelOptions{})
	require.NoError(t, err)
	defer m.Close()
	s, err := m.NewSession(llama.SessionOptions{Context: 1024})
	require.NoError(t, err)
	defer s.Close()
	tokens, err := promptTokens(m.Vocab(), prompt)
	require.NoError(t, err)
	tokens = append(tokens, ids...)
	rows := make([]eval.Row, len(tokens))
	for i, id := range tokens {
		rows[i] = eval.Row{Token: id, Output: i == len(tokens)-1}
	}
	require.NoError(t, s.Eval(context.Background(), rows))
	logits := slices.Sorted(slices.Values(s.Logits(len(rows) - 1)))
	return float64(logits[len(logits)-1]) - float64(logits[len(logits)-2])
}

// TestTextSurvivesTheProcess: 200 tokens are saved, the process ends, another
// one loads them and goes on.
func TestTextSurvivesTheProcess(t *testing.T) {
	for _, prompt := range []string{realPrompts[0], realPrompts[4]} {
		args := []string{"-m", realModel(t), "-c", "512", "-s", "11", "--ignore-eos", "--no-perf"}
		whole := text(t, append(args, "-p", prompt, "-n", "230")...)
		cache := append(args, "--prompt-cache", filepath.Join(t.TempDir(), "cache"), "--prompt-cache-all")
		first := text(t, append(cache, "-p", prompt, "-n", "200")...)
		rest := text(t, append(cache, "-p", "", "-n", "30")...)
		assert.Equal(t, whole, first+rest)
	}
}

func TestExactMode(t *testing.T) {
	args := []string{"-m", realModel(t), "-c", "1024", "-p", realPrompts[0], "-n", "16", "--temp", "0"}
	r := gen(t, append(args, "--exact", "--explain")...)
	if r.status == exitDone {
		assert.NotEmpty(t, r.stdout)
		assert.Regexp(t, `(?m)^--exact +on +flag$`, r.stderr)
	} else { // this machine cannot: then it says so
		assert.Equal(t, exitFailure, r.status)
		assert.Contains(t, r.stderr, "gen: exact mode: ")
	}
}

// TestFirstExample: the command line that the short usage shows works.
func TestFirstExample(t *testing.T) {
	realModel(t)
	command, _ := strings.CutPrefix(example, "bin/gen ")
	cmd := exec.Command("sh", "-c", program+" "+command)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.NotEmpty(t, out)
}

// A context shift carries a text past the end of its context.
func TestContextShift(t *testing.T) {
	var summary struct {
		Finish    string
		Generated int `json:"generated_tokens"`
	}
	flags := []string{"-m", realModel(t), "-p", "Once upon a time", "-c", "256", "-n", "280", "--ignore-eos", "-s", "3", "--json"}
	last := func(lines string) string {
		all := strings.Split(strings.TrimSpace(lines), "\n")
		return all[len(all)-1]
	}
	require.NoError(t, json.Unmarshal([]byte(last(text(t, flags...))), &summary))
	assert.Equal(t, "context full", summary.Finish)
	require.NoError(t, json.Unmarshal([]byte(last(text(t, append(flags, "--context-shift", "--keep", "4")...))), &summary))
	assert.Equal(t, "max tokens", summary.Finish)
	assert.Equal(t, 280, summary.Generated)
}
