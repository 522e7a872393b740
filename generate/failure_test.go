package generate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
)

var (
	negInf  = math.Inf(-1)
	errBoom = errors.New("boom")
)

type hook = func(ctx context.Context, call int, rows []eval.Row) error

// at returns a hook that calls f in the Eval with number call.
func at(call int, f func(ctx context.Context) error) hook {
	return func(ctx context.Context, n int, _ []eval.Row) error {
		if n == call {
			return f(ctx)
		}
		return nil
	}
}

// The request of most tests here: a prompt of 10 tokens read in three Evals (4,
// 4 and 2 tokens), the last of which brings the first token of the text; the
// other 10 take one each.
func example() Request {
	return Request{Prompt: prompt(10, 3), MaxTokens: 11, IgnoreEOG: true, Stop: []string{"no such text"}, Sampling: sampler.Default(), Seed: 5}
}

const (
	exampleChunk   = 4
	examplePrompts = 2
	exampleEvals   = examplePrompts + 11
)

// assertBegins checks that a text ends after n tokens, none of it lost.
func assertBegins(t *testing.T, r Request, n int, got outcome) {
	t.Helper()
	if n == 0 {
		assert.Empty(t, got.tokens)
		return
	}
	r.MaxTokens = n
	want := simulate(tablemodel.Hashed(0), 1024, r)
	assert.Equal(t, want.ids(), got.ids())
	assert.Equal(t, want.text, got.text)
}

func TestEvalFails(t *testing.T) {
	r := example()
	whole := simulate(tablemodel.Hashed(0), 1024, r)
	for call := range exampleEvals + 1 {
		t.Run(fmt.Sprint(call), func(t *testing.T) {
			m := tablemodel.New(tablemodel.Config{OnEval: at(call, func(context.Context) error { return errBoom })})
			e := newEngine(t, m, Options{PrefillChunk: exampleChunk})
			o := runRequest(t, t.Context(), e, r)
			if call == exampleEvals {
				assertSame(t, whole, o, "not reached")
				return
			}
			assert.ErrorIs(t, o.err, errBoom)
			assert.Equal(t, Failed, o.stats.Finish)
			assertBegins(t, r, max(0, call-examplePrompts), o)
			assert.Equal(t, []int{0, 4, 8, 10}[min(call, 3)], o.stats.Evaluated)

			// The engine goes on, and what was evaluated is not evaluated again.
			again := runRequest(t, t.Context(), e, r)
			assertSame(t, whole, again)
			assert.Equal(t, min(call*exampleChunk, 9), again.stats.Cached)
			assert.Equal(t, 10-again.stats.Cached, again.stats.Evaluated)
		})
	}
}

// A failed Eval ends the requests that share it, and no other.
func TestEvalFailsForTheBatch(t *testing.T) {
	all := requests(3)
	var want []outcome
	for i := range all {
		all[i].IgnoreEOG, all[i].Stop, all[i].MaxTokens = true, nil, 20
		want = append(want, simulate(tablemodel.Hashed(0), 1024, all[i]))
	}
	for call := range 30 {
		var hit []int // sequences in the batch that failed
		m := tablemodel.New(tablemodel.Config{Sequences: 2, OnEval: func(_ context.Context, n int, rows []eval.Row) error {
			if n != call {
				return nil
			}
			for _, row := range rows {
				if !slices.Contains(hit, row.Seq) {
					hit = append(hit, row.Seq)
				}
			}
			return errBoom
		}})
		e := newEngine(t, m, Options{})
		failed := 0
		for i, o := range runAll(t, e, all) {
			if o.err != nil {
				failed++
				assert.ErrorIs(t, o.err, errBoom)
				assertBegins(t, all[i], len(o.tokens), o)
			} else {
				assertSame(t, want[i], o)
			}
		}
		assert.Equal(t, len(hit), failed, "Eval %d", call)
	}
}

