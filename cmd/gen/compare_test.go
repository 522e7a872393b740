package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/generate"
	"github.com/sortes-llm/sortes/internal/tinymodel"
	"github.com/sortes-llm/sortes/speculative"
)

func idTokens(ids ...int32) []generate.Token {
	var tokens []generate.Token
	for _, id := range ids {
		tokens = append(tokens, generate.Token{ID: id, Text: fmt.Sprintf("<%d>", id)})
	}
	return tokens
}

// TestStandings works out a table from runs whose numbers are simple.
func TestStandings(t *testing.T) {
	run := func(seconds float64, tokens []generate.Token, drafts speculative.Stats) generation {
		return generation{generate.Stats{
			Generated: 11, GenerateTime: time.Duration(seconds * 1e9), Finish: generate.MaxTokens, Seed: 7, Prompt: 3, Drafts: drafts,
		}, tokens}
	}
	rounds := func(accepted ...int) speculative.Stats {
		return speculative.Stats{
			Rounds: 2, Tokens: 3, Draft: 11 * time.Millisecond, Verify: 44 * time.Millisecond, Sampling: 2200 * time.Microsecond,
			ByRank:  []speculative.RankStats{{Drafted: 4, Tested: 4, Accepted: accepted[0]}, {Drafted: 4, Tested: accepted[0], Accepted: accepted[1]}},
			Drafter: []speculative.DrafterStats{{Drafts: 4, Drafted: 9, Accepted: accepted[0] + accepted[1]}}, // trees with 9 tokens at 8 positions
		}
	}
	table := standings([]strategy{plainly, mustFind("draft"), mustFind("draft-block")}, [][]generation{
		{run(1, idTokens(1, 2, 3), speculative.Stats{}), run(2, idTokens(1, 2, 3), speculative.Stats{})}, // 10 and 5 tokens/s
		{run(0.5, idTokens(1, 2, 3), rounds(3, 1)), run(2, idTokens(1, 2, 3), rounds(1, 0))},             // 20 and 5
		{run(0.25, idTokens(1, 4), rounds(3, 1)), run(0.5, idTokens(1, 2, 3), rounds(3, 1))},             // 40 and 20
	})
	require.Len(t, table, 3)
	assert.Equal(t, []string{"plain", "7.5", "1.00", "-", "1.00", "-", "-", "-", "-", "-", "max tokens"}, table[0].cells())
	// Ratios 2 and 1. Positions: 4 of 8, 1 of 4. Each text 11 ms for 11 tokens.
	assert.Equal(t, []string{"draft", "12.5", "1.50", "1.00..2.00", "1.50", "50 25", "1.00", "4.00", "0.20", "yes", "max tokens"}, table[1].cells())
	assert.Equal(t, []string{"draft-block", "30.0", "4.00", "4.00..4.00", "1.50", "75 33", "1.00", "4.00", "0.20", "to token 1", "max tokens"}, table[2].cells())
	assert.Equal(t, 18, table[1].Drafted)
	assert.Equal(t, 5, table[1].Accepted)
	assert.Equal(t, "<1><2><3>", table[1].Text)
	assert.True(t, table[1].promised)
	assert.False(t, table[2].promised)

	alone := standings([]strategy{mustFind("ngram")}, [][]generation{{run(1, idTokens(1), rounds(1, 0))}})
	assert.Equal(t, []string{"ngram", "10.0", "-", "-", "1.50", "25 0", "1.00", "4.00", "0.20", "-", "max tokens"}, alone[0].cells())
}

// A text that ends for another reason is not the same.
func TestStandingsCompareTheEnd(t *testing.T) {
	a := generation{generate.Stats{Finish: generate.MaxTokens}, idTokens(1, 2)}
	b := generation{generate.Stats{Finish: generate.EndToken}, idTokens(1, 2)}
	table := standings([]strategy{plainly, mustFind("ngram")}, [][]generation{{a}, {b}})
	assert.False(t, *table[1].Same)
	assert.Equal(t, 2, *table[1].DiffersAt)
}

func TestMedian(t *testing.T) {
	assert.Zero(t, median(nil))
	assert.Equal(t, 3.0, median([]float64{9, 1, 3}))
	assert.Equal(t, 2.5, median([]float64{4, 1, 3, 2}))
}

