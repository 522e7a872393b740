package tablemodel

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
)

// sum has one logit that counts: that of the sum of the prefix.
func sum(dst []float32, prefix []int32) {
	clear(dst)
	total := int32(0)
	for _, t := range prefix {
		total += t
	}
	dst[int(total)%len(dst)] = 1
}

func row(seq int, token int32) eval.Row { return eval.Row{Seq: seq, Token: token, Output: true} }

func mustEval(t *testing.T, m *Model, rows ...eval.Row) {
	t.Helper()
	require.NoError(t, m.Eval(t.Context(), rows))
}

func TestLogitsFollowTheirPrefix(t *testing.T) {
	m := New(Config{Vocab: 10, Sequences: 2, Logits: sum})
	mustEval(t, m, row(0, 1), row(1, 4), row(0, 2), row(0, 3))
	for i, want := range []int{1, 4, 3, 6} {
		assert.Equal(t, float32(1), m.Logits(i)[want], "row %d", i)
	}
	assert.Equal(t, []int32{1, 2, 3}, m.Tokens(0))

	require.NoError(t, m.Truncate(0, 1))
	require.NoError(t, m.Copy(1, 0))
	mustEval(t, m, row(1, 5), row(0, 7))
	assert.Equal(t, []int32{1, 7}, m.Tokens(0))
	assert.Equal(t, []int32{1, 5}, m.Tokens(1))
	assert.Equal(t, float32(1), m.Logits(0)[6])
	assert.Equal(t, Counters{Evals: 2, Rows: 6, Batches: []int{4, 2}, Copies: 1, Truncates: 1}, m.Counters())
}

func TestErrorsChangeNothing(t *testing.T) {
	boom := errors.New("boom")
	var result error
	m := New(Config{Vocab: 10, Sequences: 2, Context: 3, Cells: 5, OnEval: func(context.Context, int, []eval.Row) error { return result }})
	mustEval(t, m, row(0, 1), row(0, 2))
	require.NoError(t, m.Copy(1, 0)) // shares its two cells
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(boom)
	for _, test := range []struct {
		ctx    context.Context
		result error
		rows   []eval.Row
		want   error
	}{
		{t.Context(), boom, []eval.Row{row(0, 1)}, boom},
		{ctx, nil, []eval.Row{row(0, 1)}, boom},
		{t.Context(), nil, []eval.Row{row(0, 1), row(0, 10)}, eval.ErrToken},
		{t.Context(), nil, []eval.Row{row(0, -1)}, eval.ErrToken},
		{t.Context(), nil, []eval.Row{row(1, 1), row(0, 1), row(0, 1)}, eval.ErrNoSlot}, // 4 of 3 in a sequence
	} {
		result = test.result
		assert.ErrorIs(t, m.Eval(test.ctx, test.rows), test.want)
		assert.Equal(t, []int32{1, 2}, m.Tokens(0))
		assert.Equal(t, []int32{1, 2}, m.Tokens(1))
		assert.Panics(t, func() { m.Logits(0) }, "no logits after an error")
	}
	result = nil
	mustEval(t, m, row(0, 1), row(1, 1)) // 2 shared and 2 more
	m.Truncate(0, 2)
	m.Truncate(1, 2)
	assert.Equal(t, 2, m.cells())
	m = New(Config{Cells: 2})
	mustEval(t, m, row(0, 1), row(0, 2))
	assert.ErrorIs(t, m.Eval(t.Context(), []eval.Row{row(0, 3)}), eval.ErrNoSlot)
}

func TestNoRollback(t *testing.T) {
	m := New(Config{NoRollback: true})
	mustEval(t, m, row(0, 1), row(0, 2))
	assert.ErrorIs(t, m.Truncate(0, 1), eval.ErrNoRollback)
	assert.Equal(t, 2, m.Len(0))
	assert.NoError(t, m.Truncate(0, 2))
	assert.NoError(t, m.Truncate(0, 0))
	assert.Equal(t, 0, m.Len(0))
}

