package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/generate"
	"github.com/sortes-llm/sortes/internal/gguf"
	"github.com/sortes-llm/sortes/internal/tinymodel"
)

var statistics = regexp.MustCompile(`(?m)^prompt: (\d+) tokens(?: \((?:(\d+) from the cache)?(?:, )?(?:\d+ evaluated)?\))?, [0-9.]+ tokens/s; ` +
	`generated: (\d+) tokens, [0-9.]+ tokens/s; load: [0-9.]+ s; finish: (.*); seed: (\d+)$`)

// stats returns the fields of the statistics line.
func stats(t *testing.T, r result) (prompt, cached, generated, finish, seed string) {
	t.Helper()
	m := statistics.FindStringSubmatch(r.stderr)
	require.NotNil(t, m, "no statistics in %q", r.stderr)
	return m[1], m[2], m[3], m[4], m[5]
}

func TestTextAndNothingElse(t *testing.T) {
	r := gen(t, "-m", tiny, "-p", "the and", "-n", "20", "-s", "5")
	require.Equal(t, exitDone, r.status, r.stderr)
	prompt, _, generated, finish, seed := stats(t, r)
	assert.Equal(t, "3", prompt, "BOS and two words")
	assert.Equal(t, "20", generated)
	assert.Equal(t, "max tokens", finish)
	assert.Equal(t, "5", seed)
	assert.NotEmpty(t, r.stdout)
	assert.Equal(t, 1, strings.Count(strings.Trim(r.stderr, "\n"), "\n")+1, "nothing but the statistics: %s", r.stderr)

	quiet := gen(t, "-m", tiny, "-p", "the and", "-n", "20", "-s", "5", "--no-perf")
	assert.Equal(t, result{exitDone, r.stdout, ""}, quiet, "the same seed gives the same text")
	assert.NotEqual(t, r.stdout, text(t, "-m", tiny, "-p", "the and", "-n", "20", "-s", "6"))
}

func TestRandomSeedIsPrintedAndRepeatsTheText(t *testing.T) {
	first := gen(t, "-m", tiny, "-p", "the", "-n", "30")
	_, _, _, _, seed := stats(t, first)
	assert.Equal(t, first.stdout, text(t, "-m", tiny, "-p", "the", "-n", "30", "-s", seed))
	_, _, _, _, another := stats(t, gen(t, "-m", tiny, "-p", "the", "-n", "1"))
	assert.NotEqual(t, seed, another)
}

func TestPromptSources(t *testing.T) {
	args := []string{"-m", tiny, "-n", "12", "-s", "1"}
	want := text(t, append(args, "-p", "one\n two")...)
	file := filepath.Join(t.TempDir(), "prompt")
	require.NoError(t, os.WriteFile(file, []byte("one\n two\n"), 0o600))

	assert.Equal(t, want, text(t, append(args, "-f", file)...), "-f drops one newline")
	assert.Equal(t, want, genWith(t, "one\n two\n", args...).stdout, "standard input too")
	assert.Equal(t, want, text(t, append(args, "-p", `one\n two`)...), "escapes")
	assert.NotEqual(t, want, text(t, append(args, "-p", `one\n two`, "--no-escape")...))
	assert.Equal(t, text(t, append(args, "-p", "one\n two\n")...), text(t, append(args, "-bf", file)...), "-bf drops nothing")

	require.NoError(t, os.WriteFile(file, []byte(`one\n two`), 0o600))
	assert.Equal(t, text(t, append(args, "-p", `one\n two`, "--no-escape")...), text(t, append(args, "-f", file)...), "no escapes in files")

	assert.Equal(t, "ab"+text(t, append(args, "-p", "ab")...), text(t, append(args, "-p", "ab", "--display-prompt")...))
	assert.True(t, strings.HasPrefix(text(t, append(args, "-p", "ab", "--display-prompt", "--color", "on")...), "\x1b[33mab\x1b[0m"))

	// This model begins a text by itself.
	r := gen(t, append(args, "-p", "")...)
	prompt, _, _, _, _ := stats(t, r)
	assert.Equal(t, "1", prompt)
}

