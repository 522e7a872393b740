package speculative

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
)

func newModel(t *testing.T, m eval.Evaluator, o ModelOptions) *Model {
	t.Helper()
	d, err := NewModel(m, o)
	require.NoError(t, err)
	return d
}

// near returns the logits of a model that is mostly of one mind with another.
func near(logits func(dst []float32, prefix []int32)) func(dst []float32, prefix []int32) {
	other := tablemodel.Hashed(77)
	return func(dst []float32, prefix []int32) {
		row := make([]float32, len(dst))
		logits(dst, prefix)
		other(row, prefix)
		for i := range dst {
			dst[i] += row[i] / 6
		}
	}
}

// agrees checks, after every round, that the sequence of the draft model holds
// what the drafter believes, and no more than the text can use.
func agrees(t *testing.T, m *tablemodel.Model, d *Model) func(Draft, int) {
	return func(Draft, int) {
		for slot := range d.slots {
			s := &d.slots[slot]
			require.Equal(t, m.Tokens(slot), append([]int32{}, s.text[:min(s.fed, m.Len(slot))]...), "slot %d", slot)
		}
	}
}

var modelPrompt = []int32{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}

// Every rule, chain and length of drafts, with a draft model of the same mind,
// of a similar one, and of another.
func TestModelKeepsTheText(t *testing.T) {
	t.Parallel()
	target := tablemodel.Hashed(1)
	for name, config := range chains {
		plain := author{vocab: 30, logits: target, config: config, prompt: modelPrompt, seed: 4}
		want := plain.write(t, 50)
		for _, mind := range []struct {
			name   string
			logits func([]float32, []int32)
		}{{"same", target}, {"similar", near(target)}, {"other", tablemodel.Hashed(2)}} {
			for _, n := range []int{1, 3, 6} {
				m := tablemodel.New(tablemodel.Config{Vocab: 30, Logits: mind.logits, Batch: 4, Outputs: 1})
				d := newModel(t, m, ModelOptions{})
				a := plain
				a.n, a.drafter, a.after = n, d, agrees(t, m, d)
				got := a.write(t, 50)
				assert.Equal(t, want, got, "%s, %s mind", name, mind.name)
				require.NoError(t, a.drafting)
				if mind.name == "same" {
					assert.Equal(t, a.drafted, a.stood, "%s: the same model drafts what is drawn", name)
				}
			}
		}
	}
}

// Nothing is evaluated twice: the prompt once, then each round the tokens that
// are new, and those that were rejected.
func TestModelEvaluatesOnce(t *testing.T) {
	target := tablemodel.Hashed(1)
	a := author{vocab: 30, logits: target, config: sampler.Default(), prompt: modelPrompt, seed: 4, n: 3}
	outputs := 0
	m := tablemodel.New(tablemodel.Config{Vocab: 30, Logits: target, Batch: 4, OnEval: func(_ context.Context, _ int, rows []eval.Row) error {
		for _, r := range rows {
			if r.Output {
				outputs++
			}
		}
		return nil
	}})
	a.drafter = newModel(t, m, ModelOptions{})
	a.write(t, 12) // 3 rounds of 4
	assert.Equal(t, 9, outputs, "a row of logits for each drafted token")
	// The prompt of 10 in 4, 4 and 2 with the first draft behind it, then 2
	// drafts; then the last draft and the token of the target, and 2 drafts.
	assert.Equal(t, []int{4, 4, 2, 1, 1, 2, 1, 1, 2, 1, 1}, m.Counters().Batches)
	assert.Zero(t, m.Counters().Truncates)

	// The next text begins alike: only its last token is read again.
	a.write(t, 4)
	assert.Equal(t, []int{1, 1, 1}, m.Counters().Batches[11:])

	// A draft that falls whole: one token of it was drawn from the last row,
	// the others were evaluated and are dropped; then one token is new.
	m = tablemodel.New(tablemodel.Config{Vocab: 30, Logits: func(dst []float32, prefix []int32) {
		target(dst, prefix)
		for i := range dst {
			dst[i] = -dst[i]
		}
	}, Batch: 16})
	a.config, a.drafter = sampler.Config{}, newModel(t, m, ModelOptions{})
	a.write(t, 3)
	assert.Equal(t, []int{10, 1, 1, 1, 1, 1, 1, 1, 1}, m.Counters().Batches)
	assert.Equal(t, 2, m.Counters().Truncates)
}

