package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/tinymodel"
)

// tinyDraft is a model that agrees with the tiny one on most tokens, and on the
// more the less noise its weights have.
func tinyDraft(t *testing.T, noise float64) string {
	t.Helper()
	return tinymodel.Save(t.TempDir(), "draft.gguf", tinymodel.Llama(tinymodel.Options{Noise: noise}))
}

// draftsOf runs the binary with --json and returns the text and what drafts did.
func draftsOf(t *testing.T, args ...string) (string, draftSummary) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text(t, append(args, "--json")...)), "\n")
	all := ""
	for _, line := range lines[:len(lines)-1] {
		var token jsonToken
		require.NoError(t, json.Unmarshal([]byte(line), &token))
		all += token.Text
	}
	var sum summary
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &sum))
	if sum.Drafts == nil {
		return all, draftSummary{}
	}
	return all, *sum.Drafts
}

func TestEverySpeculationFlagActs(t *testing.T) {
	draft := tinyDraft(t, 0.1)
	dir := t.TempDir()
	prompt := strings.Repeat("the and one two ", 8)
	base := []string{"-m", tiny, "-p", prompt, "-n", "60", "-c", "512", "-s", "4", "--temp", "0.8", "--ignore-eos", "--no-perf"}
	plain := text(t, base...)
	with := func(flags string) (string, draftSummary) {
		return draftsOf(t, append(base, strings.Fields(flags)...)...)
	}

	for _, types := range []string{"draft", "ngram", "draft,ngram", "lookahead"} {
		got, d := with("-md " + draft + " --spec-adaptive off --spec-type " + types)
		assert.Equal(t, plain, got, types)
		assert.Positive(t, d.Drafted, types)
		assert.Len(t, d.Drafters, strings.Count(types, ",")+1)
	}
	_, usual := with("-md " + draft + " --spec-adaptive off --spec-draft-n-max 6")
	assert.Greater(t, usual.Acceptance, 0.3)
	_, d := with("-md " + draft + " --spec-adaptive off --spec-draft-n-max 1")
	assert.LessOrEqual(t, d.TokensPerPass, 2.0)
	_, d = with("-md " + draft + " --spec-adaptive off --spec-draft-n-max 6 --spec-draft-p-min 0.9")
	assert.Less(t, d.Drafted, usual.Drafted)
	for _, rule := range []string{"block", "token"} {
		_, d = with("-md " + draft + " --spec-adaptive off --spec-draft-n-max 6 --spec-rule " + rule)
		assert.NotEqual(t, usual.Accepted, d.Accepted, rule)
	}

	_, usual = with("--spec-type ngram --spec-adaptive off")
	_, d = with("--spec-type ngram --spec-adaptive off --spec-ngram-context-min 4")
	assert.Less(t, d.Drafted, usual.Drafted, "less stood before")
	_, d = with("--spec-type ngram --spec-adaptive off --spec-draft-n-min 9")
	assert.True(t, d.Drafters[0].Drafts == 0 || d.Drafted/d.Drafters[0].Drafts >= 9)
	assert.NotEqual(t, usual.Drafted, d.Drafted)
	_, d = with("--spec-type ngram --spec-adaptive off --spec-ngram-context-max 1")
	assert.NotEqual(t, usual.Drafted, d.Drafted)
	_, d = with("--spec-type ngram --spec-adaptive off --spec-ngram-filler 4")
	assert.Greater(t, d.Drafted, usual.Drafted)

	cache := filepath.Join(dir, "ngrams")
	got, first := with("--spec-type ngram --spec-adaptive off -lcd " + cache)
	assert.Equal(t, plain, got)
	assert.Equal(t, usual.Accepted, first.Accepted, "the file was empty")
	size := func() int64 {
		info, err := os.Stat(cache)
		require.NoError(t, err)
		return info.Size()
	}
	written := size()
	for _, flag := range []string{"-lcs", "-lcd"} {
		got, d = with("--spec-type ngram --spec-adaptive off " + flag + " " + cache)
		assert.Equal(t, plain, got)
		assert.Greater(t, d.Accepted, first.Accepted, "the text was seen before")
		assert.Equal(t, flag == "-lcd", size() > written, "%s", flag)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 1, "nothing else is left")

	colours := text(t, append(base, "-md", draft, "--spec-adaptive", "off", "--show", "--color", "on")...)
	assert.Contains(t, colours, green)
	assert.Contains(t, colours, red)
	assert.Equal(t, plain, strings.NewReplacer(green, "", red, "", "\x1b[0m", "").Replace(colours))

	r := gen(t, append(slices.DeleteFunc(slices.Clone(base), func(s string) bool { return s == "--no-perf" }), "-md", draft, "--spec-adaptive", "off")...)
	assert.Regexp(t, `(?m)^drafts: \d+ of \d+ tokens accepted, acceptance [01]\.\d\d, \d+\.\d\d tokens an evaluation; time: draft \d+%, verify \d+%, sampling \d+%, rest \d+%; about \d+\.\d\d times as fast as without$`, r.stderr)
}