// TestCompare: the deterministic parts of the table, and the text of each
// coupled strategy is that which gen itself writes.
func TestCompare(t *testing.T) {
	text1 := append([]string{"-m", tiny, "-p", "the and the and", "-n", "24", "-s", "4", "-c", "256"}, inSinglePrecision...)
	args := append([]string{"compare", "-md", tinyDraft(t, 0.05), "--spec-draft-widths", "2,2", "--repeat", "2", "--strategies", "all"}, text1...)
	r := gen(t, args...)
	require.Equal(t, exitDone, r.status, r.stderr)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	require.Len(t, lines, len(strategies)+1)
	assert.Equal(t, "strategy tokens/s ratio range tokens/pass accepted % draft ms verify ms sampler ms as plain finish", strings.Join(strings.Fields(lines[0]), " "))
	for i, s := range strategies {
		assert.Equal(t, s.name, strings.Fields(lines[i+1])[0])
		assert.True(t, strings.HasSuffix(lines[i+1], "max tokens"), lines[i+1])
		if s.rule == speculative.Coupled && s != plainly {
			assert.Regexp(t, `  yes +max tokens$`, lines[i+1])
		}
	}
	assert.Regexp(t, `(?m)^prompt: 5 tokens; at most 24 tokens generated; 2 repetitions; seed: 4$`, r.stderr)

	want := text(t, text1...)
	accepted := 0
	for i, line := range strings.Split(strings.TrimSpace(text(t, append(args, "--json")...)), "\n") {
		var row standing
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		assert.Equal(t, strategies[i].name, row.Strategy)
		assert.Equal(t, 24, row.Generated)
		assert.EqualValues(t, 4, row.Seed)
		assert.Len(t, row.Rates, 2)
		assert.Len(t, row.Ratios, 2)
		if strategies[i] == plainly {
			assert.Empty(t, row.Rule)
		} else {
			assert.Equal(t, strategies[i].rule.String(), row.Rule)
		}
		if strategies[i].rule == speculative.Coupled {
			assert.Equal(t, want, row.Text, row.Strategy)
		}
		accepted += row.Accepted
	}
	assert.Positive(t, accepted)
}

// TestCompareFollowsTheRule: the text of a strategy, and what of its drafts
// stands, is what gen has with the flags of that strategy. The draws of the block
// and token rules are none of plain decoding's, nor each other's, so that forty
// tokens at temperature 1 are not the same by chance. Whom a cascade asks hangs on
// times, but for its first draft: no n-gram has stood before.
func TestCompareFollowsTheRule(t *testing.T) {
	base := []string{"-m", tiny, "-md", tinyDraft(t, 0.1), "-p", "the and", "-n", "40", "-s", "4", "-c", "256", "--temp", "1",
		"--spec-adaptive", "off", "--spec-draft-n-max", "4"}
	seen := map[string]string{}
	lines := text(t, append([]string{"compare", "--repeat", "1", "--json", "--strategies", "plain,draft,draft-block,draft-token,cascade-block,cascade-token"}, base...)...)
	for line := range strings.Lines(lines) {
		var row standing
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		seen[row.Strategy] = row.Text
		flags, ok := map[string]string{
			"plain": "none", "draft": "draft", "draft-block": "draft --spec-rule block", "draft-token": "draft --spec-rule token",
		}[row.Strategy]
		if !ok {
			continue
		}
		want, drafts := draftsOf(t, append(base, strings.Fields("--spec-type "+flags)...)...)
		assert.Equal(t, want, row.Text, row.Strategy)
		assert.Equal(t, drafts.Drafted, row.Drafted, row.Strategy)
		assert.Equal(t, drafts.Accepted, row.Accepted, row.Strategy)
	}
	require.Len(t, seen, 6)
	assert.Equal(t, seen["plain"], seen["draft"])
	for _, drafters := range []string{"draft", "cascade"} {
		assert.NotEqual(t, seen["plain"], seen[drafters+"-block"])
		assert.NotEqual(t, seen["plain"], seen[drafters+"-token"])
		assert.NotEqual(t, seen[drafters+"-block"], seen[drafters+"-token"])
	}
}