func TestMisuse(t *testing.T) {
	m := New(Config{Sequences: 1, Batch: 4, Outputs: 2})
	assert.Panics(t, func() { _ = m.Eval(t.Context(), nil) })
	assert.Panics(t, func() { _ = m.Eval(t.Context(), make([]eval.Row, 5)) })
	assert.Panics(t, func() { _ = m.Eval(t.Context(), []eval.Row{row(0, 1), row(0, 1), row(0, 1)}) })
	m = New(Config{Sequences: 1})
	assert.Panics(t, func() { _ = m.Eval(t.Context(), []eval.Row{row(1, 1)}) })
	m = New(Config{})
	mustEval(t, m, eval.Row{Token: 1}, row(0, 2))
	assert.Panics(t, func() { m.Logits(0) }, "not an output")
	assert.Panics(t, func() { m.Logits(2) })
	old := m.Logits(1)
	mustEval(t, m, eval.Row{Token: 1})
	assert.True(t, math.IsNaN(float64(old[5])), "logits whose time is up")
	assert.Panics(t, func() { _ = m.Truncate(0, 4) })

	m = New(Config{OnEval: func(context.Context, int, []eval.Row) error { return m.Truncate(0, 0) }})
	assert.Panics(t, func() { _ = m.Eval(t.Context(), []eval.Row{row(0, 1)}) }, "two users at once")
}

func TestHashed(t *testing.T) {
	a, b := make([]float32, 4000), make([]float32, 4000)
	Hashed(1)(a, []int32{1, 2})
	Hashed(1)(b, []int32{1, 2})
	assert.Equal(t, a, b)
	for _, other := range [][]int32{{2, 1}, {1}, {1, 2, 0}, {0, 1, 2}} {
		Hashed(1)(b, other)
		assert.NotEqual(t, a, b)
	}
	Hashed(2)(b, []int32{1, 2})
	assert.NotEqual(t, a, b)
	total, low, high := 0.0, 0.0, 0.0
	for _, x := range a {
		total += float64(x)
		low, high = min(low, float64(x)), max(high, float64(x))
	}
	// Uniform in [-4, 4): the mean of 4,000 has a deviation of 2.31/63 = 0.037.
	assert.InDelta(t, 0, total/4000, 0.15)
	assert.True(t, -4 <= low && low < -3.9 && 3.9 < high && high < 4)
}

func TestBranches(t *testing.T) {
	m := New(Config{Vocab: 10, Branches: 2, Cells: 6, Context: 4, Logits: sum})
	mustEval(t, m, row(0, 1))
	on := func(token int32, first, last int) eval.Row {
		return eval.Row{Token: token, Output: true, First: first, Last: last}
	}
	tree := []eval.Row{row(0, 2), on(3, 0, 2), on(4, 2, 3), on(5, 1, 2)} // 1 2 3, 1 2 3 5, 1 2 4
	mustEval(t, m, tree...)
	for i, want := range []int{3, 6, 7, 1} {
		assert.Equal(t, float32(1), m.Logits(i)[want], "row %d", i)
	}
	assert.Equal(t, []int32{1, 2, 3}, m.Tokens(0), "branch 0")
	require.NoError(t, m.Keep(0, 2, 3))
	assert.Equal(t, []int32{1, 2, 4}, m.Tokens(0))
	assert.Panics(t, func() { _ = m.Keep(0, 1, 1) }, "only once")
	require.NoError(t, m.Truncate(0, 1))

	mustEval(t, m, tree...)
	require.NoError(t, m.Truncate(0, 1))
	assert.Panics(t, func() { _ = m.Keep(0, 1, 1) }, "the sequence was changed")
	assert.ErrorIs(t, m.Eval(t.Context(), append(tree, on(6, 1, 2))), eval.ErrNoSlot, "5 of 4 in branch 1")
	assert.ErrorIs(t, m.Eval(t.Context(), append(tree, on(6, 2, 3), on(6, 0, 1))), eval.ErrNoSlot, "7 cells of 6")
	assert.Equal(t, []int32{1}, m.Tokens(0))
	assert.Panics(t, func() { _ = m.Keep(0, 1, 1) }, "no branches after an error")
	for _, rows := range [][]eval.Row{{on(1, 0, 4)}, {on(1, 1, 1)}, {on(1, 2, 1)}, {on(1, 0, 1), on(1, 0, 2)}} {
		assert.Panics(t, func() { _ = m.Eval(t.Context(), rows) })
		require.NoError(t, m.Truncate(0, 0))
		m = New(Config{Vocab: 10, Branches: 2})
	}
	assert.Panics(t, func() { New(Config{Branches: 1, NoRollback: true}) })
}
