package generate

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/internal/tablemodel"
)

// greedyFor asks for n tokens after a prompt.
func greedyFor(p []int32, n int) Request {
	return Request{Prompt: p, MaxTokens: n, IgnoreEOG: true}
}

// join returns a slice of its own.
func join(parts ...[]int32) []int32 {
	var all []int32
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// A conversation: each prompt is the one before, the answer and a new turn. The
// last token of an answer is never evaluated, so it is not in the cache.
func TestReuseConversation(t *testing.T) {
	for _, c := range []tablemodel.Config{{}, {Sequences: 4}, {NoRollback: true}, {Sequences: 4, NoRollback: true}} {
		m := tablemodel.New(c)
		e := newEngine(t, m, Options{})
		p := prompt(12, 1)
		held := 0
		for turn := range 5 {
			r := greedyFor(p, 6)
			o := runRequest(t, t.Context(), e, r)
			assertSame(t, simulate(tablemodel.Hashed(0), 1024, r), o, "turn %d of %+v", turn, c)
			assert.Equal(t, held, o.stats.Cached, "turn %d of %+v", turn, c)
			held = len(p) + 5
			p = join(p, o.ids(), prompt(4, turn))
		}
		// Rows evaluated: the last prompt has 12 + 4*(6+4) tokens, and 5 of the
		// answer's 6 follow it. The rest was reused.
		assert.Equal(t, 12+40+5, m.Counters().Rows)
	}
}

func TestReuseSamePrompt(t *testing.T) {
	for _, test := range []struct {
		model  tablemodel.Config
		cached int
	}{
		{tablemodel.Config{}, 11}, // all but the last token
		{tablemodel.Config{NoRollback: true}, 0},
	} {
		m := tablemodel.New(test.model)
		e := newEngine(t, m, Options{})
		r := greedyFor(prompt(12, 1), 6)
		want := simulate(tablemodel.Hashed(0), 1024, r)
		assertSame(t, want, runRequest(t, t.Context(), e, r))
		o := runRequest(t, t.Context(), e, r)
		assertSame(t, want, o)
		assert.Equal(t, test.cached, o.stats.Cached)
	}
}

// A prompt that was evaluated ahead of time.
func TestReusePromptOnly(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{})
	e := newEngine(t, m, Options{})
	r := greedyFor(prompt(12, 1), 6)
	ahead := r
	ahead.PromptOnly = true
	o := runRequest(t, t.Context(), e, ahead)
	assert.NoError(t, o.err)
	assert.Empty(t, o.tokens)
	assert.Equal(t, 12, m.Counters().Rows)
	o = runRequest(t, t.Context(), e, r)
	assertSame(t, simulate(tablemodel.Hashed(0), 1024, r), o)
	assert.Equal(t, 11, o.stats.Cached)
}

// Of several idle sequences the one with the longest common prefix is taken;
// what shares nothing goes where nothing is lost, or where was no one longest.
func TestReuseChooses(t *testing.T) {
	a, b, c := prompt(12, 1), prompt(12, 2), prompt(12, 3)
	require.NotEqual(t, a[1], b[1])
	require.NotEqual(t, b[1], c[1])
	m := tablemodel.New(tablemodel.Config{Sequences: 2})
	e := newEngine(t, m, Options{})
	run := func(p []int32, cached int) {
		t.Helper()
		o := runRequest(t, t.Context(), e, greedyFor(p, 2))
		require.NoError(t, o.err)
		assert.Equal(t, cached, o.stats.Cached)
	}
	run(a, 0)
	run(b, 0)
	run(a, 11) // not overwritten by b: there was an empty sequence
	run(b, 11)
	run(a, 11)
	run(c, 0)  // overwrites b, idle for longer than a
	run(a, 11) //
	run(b, 0)  // overwrites c
	run(a, 11)
	assert.Zero(t, m.Counters().Copies)
}