// Drafting always, so that the counts do not hang on the time: on a text that
// repeats itself each pass gives many tokens.
func TestCompareCountsDrafts(t *testing.T) {
	args := []string{"compare", "-m", tiny, "-md", tiny, "-p", "the", "-n", "40", "-s", "4", "-c", "256", "--repeat", "1", "--spec-adaptive", "off", "--spec-draft-n-max", "4", "--json", "--strategies", "draft"}
	var row standing
	require.NoError(t, json.Unmarshal([]byte(text(t, args...)), &row))
	// The model drafts for itself: all stand. The prompt comes with a first
	// token and no draft, or with one; then 5 tokens a pass.
	assert.Equal(t, []float64{1, 1, 1, 1}, row.Acceptance)
	assert.Equal(t, row.Drafted, row.Accepted)
	assert.InDelta(t, 5, row.TokensPerPass, 0.6)
	assert.Zero(t, row.Ratio, "plain is not there")
	assert.Nil(t, row.Same)
}

// Trees are compared where there are widths: beside lines, which stay lines.
func TestCompareTrees(t *testing.T) {
	rows := func(flags ...string) (names []string, by map[string]standing) {
		args := append([]string{"compare", "-m", tiny, "-md", tinyDraft(t, 0.3), "-p", "the", "-n", "40", "-s", "4", "-c", "256", "--repeat", "1", "--spec-adaptive", "off", "--json"}, inSinglePrecision...)
		by = map[string]standing{}
		for line := range strings.SplitSeq(strings.TrimSpace(text(t, append(args, flags...)...)), "\n") {
			var row standing
			require.NoError(t, json.Unmarshal([]byte(line), &row))
			names, by[row.Strategy] = append(names, row.Strategy), row
		}
		return names, by
	}
	names, by := rows("--spec-draft-widths", "2", "--spec-draft-n-max", "2")
	assert.Equal(t, []string{"plain", "draft", "tree", "ngram", "cascade"}, names)
	tree, draft := by["tree"], by["draft"]
	require.Len(t, tree.Acceptance, 1, "two tokens at one position")
	require.Len(t, draft.Acceptance, 2)
	assert.Greater(t, tree.Acceptance[0], draft.Acceptance[0])
	assert.Greater(t, tree.Drafted, 2*tree.Accepted, "at most one of two")
	assert.Equal(t, "coupled", tree.Rule)
	assert.True(t, *tree.Same)

	names, _ = rows("--strategies", "all")
	assert.Len(t, names, len(strategies)-1)
	assert.NotContains(t, names, "tree")
}

func TestCompareShows(t *testing.T) {
	args := []string{"compare", "-m", tiny, "-md", tiny, "-p", "the", "-n", "20", "-s", "4", "-c", "256", "--repeat", "1", "--spec-adaptive", "off", "--spec-draft-n-max", "3", "--strategies", "plain,draft", "--show"}
	want := text(t, "-m", tiny, "-p", "the", "-n", "20", "-s", "4", "-c", "256")
	plainText := text(t, args...)
	assert.True(t, strings.HasPrefix(plainText, "plain:\n"+want+"\n"), plainText)
	assert.Contains(t, plainText, "\ndraft:\n"+want+"\n")
	assert.NotContains(t, plainText, "\x1b")

	coloured := text(t, append(args, "--color", "on")...)
	assert.Contains(t, coloured, "\x1b[32m")
	assert.NotContains(t, strings.SplitN(coloured, "plain)", 2)[1], red, "all drafts stand")
	bare := regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(coloured, "")
	assert.Contains(t, bare, "draft (drafted, corrected, plain):\n"+want+"\n")
}