// An error at any evaluation costs drafts, never text. What was drafted before
// it stands; the drafter serves the next text.
func TestModelFails(t *testing.T) {
	target := tablemodel.Hashed(1)
	plain := author{vocab: 30, logits: target, config: sampler.Default(), prompt: modelPrompt, seed: 4}
	want := plain.write(t, 20)
	for _, rule := range []Rule{Coupled, Block, Token} {
		reached := 0
		for call := range 40 {
			first := true // of the texts
			m := tablemodel.New(tablemodel.Config{Vocab: 30, Logits: near(target), Batch: 4, OnEval: func(_ context.Context, n int, _ []eval.Row) error {
				if n == call && first {
					return errBoom
				}
				return nil
			}})
			d := newModel(t, m, ModelOptions{Rule: rule})
			a := plain
			a.rule, a.n, a.drafter, a.after = rule, 3, d, agrees(t, m, d)
			got := a.write(t, 20)
			if rule == Coupled {
				require.Equal(t, want, got, "call %d", call)
			}
			if m.Counters().Evals > call {
				reached++
				// An error in the last round is not asked for any more.
				if a.drafting != nil {
					require.ErrorIs(t, a.drafting, errBoom)
					require.ErrorContains(t, a.drafting, "speculative: draft model: ")
				}
			}
			first = false
			again := a.write(t, 20)
			require.NoError(t, a.drafting, "call %d: the next text", call)
			require.Positive(t, a.stood)
			if rule == Coupled {
				require.Equal(t, want, again)
			}
		}
		assert.Greater(t, reached, 15)
	}
}

// The error behind a drafted token comes with the next call, and not with the
// next text.
func TestModelFailsLater(t *testing.T) {
	s, err := sampler.New(sampler.Config{})
	require.NoError(t, err)
	for _, ended := range []bool{false, true} {
		m := tablemodel.New(tablemodel.Config{OnEval: func(_ context.Context, n int, _ []eval.Row) error {
			if n == 1 {
				return errBoom
			}
			return nil
		}})
		d := newModel(t, m, ModelOptions{})
		text := Text{History: []int32{5, 6}, PromptLen: 2, Sampler: s}
		draft, err := d.Draft(t.Context(), text, 3)
		require.NoError(t, err)
		require.Len(t, draft.Tokens, 1)
		if ended {
			d.End(0)
		} else {
			_, err = d.Draft(t.Context(), text, 3)
			require.ErrorIs(t, err, errBoom)
		}
		draft, err = d.Draft(t.Context(), text, 3)
		require.NoError(t, err)
		require.Len(t, draft.Tokens, 3)
	}
}

// A done context interrupts a draft, at any evaluation; the drafter stays
// usable, for the same text too.
func TestModelCancelled(t *testing.T) {
	s, err := sampler.New(sampler.Config{})
	require.NoError(t, err)
	text := Text{History: modelPrompt, PromptLen: 10, Sampler: s}
	whole, err := newModel(t, tablemodel.New(tablemodel.Config{}), ModelOptions{}).Draft(t.Context(), text, 4)
	require.NoError(t, err)
	for call := range 7 { // 4, 4 and 2 tokens of the prompt, 3 drafts; then none
		ctx, cancel := context.WithCancelCause(t.Context())
		m := tablemodel.New(tablemodel.Config{Batch: 4, OnEval: func(_ context.Context, n int, _ []eval.Row) error {
			if n == call {
				cancel(errBoom)
			}
			return nil
		}})
		d := newModel(t, m, ModelOptions{})
		draft, err := d.Draft(ctx, text, 4)
		if call == 6 {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, errBoom)
		require.Empty(t, draft.Tokens)
		agrees(t, m, d)(draft, 0)
		evals := m.Counters().Evals
		_, err = d.Draft(ctx, text, 4)
		require.ErrorIs(t, err, errBoom)
		require.Equal(t, evals+1, m.Counters().Evals)
		draft, err = d.Draft(t.Context(), text, 4)
		require.NoError(t, err)
		require.Equal(t, whole.Tokens, draft.Tokens)
		require.Equal(t, slices.Concat(modelPrompt, draft.Tokens[:3]), m.Tokens(0))
		cancel(nil)
	}
}