// Without room a lone request fails before its first token, and ends with what
// it has after that.
func TestNoSlotAlone(t *testing.T) {
	r := example()
	for call := range exampleEvals {
		m := tablemodel.New(tablemodel.Config{OnEval: at(call, func(context.Context) error { return fmt.Errorf("full: %w", eval.ErrNoSlot) })})
		e := newEngine(t, m, Options{PrefillChunk: exampleChunk})
		o := runRequest(t, t.Context(), e, r)
		assertBegins(t, r, max(0, call-examplePrompts), o)
		if call <= examplePrompts {
			assert.ErrorIs(t, o.err, eval.ErrNoSlot)
			assert.ErrorContains(t, o.err, "10 tokens")
			assert.Equal(t, Failed, o.stats.Finish)
		} else {
			assert.NoError(t, o.err)
			assert.Equal(t, ContextFull, o.stats.Finish)
		}
		assertSame(t, simulate(tablemodel.Hashed(0), 1024, r), runRequest(t, t.Context(), e, r))
	}
}

// Without room for two the younger waits for the older, and both get their
// whole text.
func TestNoSlotTogether(t *testing.T) {
	all := []Request{example(), example(), example()}
	all[1].Prompt, all[2].Prompt = prompt(12, 4), prompt(9, 5)
	for call := range 20 {
		m := tablemodel.New(tablemodel.Config{Sequences: 3, OnEval: func(_ context.Context, n int, rows []eval.Row) error {
			if n >= call && slices.ContainsFunc(rows, func(r eval.Row) bool { return r.Seq != rows[0].Seq }) {
				return fmt.Errorf("full: %w", eval.ErrNoSlot) // no two sequences from now on
			}
			return nil
		}})
		e := newEngine(t, m, Options{PrefillChunk: exampleChunk})
		for i, o := range runAll(t, e, all) {
			assertSame(t, simulate(tablemodel.Hashed(0), 1024, all[i]), o, "no room from Eval %d on", call)
		}
	}
}

// Those that wait for room are served in the order in which they came.
func TestNoSlotKeepsTheOrder(t *testing.T) {
	gate := make(chan struct{})
	var read [][]int32 // prompts, as they are evaluated
	m := tablemodel.New(tablemodel.Config{Sequences: 2, OnEval: func(_ context.Context, n int, rows []eval.Row) error {
		if n == 0 {
			<-gate
		}
		if slices.ContainsFunc(rows, func(r eval.Row) bool { return r.Seq != rows[0].Seq }) {
			return fmt.Errorf("full: %w", eval.ErrNoSlot)
		}
		if len(rows) > 1 {
			var p []int32
			for _, r := range rows {
				p = append(p, r.Token)
			}
			read = append(read, p)
		}
		return nil
	}})
	e := newEngine(t, m, Options{})
	var group sync.WaitGroup
	var prompts [][]int32
	for i := range 4 {
		r := example()
		r.Prompt = prompt(10, i)
		prompts = append(prompts, r.Prompt)
		group.Go(func() {
			assertSame(t, simulate(tablemodel.Hashed(0), 1024, r), runRequest(t, t.Context(), e, r))
		})
		waitFor(t, e, func() bool { return len(e.open) == i+1 })
	}
	close(gate)
	group.Wait()
	assert.Equal(t, prompts, read)
}

// What idle sequences hold is given up before a request has to wait.
func TestNoSlotDropsIdleCaches(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{Sequences: 3, Cells: 30})
	e := newEngine(t, m, Options{})
	r := example()
	r.MaxTokens = 6
	one, two, three := r, r, r
	one.Prompt, two.Prompt, three.Prompt = prompt(10, 1), prompt(10, 2), prompt(10, 3)
	for _, r := range []Request{one, two} {
		assertSame(t, simulate(tablemodel.Hashed(0), 1024, r), runRequest(t, t.Context(), e, r))
	}
	// 15 + 15 cells are taken by idle sequences.
	assertSame(t, simulate(tablemodel.Hashed(0), 1024, three), runRequest(t, t.Context(), e, three))
	// The one that was idle longest is gone, the other is not.
	assert.Equal(t, 9, runRequest(t, t.Context(), e, two).stats.Cached)
	assert.Equal(t, 0, runRequest(t, t.Context(), e, one).stats.Cached)
}

