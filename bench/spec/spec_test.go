package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDistinct4(t *testing.T) {
	assert.Equal(t, 1.0, distinct4(nil))
	assert.Equal(t, 1.0, distinct4([]int32{1, 1, 1}))
	assert.Equal(t, 1.0, distinct4([]int32{1, 2, 3, 4, 5}))
	// Of 1111, 1111, 1112 two differ.
	assert.InDelta(t, 2./3, distinct4([]int32{1, 1, 1, 1, 1, 2}), 1e-12)
	// A loop of two tokens: 1212 and 2121 again and again, 7 runs of four.
	assert.InDelta(t, 2./7, distinct4([]int32{1, 2, 1, 2, 1, 2, 1, 2, 1, 2}), 1e-12)
}

// All prompts are there, and short enough for a context of 2048 with 128 tokens
// more: a token of English or code has more than two bytes on average.
func TestPrompts(t *testing.T) {
	all, err := readPrompts(perKind, kinds)
	require.NoError(t, err)
	require.Len(t, all, perKind*len(kinds))
	seen := map[string]bool{}
	for _, p := range all {
		assert.False(t, seen[p.text], "prompt %d of %s is there twice", p.number, p.kind)
		seen[p.text] = true
		assert.True(t, strings.HasPrefix(p.text, "<|im_start|>system\n"))
		assert.True(t, strings.HasSuffix(p.text, "<|im_end|>\n<|im_start|>assistant\n"))
		assert.Less(t, len(p.text), 2*(contextSize-128))
		assert.NotContains(t, p.text, "\n%")
	}
	_, err = readPrompts(perKind+1, kinds)
	assert.EqualError(t, err, "prompts of kind copy: 8, want 9")
	_, err = readPrompts(1, []string{"songs"})
	assert.ErrorContains(t, err, `"songs" is no kind of prompt`)
}

// What is measured by default, and what where it is asked for.
func TestCompetitors(t *testing.T) {
	names := func(temperature float64, exact bool, only string) (all []string) {
		b := bench{exact: exact, lengths: map[string]int{}, prompts: 1, tools: tools{folder: "somewhere"}}
		require.NoError(t, b.configure("copy", "0", only, "", "2,3"))
		sides, err := b.sides()
		require.NoError(t, err)
		for _, c := range b.competitors(t.Context(), nil, sides, temperature) {
			switch {
			case len(c.kinds) == 4:
				all = append(all, c.name+" to copy")
			case c.name == "tree, fixed":
				assert.Equal(t, []int{5, 6, 7, 8}, c.lengths)
				fallthrough
			default:
				assert.Equal(t, kinds, c.kinds)
				all = append(all, c.name)
			}
		}
		return all
	}
	ours := []string{"plain", "draft", "draft, fixed", "ngram", "ngram, fixed", "cascade"}
	assert.Equal(t, append(slices.Clone(ours), "tree, fixed", "speculative-simple",
		"lookup to copy", "ngram-simple to copy", "ngram-mod to copy", "ngram-cache to copy"), names(0, false, ""))
	assert.Equal(t, append(slices.Clone(ours), "tree, fixed", "speculative-simple"), names(0.8, false, ""))
	assert.Equal(t, append(slices.Clone(ours), "speculative-simple"), names(0.8, true, ""))
	assert.Equal(t, []string{"plain", "draft, cold", "token, fixed", "tree", "lookup"}, names(0.8, false, "tree,lookup,draft-cold,token-fixed"))
	assert.Equal(t, []string{"plain", "tree", "lookup"}, names(0, false, "tree,lookup,token-fixed"), "at temperature 0 all rules are one")

	for _, widths := range []string{"0", "2,", "x"} {
		b := bench{lengths: map[string]int{}}
		assert.ErrorContains(t, b.configure("copy", "0", "", "", widths), ": want 1 or more tokens", widths)
	}
}

func TestSplitPrompts(t *testing.T) {
	assert.Equal(t, []string{"a\nb", "50 % of it"}, splitPrompts("a\nb\n%\n50 % of it\n"))
}

// What llama-speculative-simple and llama-lookahead of v0.5.0 printed.
const (
	simpleLog = `0.21.580.450 I encoded   26 tokens in    0.945 seconds, speed:   27.526 t/s
0.21.580.462 I decoded   27 tokens in   15.423 seconds, speed:    1.686 t/s
0.21.580.462 I 
0.21.580.462 I n_draft   = 3
0.21.580.463 I n_predict = 27
0.21.580.463 I n_drafted = 29
0.21.580.464 I n_accept  = 17
0.21.580.464 I accept    = 65.385%
`
	lookaheadLog = `0.31.624.670 I encoded   26 tokens in    4.288 seconds, speed:    6.063 t/s
0.31.624.684 I decoded   25 tokens in   24.459 seconds, speed:    1.022 t/s
0.31.624.685 I W = 15
0.31.624.686 I n_predict = 25
0.31.624.686 I n_accept  = 8
`
)

