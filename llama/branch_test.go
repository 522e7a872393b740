package llama

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
)

// A treeNode is a token of a tree, the node that it follows (-1 for none) and
// the branches that hold it.
type treeNode struct {
	token               int32
	parent, first, last int
}

// oak has three branches, numbered by hand:
//
//	4 - 6        branch 0
//	  \ 7 - 9    branch 1
//	5 - 8        branch 2
var oak = []treeNode{{4, -1, 0, 2}, {5, -1, 2, 3}, {6, 0, 0, 1}, {7, 0, 1, 2}, {8, 1, 2, 3}, {9, 3, 1, 2}}

// path returns the tokens from the trunk to a node.
func path(tree []treeNode, node int) []int32 {
	if node < 0 {
		return nil
	}
	return append(path(tree, tree[node].parent), tree[node].token)
}

// treeRows lays a tree behind tokens of all its branches.
func treeRows(seq int, trunk []int32, tree []treeNode) []eval.Row {
	rows := rowsOf(seq, trunk...)
	for _, n := range tree {
		rows = append(rows, eval.Row{Token: n.token, Seq: seq, Output: true, First: n.first, Last: n.last})
	}
	return rows
}

// checkPruned asserts that nothing is left in the sequences of branches.
func checkPruned(t *testing.T, s *Session) {
	t.Helper()
	for native := s.limits.Sequences; native < s.limits.Sequences+s.options.Branches; native++ {
		last, err := s.lastPosition(native)
		require.NoError(t, err)
		require.Equal(t, -1, last, "sequence %d of a branch", native)
	}
}

// Every node of a tree has the logits that its path has alone, whatever else is
// in the batch; and whichever is kept, the cache is that of its path.
func TestTreesAreTheirPaths(t *testing.T) {
	m := tinyModel(t, "llama")
	// Native kernels round differently in batches of other shapes: by up to .004
	// here. A token more or less that a row sees moves a logit by 1 and more.
	const tolerance = 0.02
	types := SessionOptions{Context: 256, Sequences: 3, Unified: true, KeyType: TypeF32, ValueType: TypeF32}
	prompt, other := someTokens(m, 9, 1), someTokens(m, 5, 2)
	trunk := []int32{11, 12}
	alone := newSession(t, m, types)
	expect := func(tokens ...[]int32) []float32 {
		require.NoError(t, alone.Truncate(0, 0))
		var all []int32
		for _, x := range tokens {
			all = append(all, x...)
		}
		evaluate(t, alone, quietRowsOf(0, all...)...)
		return logits(alone, len(all)-1)
	}
	types.Branches = 4
	s := newSession(t, m, types)
	require.Greater(t, apart(expect(prompt, trunk), expect(prompt[1:], trunk)), 50*tolerance)
	for kept := -1; kept < len(oak); kept++ {
		require.NoError(t, s.Clear())
		evaluate(t, s, quietRowsOf(0, prompt...)...)
		evaluate(t, s, quietRowsOf(2, prompt[:4]...)...)
		rows := append(rowsOf(1, other...), treeRows(0, trunk, oak)...)
		rows = append(rows, treeRows(2, nil, oak)...) // a second tree: all 4 branches
		evaluate(t, s, rows...)
		checkLengths(t, s, 9+2+2, 5, 4+2)
		if kept < 0 {
			assert.LessOrEqual(t, apart(expect(other), s.Logits(4)), tolerance)
			for i := range oak {
				assert.LessOrEqual(t, apart(expect(prompt, trunk, path(oak, i)), s.Logits(5+2+i)), tolerance, "node %d", i)
				assert.LessOrEqual(t, apart(expect(prompt[:4], path(oak, i)), s.Logits(5+2+6+i)), tolerance, "node %d of the second", i)
			}
		}
		held := path(oak, kept)
		branch := 0
		if kept >= 0 {
			branch = oak[kept].first
		}
		require.NoError(t, s.Keep(0, branch, 9+2+len(held)))
		require.NoError(t, s.Keep(2, branch, 4+len(held)))
		checkLengths(t, s, 11+len(held), 5, 4+len(held))
		next := []int32{13}
		evaluate(t, s, eval.Row{Token: 13, Seq: 2, Output: true}, eval.Row{Token: 13, Output: true}, eval.Row{Token: 13, Seq: 1, Output: true})
		assert.LessOrEqual(t, apart(expect(prompt[:4], held, next), s.Logits(0)), tolerance, "kept %d", kept)
		assert.LessOrEqual(t, apart(expect(prompt, trunk, held, next), s.Logits(1)), tolerance, "kept %d", kept)
		assert.LessOrEqual(t, apart(expect(other, next), s.Logits(2)), tolerance, "kept %d", kept)
		checkPruned(t, s)
	}
}