// Text is written on behind the end of the draft model's context, and drafts
// reach exactly up to it.
func TestModelContextFull(t *testing.T) {
	target := tablemodel.Hashed(1)
	a := author{vocab: 30, logits: target, config: sampler.Default(), prompt: modelPrompt, seed: 4}
	want := a.write(t, 30)
	m := tablemodel.New(tablemodel.Config{Vocab: 30, Logits: target, Context: 20})
	d := newModel(t, m, ModelOptions{})
	longest := 0
	a.n, a.drafter = 4, d
	a.after = func(draft Draft, k int) { longest = max(longest, m.Len(0)) }
	assert.Equal(t, want, a.write(t, 30))
	assert.NoError(t, a.drafting)
	assert.Equal(t, 20, longest)

	s, err := sampler.New(a.config)
	require.NoError(t, err)
	text := slices.Concat(modelPrompt, want)
	for length, n := range map[int]int{18: 3, 19: 2, 20: 1, 21: 0, 30: 0} {
		draft, err := d.Draft(t.Context(), Text{History: text[:length], PromptLen: 10, Sampler: s, Seed: 4}, 4)
		assert.NoError(t, err)
		assert.Len(t, draft.Tokens, n)
	}
	assert.Len(t, m.Counters().Batches, m.Counters().Evals, "none failed")
}

// Without room in the cache there is no draft, once what ended texts left there
// is given up.
func TestModelNoSlot(t *testing.T) {
	s, err := sampler.New(sampler.Config{})
	require.NoError(t, err)
	m := tablemodel.New(tablemodel.Config{Sequences: 3, Cells: 24, Batch: 4})
	d := newModel(t, m, ModelOptions{})
	text := func(slot int, first int32) Text {
		history := slices.Clone(modelPrompt)
		history[0] = first
		return Text{Slot: slot, History: history, PromptLen: 10, Sampler: s}
	}
	draft := func(slot, want int) {
		t.Helper()
		got, err := d.Draft(t.Context(), text(slot, int32(slot+3)), 3)
		assert.NoError(t, err)
		assert.Len(t, got.Tokens, want)
		agrees(t, m, d)(got, 0)
	}
	draft(0, 3) // 12 cells
	draft(1, 3) // 24
	draft(2, 0) // none
	d.End(0)    // 12 of an ended text
	draft(2, 3) //
	assert.Zero(t, m.Len(0))
	d.End(1)
	draft(0, 3) // all of its text is read again
	draft(1, 0)

	m = tablemodel.New(tablemodel.Config{Cells: 11})
	d = newModel(t, m, ModelOptions{})
	got, err := d.Draft(t.Context(), text(0, 3), 3)
	assert.NoError(t, err)
	assert.Len(t, got.Tokens, 2, "up to where the room ends")
}

// A memory that drops no ends is read anew once, and then serves drafts of one
// token.
func TestModelNoRollback(t *testing.T) {
	target := tablemodel.Hashed(1)
	a := author{vocab: 30, logits: target, config: sampler.Default(), prompt: modelPrompt, seed: 4}
	want := a.write(t, 40)
	m := tablemodel.New(tablemodel.Config{Vocab: 30, Logits: near(target), NoRollback: true})
	d := newModel(t, m, ModelOptions{})
	a.n, a.drafter = 4, d
	longest := 0
	a.after = func(draft Draft, k int) {
		agrees(t, m, d)(draft, k)
		if d.single {
			longest = max(longest, len(draft.Tokens))
		}
	}
	assert.Equal(t, want, a.write(t, 40))
	assert.NoError(t, a.drafting)
	assert.True(t, d.single)
	assert.Equal(t, 1, longest)
	assert.Equal(t, 2, m.Counters().Truncates, "one that failed, one of all")
	assert.Greater(t, a.stood, 10)
	assert.Equal(t, want, a.write(t, 40), "the next text of the slot")
}

// broken is an evaluator with defects at its rollback.
type broken struct {
	*tablemodel.Model
	empties   bool // an error of Eval empties the sequences
	truncates int  // how many calls of Truncate succeed
}

func (b *broken) Eval(ctx context.Context, rows []eval.Row) error {
	err := b.Model.Eval(ctx, rows)
	if err != nil && b.empties {
		_ = b.Model.Truncate(rows[0].Seq, 0)
	}
	return err
}

