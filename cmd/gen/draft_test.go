package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/gguf"
	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
)

func TestDraftMake(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "draft.gguf")
	r := gen(t, "draft", "make", "-m", tiny, "-o", out, "--type", "f16", "--keep-layers", "1")
	require.Equal(t, exitDone, r.status, r.stderr)
	assert.Regexp(t, `^draft\.gguf: F16, 1 of 2 layers, [0-9.]+ MB; the target has [0-9.]+ MB
a step of the draft takes [0-9.]+ of one of the target
the target with 1 to 8 rows takes 1\.00( [0-9.]+){7} of a step
temperature 0: the draft agrees at \d+% of \d+ tokens, which allows [0-9.]+ times the speed, with drafts of [1-7]
temperature 0\.8: the draft agrees at \d+% of \d+ tokens, which allows [0-9.]+ times the speed, with drafts of [1-7]
`, r.stdout)
	f, err := gguf.ReadFile(out)
	require.NoError(t, err)
	layers, _ := f.Lookup("llama.block_count")
	assert.Equal(t, "1", layers.String())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 1, "nothing else is left")

	// All layers in the type that they have: the same model, which always agrees.
	var m draftMeasure
	require.NoError(t, json.Unmarshal([]byte(text(t, "draft", "make", "-m", tiny, "-o", out, "--type", "f32", "--json")), &m))
	require.Len(t, m.Acceptance, 2)
	for _, x := range m.Acceptance {
		assert.Equal(t, 1.0, x.Share, "temperature %v", x.Temperature)
		length, speed := m.best(1)
		assert.Equal(t, length, x.Length)
		assert.Equal(t, speed, x.Speed)
	}
	assert.Len(t, m.RowCosts, largestMeasured)
	assert.Greater(t, m.Tokens, 300)
}

func TestDraftMakeRefuses(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "model.gguf")
	bytes, err := os.ReadFile(tiny)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(model, bytes, 0o600))
	link := filepath.Join(dir, "link.gguf")
	require.NoError(t, os.Symlink(model, link))
	short := filepath.Join(dir, "short")
	require.NoError(t, os.WriteFile(short, []byte("the"), 0o600))
	out := filepath.Join(dir, "out.gguf")
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, exitUsage, "gen: no model: give the target, a GGUF file, with -m FILE\n"},
		{[]string{"-m", model}, exitUsage, "gen: no output: give the draft model to write with -o FILE\n"},
		{[]string{"-m", model, "-o", out}, exitUsage, "gen: no type: give that of the draft's weights with --type TYPE, such as q4_0\n"},
		{[]string{"-m", model, "-o", out, "--type", "q9"}, exitUsage, "gen: --type q9: want one of BF16, "},
		{[]string{"-m", model, "-o", model, "--type", "q8_0"}, exitUsage, "gen: -o " + model + ": it is the model itself"},
		{[]string{"-m", model, "-o", link, "--type", "q8_0"}, exitUsage, "gen: -o " + link + ": it is the model itself"},
		{[]string{"-m", model, "-o", out, "--type", "q8_0", "--keep-layers", "0-2"}, exitUsage, "gen: --keep-layers 0-2: the model has 2 layers, 0 to 1\n"},
		{[]string{"-m", model, "-o", out, "--type", "q8_0", "--keep-layers", "1-0"}, exitUsage, "gen: --keep-layers 1-0: want layers or ranges of them"},
		{[]string{"-m", model, "-o", out, "--type", "q8_0", "--text", short}, exitUsage, "gen: --text: it has 2 tokens: want at least 64\n"},
		{[]string{"-m", model, "-o", filepath.Join(dir, "no", "out"), "--type", "q8_0"}, exitFailure, "gen: quantize "},
		{[]string{"-m", model, "-o", out, "--type", "q8_0", "more"}, exitUsage, `gen: "more": unknown argument`},
		{[]string{"-m", filepath.Join(dir, "none"), "-o", out, "--type", "q8_0"}, exitFailure, "gen: load model "},
		{[]string{"--keep-layer", "1"}, exitUsage, "gen: --keep-layer: unknown flag; did you mean --keep-layers? gen draft make -h lists all flags\n"},
	} {
		r := gen(t, append([]string{"draft", "make"}, c.args...)...)
		assert.Equal(t, c.status, r.status, "%q: %s", c.args, r.stderr)
		assert.Contains(t, r.stderr, c.want)
		assert.Empty(t, r.stdout)
	}
	now, err := os.ReadFile(model)
	require.NoError(t, err)
	assert.Equal(t, bytes, now)
	assert.NoFileExists(t, out)

	assert.Equal(t, exitUsage, gen(t, "draft").status)
	assert.Contains(t, gen(t, "draft", "take").stderr, "draft take: want make")
	assert.Contains(t, text(t, "draft", "-h"), "gen draft make")
}