func TestBinaryPrompt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prompt")
	require.NoError(t, os.WriteFile(file, []byte("a\xffb"), 0o600))
	r := gen(t, "-m", tiny, "-f", file, "-n", "3")
	assert.Equal(t, result{exitUsage, "", "gen: the prompt in " + file + " is not UTF-8: byte 1 is 0xff; --binary-file takes any bytes\n"}, r)
	r = gen(t, "-m", tiny, "-bf", file, "-n", "3", "--verbose-prompt")
	assert.Equal(t, exitDone, r.status)
	assert.Contains(t, r.stderr, fmt.Sprintf("%7d  \"<s>\"\n%7d  \"a\"\n", tinymodel.BOS, tinymodel.Byte+'a'))
}

func TestNoTokens(t *testing.T) {
	r := gen(t, "-m", tiny, "-p", "the", "-n", "0")
	_, _, generated, _, _ := stats(t, r)
	assert.Equal(t, exitDone, r.status)
	assert.Empty(t, r.stdout)
	assert.Equal(t, "0", generated)
}

func TestEndOfTheContext(t *testing.T) {
	for _, n := range []string{"-1", "-2"} {
		r := gen(t, "-m", tiny, "-p", "the", "-n", n, "-c", "256", "--ignore-eos")
		prompt, _, generated, finish, _ := stats(t, r)
		assert.Equal(t, exitDone, r.status)
		assert.Equal(t, "2", prompt)
		assert.Equal(t, "255", generated, "the last of 256 + 1 tokens need not be evaluated")
		assert.Equal(t, "context full", finish)
		assert.Contains(t, r.stderr, "gen: note: the context is full with 257 tokens: -c makes it larger")
	}
	r := gen(t, "-m", tiny, "-p", strings.Repeat("x ", 200), "-c", "256")
	assert.Equal(t, result{exitFailure, "", "gen: the prompt has 401 tokens and the context holds 256: shorten it, or choose a larger context with -c\n"}, r)
	r = gen(t, "-m", tiny, "-p", "the", "-n", "1", "-c", "100")
	assert.Contains(t, r.stderr, "gen: note: -c 100 becomes 256")
}

// endBias makes the end of a turn a little more likely than anything else.
const endBias = "3+1000"

func TestEndTokens(t *testing.T) {
	args := []string{"-m", tiny, "-p", "the", "-n", "5", "--temp", "0", "-l", endBias}
	r := gen(t, args...)
	_, _, generated, finish, _ := stats(t, r)
	assert.Empty(t, r.stdout)
	assert.Equal(t, "0", generated)
	assert.Equal(t, "end token", finish)

	assert.Equal(t, "<|im_end|>", text(t, append(args, "-sp")...))

	r = gen(t, append(args, "--ignore-eos", "-sp")...)
	_, _, generated, finish, _ = stats(t, r)
	assert.Equal(t, "5", generated)
	assert.Equal(t, "max tokens", finish)
	assert.NotContains(t, r.stdout, "<|im_end|>", "it is never chosen")
}

func TestReversePrompt(t *testing.T) {
	args := []string{"-m", tiny, "-p", "the", "-n", "40", "-s", "2"}
	whole := text(t, args...)
	require.Greater(t, len(whole), 20)
	at := 10
	stop := string([]rune(whole)[at : at+3])
	want, _, _ := strings.Cut(whole, stop)
	r := gen(t, append(args, "-r", "not in the text", "-r", stop)...)
	_, _, _, finish, _ := stats(t, r)
	assert.Equal(t, want, r.stdout)
	assert.Equal(t, fmt.Sprintf("stop string %q", stop), finish)

	// Escapes are replaced, and left alone where -p has them left alone.
	escaped := ""
	for _, b := range []byte(stop) {
		escaped += fmt.Sprintf(`\x%02x`, b)
	}
	assert.Equal(t, want, text(t, append(args, "-r", escaped)...))
	assert.Equal(t, whole, text(t, append(args, "-r", escaped, "--no-escape")...))
}