func (b *broken) Truncate(seq, n int) error {
	if b.truncates--; b.truncates < 0 {
		return errBoom
	}
	return b.Model.Truncate(seq, n)
}

func TestModelOverBrokenMemory(t *testing.T) {
	target := tablemodel.Hashed(1)
	plain := author{vocab: 30, logits: target, config: sampler.Default(), prompt: modelPrompt, seed: 4}
	want := plain.write(t, 20)
	for call := range 12 {
		m := tablemodel.New(tablemodel.Config{Vocab: 30, Logits: near(target), Batch: 4, OnEval: func(_ context.Context, n int, _ []eval.Row) error {
			if n == call {
				return errBoom
			}
			return nil
		}})
		d := newModel(t, &broken{Model: m, empties: true, truncates: math.MaxInt}, ModelOptions{})
		a := plain
		a.n, a.drafter, a.after = 3, d, agrees(t, m, d)
		for range 2 {
			require.Equal(t, want, a.write(t, 20))
		}
		require.NoError(t, a.drafting)
	}
	for truncates := range 6 {
		m := tablemodel.New(tablemodel.Config{Vocab: 30, Logits: tablemodel.Hashed(2), Batch: 4})
		d := newModel(t, &broken{Model: m, truncates: truncates}, ModelOptions{})
		a := plain
		a.n, a.drafter, a.after = 3, d, agrees(t, m, d)
		require.Equal(t, want, a.write(t, 20))
		require.ErrorIs(t, a.drafting, errBoom)
	}
}

// Texts in turn, each with its slot: drafts stay valid until the next of their
// own slot.
func TestModelSlots(t *testing.T) {
	target := tablemodel.Hashed(1)
	m := tablemodel.New(tablemodel.Config{Vocab: 30, Logits: target, Sequences: 3})
	d := newModel(t, m, ModelOptions{Rule: Token})
	s, err := sampler.New(sampler.Default())
	require.NoError(t, err)
	var drafts, copies [3]Draft
	for slot := range 3 {
		drafts[slot], err = d.Draft(t.Context(), Text{Slot: slot, History: modelPrompt[slot:], Sampler: s, Seed: uint64(slot)}, 3)
		require.NoError(t, err)
		copies[slot].Tokens = slices.Clone(drafts[slot].Tokens)
		for i := range drafts[slot].Dists {
			var q sampler.Dist
			row := make([]float32, 30)
			prefix := slices.Concat(modelPrompt[slot:], drafts[slot].Tokens[:i])
			target(row, prefix)
			require.NoError(t, s.Dist(&q, row, prefix))
			copies[slot].Dists = append(copies[slot].Dists, q)
		}
	}
	assert.Equal(t, copies, drafts)
	for _, slot := range []int{-1, 3} {
		_, err = d.Draft(t.Context(), Text{Slot: slot, History: modelPrompt, Sampler: s}, 3)
		assert.EqualError(t, err, fmt.Sprintf("speculative: slot %d, where the draft model has 3 sequences", slot))
		d.End(slot)
	}
	d.End(2)
	d.End(2)
	for _, empty := range []Text{{Sampler: s}, {Sampler: s, History: []int32{}}} {
		draft, err := d.Draft(t.Context(), empty, 3)
		assert.NoError(t, err)
		assert.Empty(t, draft.Tokens)
	}
	draft, err := d.Draft(t.Context(), Text{History: modelPrompt, Sampler: s}, 0)
	assert.NoError(t, err)
	assert.Empty(t, draft.Tokens)
}