func TestParseTool(t *testing.T) {
	f, err := parseTool(simpleLog)
	require.NoError(t, err)
	assert.Equal(t, toolFigures{prompt: 26, tokens: 27, seconds: 15.423, drafted: 29, accepted: 17}, f)
	f, err = parseTool(lookaheadLog)
	require.NoError(t, err)
	assert.Equal(t, toolFigures{prompt: 26, tokens: 25, seconds: 24.459, accepted: 8}, f)
	_, err = parseTool("loading\nout of memory\n")
	assert.EqualError(t, err, `no figures in its output, which ends with "out of memory"`)
	_, err = parseTool(strings.ReplaceAll(simpleLog, "15.423", "0.000"))
	assert.EqualError(t, err, "27 tokens in 0 seconds")
}

// text is a measurement of 10 tokens.
func text(side, kind string, number, round int, seconds, distinct float64) measurement {
	return measurement{Side: side, Kind: kind, Number: number, Round: round, Tokens: 10, Seconds: seconds, Distinct: distinct}
}

// Medians over rounds, geometric means over prompts and kinds, worked by hand.
func TestTable(t *testing.T) {
	var all []measurement
	add := func(kind string, number int, distinct float64, plain, draft []float64) {
		for round := range plain {
			all = append(all, text("plain", kind, number, round, plain[round], distinct), text("draft", kind, number, round, draft[round], distinct))
		}
	}
	add("copy", 0, 1, []float64{6, 8, 20}, []float64{3, 2, 2})  // 2, 4, 10: 4
	add("copy", 1, 1, []float64{1, 1, 1}, []float64{1, 1, 1})   // 1
	add("story", 0, .2, []float64{9, 9, 9}, []float64{1, 1, 1}) // 9, but it loops
	short := text("plain", "chat", 0, 0, 1, 1)
	short.Tokens = 7
	all = append(all, short, text("draft", "chat", 0, 0, 1, 1)) // too short to say anything

	table := newTable(all)
	c := table.ratio("draft", "plain", "copy", true)
	assert.InDelta(t, 2, c.ratio, 1e-12)              // of 4 and 1
	assert.InDelta(t, (10-2)/2./4/2, c.spread, 1e-12) // the mean of that and none
	assert.InDelta(t, 9, table.ratio("draft", "plain", "story", true).ratio, 1e-12)
	assert.Zero(t, table.ratio("draft", "plain", "story", false))
	assert.Zero(t, table.ratio("draft", "plain", "chat", true))
	assert.Zero(t, table.ratio("lookup", "plain", "copy", true))

	var out bytes.Buffer
	table.row(&out, "draft", "draft", always("plain"))
	// The kinds in order; the mean of 2 and 9; that of 2 alone; the mean spread of 50% and 0.
	assert.Equal(t, "draft                                2.00      -      -      -      -      -   9.00      -   4.24   2.00    25%",
		strings.TrimSpace(out.String()))
}

// For each kind the best of the tools is the one to beat.
func TestBeside(t *testing.T) {
	all := []measurement{
		text("plain", "copy", 0, 0, 6, 1), text("ngram", "copy", 0, 0, 2, 1), text("lookup", "copy", 0, 0, 3, 1), text("ngram-mod", "copy", 0, 0, 4, 1),
		text("plain", "edit", 0, 0, 6, 1), text("ngram", "edit", 0, 0, 2, 1), text("lookup", "edit", 0, 0, 3, 1), text("ngram-mod", "edit", 0, 0, 1, 1),
	}
	var out bytes.Buffer
	newTable(all).beside(&out, "ngram", []string{"lookup", "ngram-simple", "ngram-mod"})
	assert.Contains(t, out.String(), "ngram / the best n-gram tool         1.50   0.50      -")
}

func TestRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.jsonl")
	m := text("plain", "copy", 1, 2, 3, 1)
	for range 2 {
		r, err := openRecord(path)
		require.NoError(t, err)
		require.NoError(t, r.add(m))
		r.close()
	}
	r, err := openRecord(path)
	require.NoError(t, err)
	defer r.close()
	assert.Equal(t, []measurement{m, m}, r.of(0, false))
	assert.Empty(t, r.of(0.8, false))
	assert.Empty(t, r.of(0, true))
}