func TestJSON(t *testing.T) {
	args := []string{"-m", tiny, "-p", "the", "-n", "8", "-s", "4"}
	want := text(t, args...)
	r := gen(t, append(args, "--json", "--logprobs", "3")...)
	require.Equal(t, exitDone, r.status)
	assert.Empty(t, r.stderr)
	lines := strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
	require.Len(t, lines, 9)
	var got string
	for i, line := range lines[:8] {
		var token struct {
			Index   int
			ID      int32
			Text    string
			LogProb *float64
			Top     []struct {
				ID      int32
				Text    *string
				LogProb float64
			}
			Post    *float64 `json:"post_sampling_logprob"`
			PostTop []struct {
				ID      int32
				Text    *string
				LogProb *float64
			} `json:"post_sampling_top"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &token))
		assert.Equal(t, i, token.Index)
		got += token.Text
		require.NotNil(t, token.LogProb)
		assert.Less(t, *token.LogProb, 0.0)
		require.Len(t, token.Top, 3)
		assert.GreaterOrEqual(t, token.Top[0].LogProb, token.Top[1].LogProb)
		assert.GreaterOrEqual(t, token.Top[0].LogProb, *token.LogProb)
		assert.NotNil(t, token.Top[0].Text)
		require.NotNil(t, token.Post)
		assert.LessOrEqual(t, *token.Post, 0.0)
		require.NotEmpty(t, token.PostTop)
		assert.Equal(t, token.Top[0].ID, token.PostTop[0].ID)
		assert.NotNil(t, token.PostTop[0].Text)
		assert.GreaterOrEqual(t, *token.PostTop[0].LogProb, *token.Post)
	}
	assert.Equal(t, want, got)
	var sum map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[8]), &sum))
	assert.Equal(t, "max tokens", sum["finish"])
	assert.EqualValues(t, 4, sum["seed"])
	assert.EqualValues(t, 8, sum["generated_tokens"])
	assert.EqualValues(t, 2, sum["prompt_tokens"])

	plain := text(t, append(args, "--json")...)
	assert.NotContains(t, plain, "logprob")
	assert.NotContains(t, plain, "post_sampling")

	// Without filters both are the same; at temperature 0 one token is left.
	for _, flags := range []string{"--samplers temperature --temp 1", "--temp 0"} {
		for line := range strings.Lines(text(t, append(args, append(strings.Fields(flags), "--json", "--logprobs", "2")...)...)) {
			var token jsonToken
			require.NoError(t, json.Unmarshal([]byte(line), &token))
			switch {
			case token.LogProb == nil: // the statistics
			case flags == "--temp 0":
				assert.Zero(t, *token.PostSamplingLogProb)
				assert.Equal(t, []jsonTop{{token.ID, token.Top[0].Text, 0}}, token.PostSamplingTop)
			default:
				assert.InDelta(t, *token.LogProb, *token.PostSamplingLogProb, 1e-5)
				for i, x := range token.Top {
					assert.Equal(t, x.ID, token.PostSamplingTop[i].ID)
					assert.InDelta(t, x.LogProb, token.PostSamplingTop[i].LogProb, 1e-5)
				}
			}
		}
	}
}

// TestTrace: the lines of --trace tell what the text and its probabilities
// tell, and the text is the same.
func TestTrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace")
	args := []string{"-m", tiny, "-p", "the", "-n", "8", "-s", "4", "--json", "--logprobs", "2", "--repeat-penalty", "1.1", "--top-p", "1"}
	plain := text(t, args...)
	require.Equal(t, strings.Split(plain, `"finish"`)[0], strings.Split(text(t, append(args, "--trace", file)...), `"finish"`)[0])
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	require.Len(t, lines, 8)
	tokens := strings.Split(plain, "\n")
	for i, line := range lines {
		var token jsonToken
		require.NoError(t, json.Unmarshal([]byte(tokens[i]), &token))
		var object map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &object))
		for _, key := range []string{"index", "pos", "id", "text", "prob", "seed", "draw", "uniform", "steps"} {
			assert.Contains(t, object, key)
		}
		assert.Len(t, object, 9)
		var got traceLine
		require.NoError(t, json.Unmarshal([]byte(line), &got))
		assert.Equal(t, i, got.Index)
		assert.Equal(t, 2+i, got.Pos, "BOS and a word")
		assert.Equal(t, token.ID, got.ID)
		assert.EqualValues(t, 4, got.Seed)
		assert.Equal(t, "gumbel", got.Draw)
		assert.InDelta(t, *token.PostSamplingLogProb, math.Log(got.Prob), 1e-5)
		var names []string
		for _, s := range got.Steps {
			names = append(names, s.Name)
		}
		assert.Equal(t, []string{"logits", "penalties", "top_k", "min_p", "temperature"}, names)
		first, topK, last := got.Steps[0], got.Steps[2], got.Steps[4]
		assert.Equal(t, tinymodel.Vocab, first.Candidates)
		assert.True(t, first.Row)
		assert.InDelta(t, token.Top[0].LogProb, math.Log(first.Top[0].Prob), 1e-5)
		assert.Equal(t, token.Top[0].ID, first.Top[0].ID)
		assert.Equal(t, 40, topK.Candidates)
		assert.False(t, topK.Row)
		assert.Len(t, topK.Top, traceTop)
		assert.LessOrEqual(t, got.Steps[3].Candidates, 40)
		assert.Equal(t, 0.8, last.Temperature)
		assert.Equal(t, 1.0, got.Steps[3].Temperature)
		assert.InDelta(t, token.PostSamplingTop[0].LogProb, math.Log(last.Top[0].Prob), 1e-5)
	}

	// An end token has a line though it is no part of the text.
	text(t, "-m", tiny, "-p", "the", "-n", "5", "--temp", "0", "-l", endBias, "--trace", file)
	data, err = os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(data), "\n"))
	assert.Contains(t, string(data), `"text":"<|im_end|>"`)

	r := gen(t, "-m", tiny, "-p", "the", "-n", "5", "--trace", "/")
	assert.Equal(t, result{exitFailure, "", "gen: trace /: is a directory\n"}, r)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(tiny, link))
	r = gen(t, "-m", tiny, "-p", "the", "-n", "5", "--trace", link)
	assert.Equal(t, result{exitUsage, "", "gen: --trace " + link + ": it would overwrite " + tiny + "\n"}, r)
	r = gen(t, "-m", tiny, "-p", "the", "-n", "5", "--trace", "/dev/full")
	assert.Equal(t, exitFailure, r.status)
	assert.NotEmpty(t, r.stdout, "the text is written")
	assert.Contains(t, r.stderr, "gen: trace /dev/full: no space left on device\n")
}

func TestExplain(t *testing.T) {
	t.Setenv("LLAMA_ARG_MIN_P", "0.25")
	model := withMetadata(t, gguf.NewKV("general.sampling.top_k", int32(11)), gguf.NewKV("general.sampling.temp", float32(0.5)),
		gguf.NewKV("general.sampling.min_p", float32(0.75)), gguf.NewKV("general.sampling.top_p", float32(0.5)),
		gguf.NewKV("general.sampling.mirostat_tau", float32(3)), gguf.NewKV("general.sampling.xtc_threshold", float32(0.25)))
	r := gen(t, "-m", model, "-p", "two\nlines", "-n", "1", "--top-p", "0.75", "--explain", "--temp", "0.5")
	require.Equal(t, exitDone, r.status)
	for name, want := range map[string]string{
		"--top-p": "0.75 flag",
		"--min-p": "0.25 environment, LLAMA_ARG_MIN_P",
		"--top-k": "11 model, general.sampling.top_k",
		"--temp":  "0.5 flag",

		"--mirostat-ent":   "3 model, general.sampling.mirostat_tau",
		"--mirostat-lr":    "0.1 default",
		"--xtc-threshold":  "0.25 model, general.sampling.xtc_threshold",
		"--dry-multiplier": "0 default",
		"--ctx-size":       "2048 default (0: from the model)",
		"--prompt":         `"two\nlines" flag`,
	} {
		line := regexp.MustCompile(`(?m)^` + name + ` .*$`).FindString(r.stderr)
		assert.Equal(t, name+" "+want, strings.Join(strings.Fields(line), " "))
	}
	assert.Regexp(t, `(?m)^--seed +\d+ +default \(-1: drawn at random\)$`, r.stderr)
	for _, s := range newOptions().settings {
		if s.group != "" && s.of == nil && s.name() != "--help" && s.name() != "--version" {
			assert.Regexp(t, `(?m)^`+s.name()+` `, r.stderr)
		}
	}
	assert.Contains(t, r.stderr, "\nthe filters that run: top_k(11) -> top_p(0.75) -> min_p(0.25) -> temperature(0.5) -> draw\n")

	r = gen(t, "-m", model, "-p", "x", "-n", "1", "--explain", "--mirostat", "2", "--draw", "inverse", "--dry-sequence-breaker", `\n"`, "--suppress", "5")
	assert.Regexp(t, `(?m)^--dry-sequence-breaker "\\\\n\\"" +flag$`, r.stderr, "as it was typed, quoted once")
	assert.Contains(t, r.stderr, "\nthe filters that run: logit_bias(tokens: 1) -> temperature(0.5) -> mirostat(version 2, tau 3, eta 0.1) -> draw(inverse)\n")
}

// withMetadata is the tiny model with more metadata.
func withMetadata(t *testing.T, kvs ...gguf.KV) string {
	t.Helper()
	model, err := os.ReadFile(tiny)
	require.NoError(t, err)
	f, err := gguf.Read(bytes.NewReader(model), int64(len(model)))
	require.NoError(t, err)
	var tensors []gguf.Data
	for _, tensor := range f.Tensors {
		at := f.DataOffset + tensor.Offset
		tensors = append(tensors, gguf.Data{Name: tensor.Name, Shape: tensor.Shape, Type: tensor.Type, Bytes: model[at : at+tensor.Size]})
	}
	kept := f.KVs[:0]
	for _, kv := range f.KVs {
		replaced := false
		for _, other := range kvs {
			replaced = replaced || kv.Key == other.Key
		}
		if !replaced {
			kept = append(kept, kv)
		}
	}
	var out bytes.Buffer
	require.NoError(t, gguf.Write(&out, append(kept, kvs...), tensors))
	return tinymodel.Save(t.TempDir(), "model.gguf", out.Bytes())
}

func TestModelRecommendsSampling(t *testing.T) {
	args := []string{"-p", "the", "-n", "20", "-s", "9"}
	model := withMetadata(t,
		gguf.NewKV("general.sampling.sequence", "top_k;infill;typ_p;xtc;temperature"),
		gguf.NewKV("general.sampling.temp", float32(2)),
		gguf.NewKV("general.sampling.top_k", int32(3)),
		gguf.NewKV("general.sampling.penalty_last_n", int32(8)),
		gguf.NewKV("general.sampling.penalty_repeat", float32(1.5)),
		gguf.NewKV("general.sampling.xtc_probability", float32(0.5)),
		gguf.NewKV("general.sampling.xtc_threshold", float32(0.25)),
		gguf.NewKV("general.sampling.min_p", float32(0.5)),
		gguf.NewKV("general.sampling.future", int32(2)))
	r := gen(t, append(args, "-m", model)...)
	require.Equal(t, exitDone, r.status, r.stderr)
	same := []string{"-m", tiny, "--samplers", "top_k;xtc;temperature", "--temp", "2", "--xtc-probability", "0.5", "--xtc-threshold", "0.25"}
	assert.Equal(t, text(t, slices.Concat(args, same, []string{"--top-k", "3"})...), r.stdout)
	assert.Contains(t, r.stderr, "gen: note: the model's general.sampling.sequence names infill, which gen does not have")
	assert.Contains(t, r.stderr, "gen: note: the model's general.sampling.future 2 has no effect")
	assert.NotContains(t, r.stderr, "min_p", "what the model recommends in vain is no business of the user")

	assert.Equal(t, text(t, slices.Concat(args, same, []string{"--top-k", "30"})...), text(t, append(args, "-m", model, "--top-k", "30")...), "a flag wins")

	mirostat := withMetadata(t,
		gguf.NewKV("general.sampling.mirostat", int32(2)),
		gguf.NewKV("general.sampling.mirostat_tau", float32(2)),
		gguf.NewKV("general.sampling.mirostat_eta", float32(0.5)))
	r = gen(t, append(args, "-m", mirostat, "--top-k", "7")...)
	assert.Equal(t, text(t, append(args, "-m", tiny, "--mirostat", "2", "--mirostat-ent", "2", "--mirostat-lr", "0.5")...), r.stdout)
	assert.Contains(t, r.stderr, "gen: note: --top-k 7 has no effect with --mirostat 2, which the model recommends (general.sampling.mirostat)\n")
	assert.Equal(t, text(t, append(args, "-m", tiny)...), text(t, append(args, "-m", mirostat, "--mirostat", "0")...), "a flag wins")

	bad := withMetadata(t, gguf.NewKV("general.sampling.top_p", float32(3)))
	r = gen(t, append(args, "-m", bad)...)
	assert.Equal(t, exitFailure, r.status)
	assert.Equal(t, "gen: "+bad+": the model's general.sampling.top_p is 3.000000: want 0 to 1; 1 = off; --top-p overrides it\n", r.stderr)
	assert.Equal(t, exitDone, gen(t, append(args, "-m", bad, "--top-p", "0.9")...).status)
}

func TestSamplersChangeTheText(t *testing.T) {
	args := []string{"-m", tiny, "-p", "the", "-n", "24", "-s", "9"}
	base := text(t, args...)
	for _, flags := range []string{
		"--temp 0", "--temp 3", "--top-k 2", "--top-p 0.1", "--min-p 0.9", "--repeat-penalty 5", "--presence-penalty 9",
		"--frequency-penalty 9", "--samplers temp",
	} {
		assert.NotEqual(t, base, text(t, append(args, strings.Fields(flags)...)...), flags)
	}
	var first jsonToken
	line, _, _ := strings.Cut(text(t, append(args, "--json")...), "\n")
	require.NoError(t, json.Unmarshal([]byte(line), &first))
	assert.False(t, strings.HasPrefix(text(t, append(args, "-l", fmt.Sprintf("%d-inf", first.ID))...), first.Text), "its first token is banned")

	greedy := text(t, append(args, "--temp", "0")...)
	for _, flags := range []string{"--top-k 1", "--top-p 0", "--min-p 1", "--top-p 0 --samplers temp;top_p"} {
		assert.Equal(t, greedy, text(t, append(args, strings.Fields(flags)...)...), "%s leaves one token", flags)
	}
	for _, flags := range []string{"--sampler-seq ekpmt", "--repeat-last-n 0 --repeat-penalty 5", "--repeat-penalty 1", "--samplers penalties;topk;nucleus;min-p;temp"} {
		assert.Equal(t, base, text(t, append(args, strings.Fields(flags)...)...), "%s changes nothing", flags)
	}
	r := gen(t, append(args, "--temp", "0", "--top-k", "5")...)
	assert.Contains(t, r.stderr, "gen: note: --top-k 5 has no effect at temperature 0")
}

func TestLora(t *testing.T) {
	adapter := tinymodel.Save(t.TempDir(), "adapter.gguf", tinymodel.Adapter(tinymodel.Options{}))
	args := []string{"-m", tiny, "-p", "the", "-n", "24", "--temp", "0"}
	base := text(t, args...)
	full := text(t, append(args, "--lora", adapter)...)
	assert.NotEqual(t, base, full)
	assert.Equal(t, full, text(t, append(args, "--lora-scaled", adapter+":1")...))
	assert.Equal(t, base, text(t, append(args, "--lora-scaled", adapter+":0")...))
	r := gen(t, append(args, "--lora", "nowhere.gguf")...)
	assert.Equal(t, result{exitFailure, "", "gen: load adapter nowhere.gguf: no such file or directory\n"}, r)
}

func TestPromptCache(t *testing.T) {
	for name, model := range map[string]string{
		"attention": tiny,
		"recurrent": tinymodel.Save(t.TempDir(), "recurrent.gguf", tinymodel.Recurrent(tinymodel.Options{})),
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"-m", model, "-s", "3", "--ignore-eos"}
			whole := text(t, append(args, "-p", "the and", "-n", "60")...)
			file := filepath.Join(t.TempDir(), "cache")
			cache := append(args, "--prompt-cache", file, "--prompt-cache-all")

			first := text(t, append(cache, "-p", "the and", "-n", "40")...)
			r := gen(t, append(cache, "-p", "", "-n", "20")...)
			prompt, cached, _, _, _ := stats(t, r)
			assert.Equal(t, whole, first+r.stdout, "the text goes on where it ended")
			assert.Equal(t, "43", prompt)
			if name == "attention" {
				assert.Equal(t, "42", cached)
			}
		})
	}
}

func TestPromptCacheOfThePromptAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cache")
	args := []string{"-m", tiny, "-s", "3", "-n", "10", "--prompt-cache", file}
	want := text(t, "-m", tiny, "-s", "3", "-n", "10", "-p", "one two three")
	assert.Equal(t, want, text(t, append(args, "-p", "one two three")...))
	saved, err := os.ReadFile(file)
	require.NoError(t, err)

	r := gen(t, append(args, "-p", "one two three")...)
	prompt, cached, _, _, _ := stats(t, r)
	assert.Equal(t, want, r.stdout)
	assert.Equal(t, fmt.Sprint(atoi(t, prompt)-1), cached, "all but the last token")
	assert.Contains(t, text(t, append(args, "-p", "one two three", "--json")...), fmt.Sprintf(`"prompt_tokens":%s,"cached_tokens":%s,"evaluated_tokens":1,`, prompt, cached))

	other := text(t, "-m", tiny, "-s", "3", "-n", "10", "-p", "one two four")
	r = gen(t, append(args, "-p", "one two four", "--prompt-cache-ro")...)
	_, cached, _, _, _ = stats(t, r)
	assert.Equal(t, other, r.stdout)
	assert.NotEmpty(t, cached, "the common beginning")
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, saved, after, "--prompt-cache-ro leaves the file alone")

	require.NoError(t, os.WriteFile(file, saved[:len(saved)/2], 0o600))
	r = gen(t, append(args, "-p", "one")...)
	assert.Equal(t, exitFailure, r.status)
	assert.Equal(t, "gen: prompt cache "+file+": load state: not a usable state: it ends early: delete the file or name another one\n", r.stderr)

	left, err := filepath.Glob(file + ".*")
	require.NoError(t, err)
	assert.Empty(t, left, "no file of an unfinished save stays")
}