// inSinglePrecision are flags with which the cells of a cache may lie in any
// order: what that changes of a logit of the tiny models is some 1e-6 then, where
// other types and the fused kernel round to 1e-3.
var inSinglePrecision = []string{"-ctk", "f32", "-ctv", "f32", "-fa", "off"}

// Drafts that are trees leave the text as it is, and are counted and shown.
func TestTreesOfDrafts(t *testing.T) {
	draft := tinyDraft(t, 0.3)
	base := append([]string{"-m", tiny, "-md", draft, "-p", "the and one", "-n", "60", "-c", "256", "-s", "4", "--ignore-eos", "--no-perf", "--spec-adaptive", "off"}, inSinglePrecision...)
	with := func(flags string) (string, draftSummary) {
		return draftsOf(t, append(base, strings.Fields(flags)...)...)
	}
	for _, temperature := range []string{" --temp 0", " --temp 0.8", " --temp 1.5 --repeat-penalty 1.1 --mirostat 2"} {
		plain, _ := with("--spec-type none" + temperature)
		for _, flags := range []string{
			"--spec-draft-widths 2", "--spec-draft-widths 3,2,1,2", "--spec-draft-widths 1,15", "--spec-draft-widths 2,2 --spec-draft-n-max 4",
			"--spec-draft-widths 2,2 --spec-type draft,ngram", "--spec-draft-widths 2 --spec-adaptive on",
		} {
			got, d := with(flags + temperature)
			assert.Equal(t, plain, got, flags+temperature)
			assert.Positive(t, d.Drafted, flags+temperature)
		}
	}

	// One position: of one token, and of more. A draft has as many tokens as
	// before, and none behind the first position.
	_, line := with("--spec-draft-n-max 1")
	_, two := with("--spec-draft-n-max 2 --spec-draft-widths 2")
	_, four := with("--spec-draft-n-max 4 --spec-draft-widths 4")
	assert.Greater(t, line.Acceptance, 0.1)
	assert.Greater(t, two.Acceptance, line.Acceptance)
	assert.Greater(t, four.Acceptance, two.Acceptance)
	assert.Less(t, four.Acceptance, 1.0)
	for i, d := range []draftSummary{line, two, four} {
		width := []int{1, 2, 4}[i]
		assert.LessOrEqual(t, d.Drafted, width*d.Drafters[0].Drafts)
		assert.Greater(t, d.Drafted, width*(d.Drafters[0].Drafts-3), "but for the last of the budget")
		assert.LessOrEqual(t, d.TokensPerPass, 2.0)
	}

	// Block draws trees too, and keeps no more than the law of the text.
	_, d := with("--spec-draft-widths 2 --spec-draft-n-max 2 --spec-rule block")
	assert.Positive(t, d.Accepted)
	assert.Greater(t, d.Drafted, 2*d.Drafters[0].Drafts-4)

	plain := text(t, append(base, "--spec-type", "none")...)
	shown := text(t, append(base, "--spec-draft-widths", "2,2", "--show", "--color", "on")...)
	assert.Contains(t, shown, green)
	assert.Contains(t, shown, red)
	assert.Equal(t, plain, strings.NewReplacer(green, "", red, "", "\x1b[0m", "").Replace(shown))
	r := gen(t, append(base, "--spec-draft-widths", "2,2", "--perf")...)
	assert.Regexp(t, `(?m)^drafts: \d+ of \d+ tokens accepted, acceptance [01]\.\d\d, `, r.stderr)

	// What a tree has left of the cache can be shifted, saved and gone on from.
	long := append(base, "-n", "400", "--context-shift")
	assert.Equal(t, text(t, append(long, "--spec-type", "none")...), text(t, append(long, "--spec-draft-widths", "2,2")...))
	cache := filepath.Join(t.TempDir(), "cache")
	written := text(t, append(base, "--spec-draft-widths", "3,2", "--prompt-cache", cache, "--prompt-cache-all")...)
	assert.Equal(t, plain, written)
	more := []string{"-p", "the and one" + plain, "--perf"}
	for _, flags := range []string{"--spec-type none", "--spec-draft-widths 2"} {
		r := gen(t, slices.Concat(base, more, strings.Fields(flags), []string{"--prompt-cache", cache, "--prompt-cache-ro"})...)
		assert.Equal(t, exitDone, r.status, r.stderr)
		assert.Equal(t, text(t, slices.Concat(base, more, []string{"--spec-type", "none"})...), r.stdout, flags)
		assert.Contains(t, r.stderr, " from the cache", flags)
	}
}