// cancelAt cancels in the Eval with number call, which is interrupted or not.
func cancelAt(call int, interrupted bool, cancel func()) hook {
	return at(call, func(ctx context.Context) error {
		cancel()
		if interrupted {
			<-ctx.Done()
			return fmt.Errorf("interrupted: %w", context.Cause(ctx))
		}
		return nil
	})
}

func TestCancelAtEveryEval(t *testing.T) {
	r := example()
	whole := simulate(tablemodel.Hashed(0), 1024, r)
	why := errors.New("had enough")
	for call := range exampleEvals {
		for _, interrupted := range []bool{false, true} {
			for _, noRollback := range []bool{false, true} {
				ctx, cancel := context.WithCancelCause(t.Context())
				m := tablemodel.New(tablemodel.Config{NoRollback: noRollback, OnEval: cancelAt(call, interrupted, func() { cancel(why) })})
				e := newEngine(t, m, Options{PrefillChunk: exampleChunk})
				o := runRequest(t, ctx, e, r)
				before := max(0, call-examplePrompts)
				if !interrupted && o.err == nil {
					// The Eval was over before the engine heard of it: no later than the end.
					assertSame(t, whole, o)
				} else {
					require.ErrorIs(t, o.err, why)
					assert.Equal(t, Cancelled, o.stats.Finish)
					assertBegins(t, r, len(o.tokens), o)
					assert.GreaterOrEqual(t, len(o.tokens), before)
					if interrupted {
						assert.Len(t, o.tokens, before)
					}
				}
				assertSame(t, whole, runRequest(t, t.Context(), e, r))
			}
		}
	}
}

// A request that is cancelled does not interrupt the Eval that it shares.
func TestCancelInCompany(t *testing.T) {
	all := []Request{example(), example()}
	all[1].Prompt, all[1].MaxTokens = prompt(7, 4), 40
	for call := range exampleEvals {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		together := make(chan struct{})
		m := tablemodel.New(tablemodel.Config{Sequences: 2, OnEval: func(ctx context.Context, n int, rows []eval.Row) error {
			if n == 0 {
				<-together // both are queued: the next Eval has both
			}
			if n == call+1 {
				cancel()
				<-ended // the request has returned, during this Eval
				assert.NoError(t, ctx.Err())
			}
			return nil
		}})
		e := newEngine(t, m, Options{PrefillChunk: exampleChunk})
		outcomes := make(chan outcome)
		go func() { outcomes <- runRequest(t, t.Context(), e, all[1]) }()
		waitFor(t, e, func() bool { return len(e.open) == 1 && len(e.queue) == 0 })
		go func() {
			waitFor(t, e, func() bool { return len(e.open) == 2 })
			close(together)
		}()
		o := runRequest(t, ctx, e, all[0])
		close(ended)
		assert.ErrorIs(t, o.err, context.Canceled)
		assertBegins(t, all[0], len(o.tokens), o)
		assertSame(t, simulate(tablemodel.Hashed(0), 1024, all[1]), <-outcomes, "Eval %d", call)
		cancel()
	}
}

// When the last of several is cancelled, their Eval is interrupted.
func TestCancelAll(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan struct{})
	m := tablemodel.New(tablemodel.Config{Sequences: 2, OnEval: func(ctx context.Context, n int, rows []eval.Row) error {
		if n == 6 {
			close(started)
			<-ctx.Done()
		}
		return nil
	}})
	e := newEngine(t, m, Options{})
	go func() {
		<-started
		cancel()
	}()
	all := make(chan outcome)
	for i := range 2 {
		r := example()
		r.Prompt, r.MaxTokens = prompt(8, i), 0
		go func() { all <- runRequest(t, ctx, e, r) }()
	}
	for range 2 {
		assert.ErrorIs(t, (<-all).err, context.Canceled)
	}
	assertSame(t, simulate(tablemodel.Hashed(0), 1024, example()), runRequest(t, t.Context(), e, example()))
}