func TestModelStops(t *testing.T) {
	s, err := sampler.New(sampler.Config{})
	require.NoError(t, err)
	text := Text{History: []int32{9, 9}, PromptLen: 2, Sampler: s}
	draft := func(o ModelOptions, logits func([]float32, []int32)) []int32 {
		t.Helper()
		d := newModel(t, tablemodel.New(tablemodel.Config{Vocab: 12, Logits: logits}), o)
		got, err := d.Draft(t.Context(), text, 8)
		require.NoError(t, err)
		return got.Tokens
	}
	script := tablemodel.Script(2, 4, 5, 6, 7, 8)
	assert.Equal(t, []int32{4, 5, 6, 7, 8, 8, 8, 8}, draft(ModelOptions{}, script))
	assert.Equal(t, []int32{4, 5, 6}, draft(ModelOptions{MaxTokens: 3}, script))
	assert.Equal(t, []int32{4, 5, 6}, draft(ModelOptions{IsEnd: func(x int32) bool { return x == 6 }}, script), "an end token is the last")

	// Token 4+n has ln(odds) 3 to begin with, then less: with 11 others that is
	// e^3/(e^3+11) = .646, then e^2/(e^2+11) = .402, then .198.
	fading := func(dst []float32, prefix []int32) {
		clear(dst)
		dst[2+len(prefix)] = float32(5 - len(prefix))
	}
	for least, want := range map[float64][]int32{.647: {}, .645: {4}, .403: {4}, .401: {4, 5}, .199: {4, 5}, .197: {4, 5, 6}} {
		assert.Equal(t, want, slices.Clone(draft(ModelOptions{PMin: least}, fading)), "%v", least)
	}
	certain := func(dst []float32, _ []int32) {
		for i := range dst {
			dst[i] = float32(math.Inf(-1))
		}
		dst[3] = 0
	}
	assert.Len(t, draft(ModelOptions{PMin: 1}, certain), 8, "the probability itself is enough")
}

// Tokens that only one of the models has are not proposed, not banned by
// mistake, and a text that has them is an error.
func TestModelVocabularies(t *testing.T) {
	highest := func(dst []float32, prefix []int32) { // token n is likelier than n-1
		for i := range dst {
			dst[i] = float32(i)/2 - 100
		}
	}
	s, err := sampler.New(sampler.Config{LogitBias: map[int32]float64{39: -.25}, Suppress: []int32{38}})
	require.NoError(t, err)
	d := newModel(t, tablemodel.New(tablemodel.Config{Vocab: 50, Logits: highest}), ModelOptions{Vocab: 40})
	draft, err := d.Draft(t.Context(), Text{History: []int32{1}, Sampler: s}, 3)
	require.NoError(t, err)
	assert.Equal(t, []int32{39, 39, 39}, draft.Tokens)

	seven := func(dst []float32, prefix []int32) {
		for i := range dst {
			dst[i] = -100 - float32((i-7)*(i-7))
		}
	}
	d = newModel(t, tablemodel.New(tablemodel.Config{Vocab: 20, Logits: seven}), ModelOptions{Vocab: 40})
	for range 2 {
		draft, err = d.Draft(t.Context(), Text{History: []int32{1}, Sampler: s}, 3)
		require.NoError(t, err)
		assert.Equal(t, []int32{7, 7, 7}, draft.Tokens)
	}
	_, err = d.Draft(t.Context(), Text{History: []int32{1, 25}, Sampler: s}, 3)
	assert.ErrorIs(t, err, eval.ErrToken)
	draft, err = d.Draft(t.Context(), Text{History: []int32{1, 2}, Sampler: s}, 3)
	assert.NoError(t, err)
	assert.Len(t, draft.Tokens, 3)
}

// A row that no token can be drawn from is an error.
func TestModelBadRow(t *testing.T) {
	s, err := sampler.New(sampler.Default())
	require.NoError(t, err)
	for _, o := range []ModelOptions{{}, {PMin: .5}, {Rule: Token}} {
		d := newModel(t, tablemodel.New(tablemodel.Config{Logits: func(dst []float32, _ []int32) { dst[0] = float32(math.NaN()) }}), o)
		_, err = d.Draft(t.Context(), Text{History: []int32{1}, Sampler: s}, 3)
		assert.ErrorIs(t, err, sampler.ErrNaN)
	}
}

func TestBranchesOfWidths(t *testing.T) {
	for want, widths := range [][]int{nil, {2, 1}, {1, 3}, {3, 1, 2}} {
		assert.Equal(t, want, ModelOptions{Widths: widths}.Branches(), "%v", widths)
	}
}

func TestModelOptions(t *testing.T) {
	for _, test := range []struct {
		o    ModelOptions
		want string
	}{
		{ModelOptions{Vocab: -1}, "speculative: Vocab is -1, want a number of tokens, or 0 for that of the draft model"},
		{ModelOptions{MaxTokens: -2}, "speculative: MaxTokens is -2, want 1 or more, or 0 for no bound"},
		{ModelOptions{PMin: 1.5}, "speculative: PMin is 1.5, want 0 to 1"},
		{ModelOptions{PMin: math.NaN()}, "speculative: PMin is NaN, want 0 to 1"},
		{ModelOptions{Rule: 9}, "speculative: the rule is Rule(9), want Coupled, Block or Token"},
	} {
		_, err := NewModel(tablemodel.New(tablemodel.Config{}), test.o)
		assert.EqualError(t, err, test.want)
	}
	_, err := NewModel(nothing{}, ModelOptions{})
	assert.EqualError(t, err, "speculative: the limits of the draft model are {Vocab:0 Sequences:0 Context:0 Batch:0 Outputs:0}: all must be at least 1")
}