func atoi(t *testing.T, s string) (n int) {
	t.Helper()
	_, err := fmt.Sscan(s, &n)
	require.NoError(t, err)
	return n
}

func TestLog(t *testing.T) {
	args := []string{"-m", tiny, "-p", "the", "-n", "1", "--no-perf"}
	assert.Empty(t, gen(t, args...).stderr)
	verbose := gen(t, append(args, "-v")...).stderr
	assert.Contains(t, verbose, "gen: debug: loading model="+tiny)
	assert.Contains(t, verbose, "llama.cpp: info: ")
	assert.Contains(t, verbose, "llama.cpp: debug: ")
	info := gen(t, append(args, "-lv", "3")...).stderr
	assert.Contains(t, info, "llama.cpp: info: ")
	assert.NotContains(t, info, "debug")
	assert.Equal(t, "gen: note: -v has no effect with --log-disable\n", gen(t, append(args, "-v", "--log-disable")...).stderr)

	var out bytes.Buffer
	log := slog.New(&logHandler{out: &out, verbose: true})
	log.Warn("warning: about this", "from", "llama.cpp")
	log.Warn("load: warning: that", "from", "llama.cpp")
	log.Error("Error: of ours")
	assert.Equal(t, "llama.cpp: warning: about this\nllama.cpp: warning: load: warning: that\ngen: error: Error: of ours\n", out.String())

	file := filepath.Join(t.TempDir(), "log")
	r := gen(t, append(args, "-lv", "3", "--log-file", file)...)
	logged, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, r.stderr, string(logged))
	r = gen(t, append(args, "--log-file", "/")...)
	assert.Equal(t, result{exitFailure, "", "gen: log file /: is a directory\n"}, r)
}

func TestListDevices(t *testing.T) {
	assert.Contains(t, text(t, "--list-devices"), "CPU: ")
}

func TestRPCServerThatIsNotThere(t *testing.T) {
	r := gen(t, "-m", tiny, "-p", "the", "-n", "1", "--rpc", "127.0.0.1:1")
	assert.Equal(t, exitFailure, r.status)
	assert.Contains(t, r.stderr, "gen: --rpc: add RPC server 127.0.0.1:1")
}

// TestTokensCostNothing: what gen adds to a token must not grow its garbage.
func TestTokensCostNothing(t *testing.T) {
	out := &textOutput{w: io.Discard}
	token := generate.Token{ID: 5, Text: " word"}
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = out.token(token) }))
}