// A prefix that two sequences share stays the other's, whatever branches of one
// do to it.
func TestTreesBesideASharedPrefix(t *testing.T) {
	m := tinyModel(t, "llama")
	s := newSession(t, m, SessionOptions{Context: 256, Sequences: 2, Unified: true, Branches: 2})
	prompt := someTokens(m, 9, 1)
	evaluate(t, s, quietRowsOf(0, prompt...)...)
	require.NoError(t, s.Copy(1, 0))
	want := next(t, s, 1, 13)
	require.NoError(t, s.Truncate(1, 9))
	evaluate(t, s, treeRows(0, nil, oak)...)
	require.NoError(t, s.Keep(0, 1, 3))
	checkLengths(t, s, 3, 9)
	assert.InDelta(t, 0, apart(want, next(t, s, 1, 13)), 2e-3)
	checkPruned(t, s)
}

// However it fails, everything is as it was.
func TestTreesFail(t *testing.T) {
	m := tinyModel(t, "llama")
	prompt := someTokens(m, 250, 1)
	s := newSession(t, m, SessionOptions{Context: 512, Sequences: 2, Unified: true, Cells: 256, Branches: 2, Microbatch: 32})
	evaluate(t, s, quietRowsOf(0, prompt...)...)
	tree := treeRows(0, nil, oak)
	bad := treeRows(0, nil, oak)
	bad[4].Token = int32(m.vocab.Size())
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx  context.Context
		rows []eval.Row
		want error
	}{
		"token":     {t.Context(), bad, eval.ErrToken},
		"room":      {t.Context(), append(rowsOf(0, 1), tree...), eval.ErrNoSlot}, // 7 rows beside 250
		"cancelled": {cancelled, tree, context.Canceled},
	} {
		err := s.Eval(test.ctx, test.rows)
		assert.ErrorIs(t, err, test.want, name)
		checkLengths(t, s, 250, 0)
		assert.Panics(t, func() { _ = s.Keep(0, 1, 251) }, name)
		checkPruned(t, s)
	}
	// The cells of all branches come free again: 6 for each tree, 6 are there.
	for i := range 50 {
		evaluate(t, s, tree...)
		require.NoError(t, s.Keep(0, 1+i%2, 250+i%3), "round %d", i)
		require.NoError(t, s.Truncate(0, 250))
	}
	// The context bounds a branch, not the tree.
	long := newSession(t, m, SessionOptions{Context: 256, Unified: true, Cells: 512, Branches: 2})
	evaluate(t, long, quietRowsOf(0, append(prompt, 1, 2, 3)...)...)
	evaluate(t, long, tree...)
	require.NoError(t, long.Truncate(0, 253))
	evaluate(t, long, eval.Row{Token: 4})
	assert.ErrorIs(t, long.Eval(t.Context(), tree), eval.ErrNoSlot)
	checkLengths(t, long, 254)
	checkPruned(t, long)
}

// laterDone is a context that is done, and denies it when it is asked first: an
// Eval begins, and is interrupted.
type laterDone struct {
	context.Context
	asked bool
}

func (c *laterDone) Err() error {
	if !c.asked {
		c.asked = true
		return nil
	}
	return c.Context.Err()
}