// Models whose memory cannot branch, and those that need all of it for that.
func TestTreesByModel(t *testing.T) {
	dir := t.TempDir()
	recurrent := tinymodel.Save(dir, "recurrent.gguf", tinymodel.Recurrent(tinymodel.Options{}))
	hybrid := tinymodel.Save(dir, "hybrid.gguf", tinymodel.Hybrid(tinymodel.Options{}))
	window := tinymodel.Save(dir, "window.gguf", tinymodel.SlidingWindow(tinymodel.Options{}))
	small := tinymodel.Save(dir, "small.gguf", tinymodel.SlidingWindow(tinymodel.Options{Noise: 0.1}))
	flags := append([]string{"-p", "the", "-n", "60", "-s", "2", "-c", "256", "--ignore-eos", "--spec-adaptive", "off", "--spec-draft-widths", "2,2"}, inSinglePrecision...)
	for _, c := range []struct{ model, draft, note string }{
		{recurrent, tiny, "with mamba models, whose memory cannot drop the end of a text"},
		{hybrid, tiny, "with lfm2 models, whose memory cannot drop the end of a text"},
		{tiny, recurrent, "with mamba draft models, whose drafts are single tokens"},
		{window, small, ""},
	} {
		r := gen(t, append(flags, "-m", c.model, "-md", c.draft)...)
		require.Equal(t, exitDone, r.status, r.stderr)
		assert.Equal(t, text(t, append(flags, "-m", c.model)...), r.stdout, c.note)
		if c.note == "" {
			assert.NotContains(t, r.stderr, "no effect")
			assert.Regexp(t, `(?m)^drafts: [1-9]`, r.stderr)
		} else {
			assert.Contains(t, r.stderr, "gen: note: --spec-draft-widths 2,2 has no effect "+c.note+"\n")
		}
	}
}

func TestEveryContrastFlagActs(t *testing.T) {
	draft := tinyDraft(t, 0.1)
	base := []string{"-m", tiny, "-p", "the and", "-n", "40", "-c", "256", "-s", "4", "--temp", "0", "--ignore-eos", "--no-perf"}
	with := func(flags ...string) string { return text(t, append(base, flags...)...) }
	seen := map[string]string{"nothing": with()}
	for _, flags := range []string{
		"--cd-model " + draft,
		"--cd-model " + draft + " --cd-beta 3",
		"--cd-model " + draft + " --cd-alpha 0 --cd-beta 3",
		"--cd-model " + draft + " --cd-form log",
		"--cd-model " + draft + " --cd-form log --cd-temp 4",
		"--guidance-scale 3",
		"--guidance-scale 3 --negative-prompt two",
	} {
		got := with(strings.Fields(flags)...)
		for other, text := range seen {
			assert.NotEqual(t, text, got, "%s and %s", flags, other)
		}
		seen[flags] = got
		assert.Equal(t, got, with(append(strings.Fields(flags), "-md", draft, "--spec-adaptive", "off", "--spec-draft-n-max", "3")...), "with drafts: %s", flags)
	}
	second := tinymodel.Save(t.TempDir(), "second.gguf", tinymodel.Llama(tinymodel.Options{Noise: 0.5}))
	assert.NotEqual(t, seen["--cd-model "+draft], with("--cd-model", draft, "--cd-model", second), "two amateurs")
}