func TestCompareRefuses(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-p x", "no model: give a GGUF file with -m FILE"},
		{"-m M -p x --strategies draft", "--strategies draft: it drafts with a model: give one with -md FILE"},
		{"-m M -p x -md M --strategies tree", "--strategies tree: there are no trees without --spec-draft-widths"},
		{"-m M -p x -md M --strategies tree --spec-draft-widths 1", "--strategies tree: there are no trees with one token at each position, which is a line"},
		{"-m M -p x -md M --strategies tree --spec-draft-widths 2 --guidance-scale 2", "--strategies tree: there are no trees with --guidance-scale, where drafts are lines"},
		{"-m M -p x -md M --spec-draft-widths 2 --exact", "--spec-draft-widths and --exact: a tree leaves the cache in an order of its own"},
		{"-m M -p x --strategies plain,plain", "--strategies plain,plain: want all, or each at most once of plain, draft,"},
		{"-m M -p x --strategies quick", "--strategies quick: want all, or each at most once of"},
		{"-m M -p x --repeat 0", "--repeat 0: want 1 to 1000"},
		{"-m M -p x -n 0", "--predict 0: want 1 or more tokens"},
		{"-m M -p x --spec-type ngram", "--spec-type: unknown flag"},
		{"-m M -p x -lcd f", "-lcd: unknown flag"},
		{"-m M prompt", `"prompt": the prompt follows -p`},
		{"-m M -p x --top-p 2", "--top-p 2: want 0 to 1"},
		{"-m M -p x -md M --spec-draft-n-max 65", "--spec-draft-n-max 65: want 1 to 64 tokens"},
	} {
		args := append([]string{"compare"}, strings.Fields(strings.ReplaceAll(c.args, "M", tiny))...)
		r := gen(t, args...)
		assert.Equal(t, exitUsage, r.status, c.args)
		assert.Empty(t, r.stdout)
		assert.True(t, strings.HasPrefix(r.stderr, "gen: "+strings.ReplaceAll(c.want, "M ", tiny+" ")), "%s: %s", c.args, r.stderr)
		assert.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
	}
	r := gen(t, "compare", "-m", tiny, "-p", "x", "-md", filepath.Join(t.TempDir(), "none"))
	assert.Equal(t, exitFailure, r.status)
	assert.Contains(t, r.stderr, "check the path after -md")
	r = gen(t, "compare", "-m", tiny, "-p", strings.Repeat("x ", 300), "-c", "256")
	assert.Equal(t, exitFailure, r.status)
	assert.Contains(t, r.stderr, "and the context holds 256")

	other := tinymodel.Save(t.TempDir(), "recurrent.gguf", tinymodel.Recurrent(tinymodel.Options{}))
	r = gen(t, "compare", "-m", other, "-p", "the", "-n", "4")
	assert.Equal(t, exitFailure, r.status)
	assert.Contains(t, r.stderr, "gen: there are no drafts to compare with mamba models")
}

func TestCompareNotes(t *testing.T) {
	r := gen(t, "compare", "-m", tiny, "-p", "the", "-n", "4", "-c", "256", "--repeat", "1", "--json", "--show", "--color", "on", "-md", tiny, "--strategies", "plain")
	require.Equal(t, exitDone, r.status, r.stderr)
	for _, want := range []string{
		"-md " + tiny + " has no effect without draft or cascade in --strategies",
		"--show has no effect with --json, which has the texts",
		"--color on has no effect without --show",
	} {
		assert.Contains(t, r.stderr, "gen: note: "+want+"\n")
	}
	for flags, want := range map[string]string{
		"--strategies draft":                      "without tree in --strategies",
		"--cd-model " + tiny:                      "with --cd-model, where drafts are lines",
		"--strategies ngram":                      "without draft or cascade in --strategies",
		"--strategies plain,tree --repeat 1 -n 2": "",
	} {
		r := gen(t, append(strings.Fields("compare -p the -n 4 -c 256 --repeat 1 --spec-draft-widths 2,2 -m "+tiny+" -md "+tiny), strings.Fields(flags)...)...)
		require.Equal(t, exitDone, r.status, r.stderr)
		if want == "" {
			assert.NotContains(t, r.stderr, "no effect")
		} else {
			assert.Contains(t, r.stderr, "gen: note: --spec-draft-widths 2,2 has no effect "+want+"\n")
		}
	}
}

func TestCompareHelp(t *testing.T) {
	out := text(t, "compare", "-h")
	for _, want := range []string{"--strategies A,B,...", "--repeat N", "--spec-draft-n-max", "-md, --spec-draft-model"} {
		assert.Contains(t, out, want)
	}
	for _, other := range []string{"--prompt-cache", "--spec-type", "--trace"} {
		assert.NotContains(t, out, other)
	}
}