// A long prefix that another request still uses, or that is the smaller part
// of what a sequence holds, is copied.
func TestReuseByCopy(t *testing.T) {
	system := prompt(40, 1)
	one, two := join(system, prompt(30, 2)), join(system, prompt(30, 3))

	t.Run("idle", func(t *testing.T) {
		m := tablemodel.New(tablemodel.Config{Sequences: 2})
		e := newEngine(t, m, Options{})
		for _, test := range []struct {
			request Request
			cached  int
			copies  int
		}{
			{greedyFor(one, 30), 0, 0},
			{greedyFor(two, 30), 41, 1}, // the system prompt and the BOS that both go on with
			{greedyFor(one, 30), 69, 1}, // where it was
		} {
			o := runRequest(t, t.Context(), e, test.request)
			assertSame(t, simulate(tablemodel.Hashed(0), 1024, test.request), o)
			assert.Equal(t, test.cached, o.stats.Cached)
			assert.Equal(t, test.copies, m.Counters().Copies)
		}
	})

	t.Run("busy", func(t *testing.T) {
		started, gate := make(chan struct{}), make(chan struct{})
		m := tablemodel.New(tablemodel.Config{Sequences: 2, OnEval: at(3, func(context.Context) error {
			close(started)
			<-gate
			return nil
		})})
		e := newEngine(t, m, Options{})
		first := make(chan outcome)
		go func() { first <- runRequest(t, t.Context(), e, greedyFor(one, 30)) }()
		<-started
		second := make(chan outcome)
		go func() { second <- runRequest(t, t.Context(), e, greedyFor(two, 30)) }()
		waitFor(t, e, func() bool { return len(e.queue) == 1 })
		close(gate)
		assertSame(t, simulate(tablemodel.Hashed(0), 1024, greedyFor(one, 30)), <-first)
		o := <-second
		assertSame(t, simulate(tablemodel.Hashed(0), 1024, greedyFor(two, 30)), o)
		assert.Equal(t, 41, o.stats.Cached)
	})

	t.Run("copy fails", func(t *testing.T) {
		m := tablemodel.New(tablemodel.Config{Sequences: 2, OnCopy: func(int, int) error { return errBoom }})
		e := newEngine(t, m, Options{})
		runRequest(t, t.Context(), e, greedyFor(one, 30))
		o := runRequest(t, t.Context(), e, greedyFor(two, 30))
		assertSame(t, simulate(tablemodel.Hashed(0), 1024, greedyFor(two, 30)), o)
		assert.Zero(t, o.stats.Cached)
		assert.Equal(t, 1, m.Counters().Copies)
	})
}

// Truncate is asked to empty a sequence only, and fails: the request fails, the
// engine does not.
func TestTruncateFails(t *testing.T) {
	m := &noTruncate{Model: tablemodel.New(tablemodel.Config{})}
	e, err := New(m, tablemodel.Words(), Options{})
	require.NoError(t, err)
	defer e.Close()
	r := greedyFor(prompt(12, 1), 6)
	runRequest(t, t.Context(), e, r)
	m.failures = 2
	o := runRequest(t, t.Context(), e, r)
	assert.ErrorIs(t, o.err, errBoom)
	assertSame(t, simulate(tablemodel.Hashed(0), 1024, r), runRequest(t, t.Context(), e, r))
	m.failures = 1 // the second try succeeds, with all evaluated again
	o = runRequest(t, t.Context(), e, r)
	assertSame(t, simulate(tablemodel.Hashed(0), 1024, r), o)
	assert.Zero(t, o.stats.Cached)
}

type noTruncate struct {
	*tablemodel.Model
	failures int
}

func (m *noTruncate) Truncate(seq, n int) error {
	if m.failures > 0 {
		m.failures--
		return errBoom
	}
	return m.Model.Truncate(seq, n)
}

// More tokens than the cache has room for, in requests that each fit: all get
// their whole text, whoever has to wait.
func TestTightCache(t *testing.T) {
	all := requests(12)
	for _, noRollback := range []bool{false, true} {
		m := tablemodel.New(tablemodel.Config{Sequences: 6, Cells: 75, Batch: 32, NoRollback: noRollback})
		e := newEngine(t, m, Options{PrefillChunk: 8})
		for i, o := range runAll(t, e, all) {
			assertSame(t, simulate(tablemodel.Hashed(0), 1024, all[i]), o, "request %d", i)
		}
	}
}

// The cache is too small for the request: its text ends where the room does.
func TestCacheFullAlone(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{Cells: 20})
	e := newEngine(t, m, Options{})
	r := greedyFor(prompt(12, 1), 30)
	o := runRequest(t, t.Context(), e, r)
	require.NoError(t, o.err)
	assert.Equal(t, ContextFull, o.stats.Finish)
	assertBegins(t, r, 20-12+1, o)

	o = runRequest(t, t.Context(), e, greedyFor(prompt(21, 2), 30))
	assert.True(t, errors.Is(o.err, eval.ErrNoSlot), o.err)
	assert.Empty(t, o.tokens)
}