func TestModelsThatDoNotGoTogether(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.gguf")
	args := []string{"-m", tiny, "-p", "the", "-n", "5", "-c", "256"}
	missing := "gen: load model " + none + ": no such file or directory: check the path after "
	assert.Equal(t, result{exitFailure, "", missing + "-md\n"}, gen(t, append(args, "-md", none)...))
	assert.Equal(t, result{exitFailure, "", missing + "--cd-model\n"}, gen(t, append(args, "--cd-model", none)...))
	assert.Equal(t, result{exitFailure, "", "gen: -lcs " + none + ": no such file or directory\n"}, gen(t, append(args, "--spec-type", "ngram", "-lcs", none)...))
	assert.Equal(t, result{exitFailure, "", "gen: -lcd " + tiny + ": not a usable n-gram index: it does not begin with \"sortesNG\"\n"}, gen(t, append(args, "--spec-type", "ngram", "-lcd", tiny)...))

	other := smol(t, "Q4_0")
	for _, flag := range []string{"-md", "--cd-model"} {
		r := gen(t, append(args, flag, other)...)
		assert.Equal(t, exitFailure, r.status)
		assert.Empty(t, r.stdout)
		assert.Equal(t, "gen: "+flag+" "+other+": another vocabulary: token 0 is \"<|endoftext|>\", in the target \"<unk>\"\n", r.stderr)
	}
	r := gen(t, "-m", other, "-p", "the", "-n", "5", "-c", "256", "--guidance-scale", "2")
	assert.Equal(t, result{exitUsage, "", "gen: the negative prompt is empty, and this model does not begin a text by itself: give one with --negative-prompt\n"}, r)

	// Models whose memory cannot drop the end of a text are not drafted for.
	dir := t.TempDir()
	recurrent := tinymodel.Save(dir, "recurrent.gguf", tinymodel.Recurrent(tinymodel.Options{}))
	hybrid := tinymodel.Save(dir, "hybrid.gguf", tinymodel.Hybrid(tinymodel.Options{}))
	for _, model := range []string{recurrent, hybrid} {
		plain := text(t, "-m", model, "-p", "the", "-n", "20", "-s", "1", "-c", "256")
		r := gen(t, "-m", model, "-p", "the", "-n", "20", "-s", "1", "-c", "256", "--spec-type", "ngram")
		assert.Equal(t, exitDone, r.status, r.stderr)
		assert.Equal(t, plain, r.stdout)
		assert.Contains(t, r.stderr, "gen: note: --spec-type ngram has no effect with ")
		assert.NotContains(t, r.stderr, "drafts:")
	}

	// A draft model of that kind drafts single tokens.
	got, d := draftsOf(t, append(args, "-n", "40", "-s", "2", "-md", recurrent, "--spec-adaptive", "off")...)
	assert.Equal(t, text(t, append(args, "-n", "40", "-s", "2")...), got)
	assert.Positive(t, d.Drafted)

	// A sliding window on both sides, far behind it.
	window := tinymodel.Save(dir, "window.gguf", tinymodel.SlidingWindow(tinymodel.Options{}))
	small := tinymodel.Save(dir, "small.gguf", tinymodel.SlidingWindow(tinymodel.Options{Noise: 0.1}))
	args = []string{"-m", window, "-p", "the", "-n", "200", "-s", "2", "-c", "512", "--ignore-eos"}
	for _, ub := range []string{"512", "8"} {
		got, d = draftsOf(t, append(args, "-ub", ub, "-md", small, "--spec-adaptive", "off")...)
		assert.Equal(t, text(t, append(args, "-ub", ub)...), got)
		assert.Greater(t, d.Evaluations*2, d.Drafters[0].Drafts, "drafting went on")
		assert.Greater(t, d.Drafters[0].Drafts, 20)
	}
}