// Interrupted at any moment a tree leaves the sequences alone, and nothing to
// read or to keep; the next one has the logits that it would have had.
func TestTreesInterrupted(t *testing.T) {
	m := tinyModel(t, "llama")
	o := SessionOptions{Context: 1024, Sequences: 2, Unified: true, Branches: 2, Microbatch: 32, Outputs: 64, Threads: 1}
	begin := append(quietRowsOf(0, someTokens(m, 9, 1)...), quietRowsOf(1, someTokens(m, 5, 2)...)...)
	rows := append(treeRows(0, someTokens(m, 30, 3), oak), quietRowsOf(1, someTokens(m, 300, 4)...)...)
	tree := rows[30:36]

	fresh := newSession(t, m, o)
	evaluate(t, fresh, begin...)
	start := time.Now()
	evaluate(t, fresh, rows...)
	whole := time.Since(start)
	var want [][]float32
	for i := range tree {
		want = append(want, logits(fresh, 30+i))
	}

	s := newSession(t, m, o)
	evaluate(t, s, begin...)
	const tries = 20
	interrupted := 0
	for i := range tries {
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i)/tries)
		if i == 0 {
			cancel()
			ctx = &laterDone{Context: ctx}
		}
		err := s.Eval(ctx, rows)
		cancel()
		if err == nil {
			require.NotZero(t, i, "the Eval was not interrupted")
			require.NoError(t, s.Truncate(0, 9))
			require.NoError(t, s.Truncate(1, 5))
			continue
		}
		interrupted++
		require.ErrorIs(t, err, ctx.Err())
		checkLengths(t, s, 9, 5)
		checkPruned(t, s)
		require.Panics(t, func() { s.Logits(30) })
		require.Panics(t, func() { _ = s.Keep(0, 1, 9) })
	}
	t.Logf("%d of %d interrupted", interrupted, tries)
	evaluate(t, s, rows...)
	for i := range tree {
		require.Equal(t, want[i], logits(s, 30+i), "node %d", i)
	}
	// Branch 1 stands: 4, 7 and 9 behind the trunk.
	for _, x := range []*Session{fresh, s} {
		require.NoError(t, x.Keep(0, 1, 42))
		checkLengths(t, x, 42, 305)
		evaluate(t, x, rowsOf(0, 10)...)
	}
	require.Equal(t, logits(fresh, 0), logits(s, 0))
}

func TestBranchMisuse(t *testing.T) {
	m := tinyModel(t, "llama")
	s := newSession(t, m, SessionOptions{Context: 256, Unified: true, Branches: 2})
	assert.Equal(t, 2, s.Branches())
	eval1 := func(rows ...eval.Row) func() { return func() { _ = s.Eval(t.Context(), rows) } }
	for want, f := range map[string]func(){
		"llama: branches of a row: want 0 <= First < Last, or both 0":       eval1(eval.Row{First: 1, Last: 1}),
		"llama: branches of one Eval: want at most SessionOptions.Branches": eval1(eval.Row{Last: 4}),
		"llama: branches of a row: they have parted before":                 eval1(eval.Row{Last: 1}, eval.Row{First: 1, Last: 2}, eval.Row{Last: 2}),
		"llama: keep: the sequence has no such branch in the last Eval":     func() { _ = s.Keep(0, 1, 0) },
	} {
		assert.Equal(t, want, panicText(f))
		checkLengths(t, s, 0)
	}
	evaluate(t, s, treeRows(0, nil, oak)...)
	assert.Equal(t, "llama: keep: want 0 to the length of the branch", panicText(func() { _ = s.Keep(0, 1, 4) }))
	require.NoError(t, s.Truncate(0, 1))
	assert.Panics(t, func() { _ = s.Keep(0, 1, 2) }, "the sequence was changed")
}

func TestBranchOptions(t *testing.T) {
	for _, test := range []struct {
		model string
		o     SessionOptions
		want  string
	}{
		{"llama", SessionOptions{Branches: -1}, "llama: -1 branches: want 0 or more"},
		{"llama", SessionOptions{Branches: 1}, "llama: 1 branches: only with a unified cache"},
		{"llama", SessionOptions{Branches: 256, Unified: true}, "llama: 1 sequences and 256 branches: want at most 256 together"},
		{"llama", SessionOptions{Branches: 1, Unified: true, Embeddings: true}, "llama: 1 branches: not with embeddings"},
		{"window", SessionOptions{Branches: 1, Unified: true}, "llama: 1 branches: with a sliding window only where FullSWA keeps all of it"},
		{"recurrent", SessionOptions{Branches: 1, Unified: true}, "llama: 1 branches: " + eval.ErrNoRollback.Error()},
		{"hybrid", SessionOptions{Branches: 1, Unified: true}, "llama: 1 branches: " + eval.ErrNoRollback.Error()},
	} {
		test.o.Context = 256
		_, err := tinyModel(t, test.model).NewSession(test.o)
		assert.EqualError(t, err, test.want, fmt.Sprint(test))
	}
	m := tinyModel(t, "window")
	s := newSession(t, m, SessionOptions{Context: 256, Unified: true, FullSWA: true, Branches: 2})
	evaluate(t, s, treeRows(0, someTokens(m, 20, 1), oak)...)
	require.NoError(t, s.Keep(0, 2, 22))
	checkLengths(t, s, 22)
}