// With a = 1/2, c = 1/4 and r = 1, 3/2, 2: one draft gives 3/2 tokens in 7/4
// steps, two give 7/4 in 5/2.
func TestDraftSpeed(t *testing.T) {
	m := draftMeasure{DraftCost: 0.25, RowCosts: []float64{1, 1.5, 2}}
	assert.InDelta(t, 1.5/1.75, m.speed(0.5, 1), 1e-12)
	assert.InDelta(t, 1.75/2.5, m.speed(0.5, 2), 1e-12)
	assert.InDelta(t, 3/2.5, m.speed(1, 2), 1e-12)
	length, speed := m.best(0.5)
	assert.Equal(t, 1, length)
	assert.InDelta(t, 6./7, speed, 1e-12)
	length, _ = m.best(1)
	assert.Equal(t, 2, length, "2/1.75 < 3/2.5")
}

func TestDraftVerdict(t *testing.T) {
	verdict := func(cost, share float64, pruned bool) string {
		m := draftMeasure{DraftCost: cost, RowCosts: []float64{1, 1, 1}, Tokens: 100}
		x := acceptance{Share: share}
		x.Length, x.Speed = m.best(share)
		m.Acceptance = []acceptance{x}
		var out bytes.Buffer
		m.write(&out, pruned)
		lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
		return string(lines[len(lines)-1])
	}
	assert.Contains(t, verdict(0.25, 0.8, false), "temperature 0: the draft agrees at 80%")
	assert.Equal(t, "It is of no use here: it agrees too seldom.", verdict(0.25, 0.1, false))
	assert.Equal(t, "It is of no use here: it agrees too seldom, as models do whose layers were left out without training the others again.", verdict(0.25, 0.1, true))
	assert.Equal(t, "It is of no use here: it costs too much beside the target, however often it agrees.", verdict(1.5, 0.9, true))
}

// Two tables agree where their largest entries do; the counts are made from the
// tables themselves.
func TestMeasureAcceptance(t *testing.T) {
	var tokens []int32
	for i := range 50 {
		tokens = append(tokens, int32(i*i%len(tablemodel.Pieces)))
	}
	a, b := tablemodel.Hashed(1), tablemodel.Hashed(2)
	best := func(table func([]float32, []int32), prefix []int32) int {
		row := make([]float32, len(tablemodel.Pieces))
		table(row, prefix)
		at := 0
		for i, x := range row {
			if x > row[at] {
				at = i
			}
		}
		return at
	}
	agreed := 0
	for i := range tokens {
		if best(a, tokens[:i+1]) == best(b, tokens[:i+1]) {
			agreed++
		}
	}
	require.Positive(t, agreed)
	for _, chunk := range []int{1, 7, 50, 64} {
		target := tablemodel.New(tablemodel.Config{Context: 64, Batch: 64, Logits: a})
		draft := tablemodel.New(tablemodel.Config{Context: 64, Batch: 64, Logits: b})
		shares, err := measureAcceptance(t.Context(), target, draft, tokens, chunk, []sampler.Config{{}, {Temperature: 1}})
		require.NoError(t, err)
		assert.Equal(t, float64(agreed)/50, shares[0])
		assert.Equal(t, tokens, draft.Tokens(0))

		_, costs, err := measureCosts(t.Context(), target, draft, tokens[0])
		require.NoError(t, err)
		assert.Len(t, costs, largestMeasured)
		assert.Equal(t, tokens, target.Tokens(0), "what is measured is dropped")

		same := tablemodel.New(tablemodel.Config{Context: 64, Batch: 64, Logits: a})
		target = tablemodel.New(tablemodel.Config{Context: 64, Batch: 64, Logits: a})
		shares, err = measureAcceptance(t.Context(), target, same, tokens, chunk, []sampler.Config{{}, {Temperature: 1}})
		require.NoError(t, err)
		assert.Equal(t, []float64{1, 1}, shares)
	}
}

func TestParseLayerRanges(t *testing.T) {
	all, err := parseLayerRanges("0-7, 29")
	require.NoError(t, err)
	assert.Equal(t, []layers{{0, 7}, {29, 29}}, all)
	o := &makeOptions{keep: all}
	out, err := o.pruned(31)
	require.NoError(t, err)
	assert.Len(t, out, 22)
	assert.Equal(t, []int{8, 9}, out[:2])
	assert.Equal(t, []int{28, 30}, out[20:])
	for _, bad := range []string{"", "a", "-1", "3-", "-", "1,,2", "5-2", "1-2-3", "99999999999999999999"} {
		_, err := parseLayerRanges(bad)
		assert.Error(t, err, bad)
	}
}