type nothing struct{ eval.Evaluator }

func (nothing) Limits() eval.Limits { return eval.Limits{} }

type pieces []string

func (p pieces) Size() int                    { return len(p) }
func (p pieces) SpecialPiece(id int32) []byte { return []byte(p[id]) }

func TestCheckVocab(t *testing.T) {
	padded := append(pieces{"a", "b"}, make([]string, 128)...)
	for _, test := range []struct {
		target, draft pieces
		want          string
	}{
		{pieces{"a", "b"}, pieces{"a", "b"}, ""},
		{pieces{"a", "b"}, padded, ""},
		{padded, pieces{"a", "b"}, ""},
		{pieces{"a", "b"}, append(padded, ""), "speculative: another vocabulary: it has 131 tokens, the target 2; they may differ by 128"},
		{pieces{"<s>", "b", "c"}, pieces{"<s>", "B\n", "d"}, `speculative: another vocabulary: token 1 is "B\n", in the target "b"`},
		{pieces{"<s>"}, pieces{"\xff"}, `speculative: another vocabulary: token 0 is "\xff", in the target "<s>"`},
	} {
		err := CheckVocab(test.target, test.draft)
		if test.want == "" {
			assert.NoError(t, err)
		} else {
			assert.EqualError(t, err, test.want)
		}
	}
}

// A flatModel has rows that do not depend on the text, and allocates nothing.
type flatModel struct {
	row  []float32
	held int
}

func (m *flatModel) Limits() eval.Limits {
	return eval.Limits{Vocab: len(m.row), Sequences: 1, Context: 1 << 20, Batch: 64, Outputs: 64}
}

func (m *flatModel) Eval(_ context.Context, rows []eval.Row) error {
	m.held += len(rows)
	return nil
}

func (m *flatModel) Logits(int) []float32                      { return m.row }
func (m *flatModel) Len(int) int                               { return m.held }
func (m *flatModel) Truncate(_, n int) error                   { m.held = n; return nil }
func (m *flatModel) Copy(int, int) error                       { return errors.ErrUnsupported }
func (m *flatModel) Probe(context.Context) (eval.Noise, error) { return eval.Noise{}, nil }

// A round of drafting and verifying allocates nothing once its memory has grown.
func TestRoundsDoNotAllocate(t *testing.T) {
	const vocab = 500
	row, other := make([]float32, vocab), make([]float32, vocab)
	tablemodel.Hashed(1)(row, nil)
	near(tablemodel.Hashed(1))(other, nil)
	for _, config := range []sampler.Config{{}, sampler.Default(), {Temperature: 1}} {
		for _, rule := range []Rule{Coupled, Block, Token} {
			s, err := sampler.New(config)
			require.NoError(t, err)
			d := newModel(t, &flatModel{row: other}, ModelOptions{Rule: rule, PMin: 1e-9})
			var v Verifier
			target := &samplerTarget{logits: func(dst []float32, _ []int32) { copy(dst, row) }, row: make([]float32, vocab), sampler: s}
			text := make([]int32, 2, 1<<16)
			history := text
			round := func() {
				draft, err := d.Draft(context.Background(), Text{History: history, PromptLen: 2, Sampler: s, Seed: 1}, 4)
				require.NoError(t, err)
				target.text, target.start, target.done = append(history, draft.Tokens...), len(history), 0
				k, next, err := v.Verify(rule, target, draft, sampler.Draw{Seed: 1, Pos: len(history)})
				require.NoError(t, err)
				history = append(target.text[:len(history)+k], next)
			}
			d.slots[0].text = make([]int32, 0, 1<<16) // the text's own growth aside
			for range 500 {
				round()
			}
			assert.Zero(t, testing.AllocsPerRun(200, round), "%v, %v", rule, s)
		}
	}
}