func TestDoneContext(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{})
	e := newEngine(t, m, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		o := runRequest(t, ctx, e, example())
		assert.ErrorIs(t, o.err, context.Canceled)
		assert.Equal(t, Cancelled, o.stats.Finish)
	}
	assert.Zero(t, m.Counters().Evals)
}

// A row that cannot be sampled ends its own request only.
func TestSamplerFails(t *testing.T) {
	bad := prompt(6, 9)
	logits := func(dst []float32, prefix []int32) {
		tablemodel.Hashed(0)(dst, prefix)
		if len(prefix) == 9 && slices.Equal(prefix[:6], bad) {
			dst[3] = float32(math.NaN())
		}
	}
	m := tablemodel.New(tablemodel.Config{Sequences: 2, Logits: logits})
	e := newEngine(t, m, Options{})
	all := []Request{example(), example()}
	all[0].Prompt = bad
	o := runAll(t, e, all)
	assert.ErrorIs(t, o[0].err, sampler.ErrNaN)
	assert.ErrorContains(t, o[0].err, "token 3 of the text")
	assertBegins(t, all[0], 3, o[0])
	assertSame(t, simulate(tablemodel.Hashed(0), 1024, all[1]), o[1])
}

// A filter of one request's own panics: its reader gets the panic, after the
// text so far, and no one else notices.
func TestFilterPanics(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{Sequences: 2})
	e := newEngine(t, m, Options{})
	other := make(chan outcome)
	go func() { other <- runRequest(t, t.Context(), e, example()) }()
	r := greedyFor(prompt(8, 1), 6)
	r.Stats = &Stats{}
	r.Sampling.Steps = map[string]sampler.Step{"mine": panicsAt(11)}
	r.Sampling.Order = []string{"mine", "temperature"}
	var got outcome
	assert.PanicsWithValue(t, "my filter", func() {
		for token, err := range e.Stream(t.Context(), r) {
			require.NoError(t, err)
			got.tokens = append(got.tokens, token)
			got.text += token.Text
		}
	})
	assert.Equal(t, Failed, r.Stats.Finish)
	r.Sampling = sampler.Config{}
	assertBegins(t, r, 3, got)
	assertSame(t, simulate(tablemodel.Hashed(0), 1024, example()), <-other)
}

type panicsAt int

func (p panicsAt) Apply(_ *sampler.Candidates, history []int32) error {
	if len(history) == int(p) {
		panic("my filter")
	}
	return nil
}

// An evaluator that cannot restore a sequence after an error empties it.
func TestSequenceLostWithError(t *testing.T) {
	var m *tablemodel.Model
	lost := &losesSequence{}
	m = tablemodel.New(tablemodel.Config{OnEval: at(5, func(context.Context) error { lost.now = true; return errBoom })})
	lost.Model = m
	e, err := New(lost, tablemodel.Words(), Options{tested: func(e *Engine) { checkBooks(t, e, m) }})
	require.NoError(t, err)
	defer e.Close()
	assert.ErrorIs(t, runRequest(t, t.Context(), e, example()).err, errBoom)
	again := runRequest(t, t.Context(), e, example())
	assertSame(t, simulate(tablemodel.Hashed(0), 1024, example()), again)
	assert.Zero(t, again.stats.Cached)
}

type losesSequence struct {
	*tablemodel.Model
	now bool
}

func (l *losesSequence) Eval(ctx context.Context, rows []eval.Row) error {
	err := l.Model.Eval(ctx, rows)
	if l.now {
		l.now = false
		_ = l.Model.Truncate(0, 0)
	}
	return err
}
