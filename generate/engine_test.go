package generate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
)

// waitFor waits until a condition on what Engine.mu guards holds.
func waitFor(t *testing.T, e *Engine, condition func() bool) {
	t.Helper()
	for range 100_000 {
		e.mu.Lock()
		ok := condition()
		e.mu.Unlock()
		if ok {
			return
		}
		runtime.Gosched()
		time.Sleep(50 * time.Microsecond)
	}
	t.Error("the condition did not come to hold")
}

func TestBadOptions(t *testing.T) {
	tests := []struct {
		model   tablemodel.Config
		options Options
		want    string
	}{
		{tablemodel.Config{Sequences: 8, Batch: 7}, Options{}, "a batch of 7 rows, 7 of them outputs, for 8 sequences"},
		{tablemodel.Config{Sequences: 8, Batch: 9, Outputs: 7}, Options{}, "a batch of 9 rows, 7 of them outputs, for 8 sequences"},
		{tablemodel.Config{Sequences: 8, Batch: 64}, Options{PrefillChunk: 58}, "PrefillChunk is 58: it must be in [1, 57]"},
		{tablemodel.Config{}, Options{PrefillChunk: -1}, "PrefillChunk is -1"},
		{tablemodel.Config{}, Options{MaxQueue: -1}, "MaxQueue is -1"},
	}
	for _, test := range tests {
		_, err := New(tablemodel.New(test.model), tablemodel.Words(), test.options)
		assert.ErrorContains(t, err, test.want)
	}
	newEngine(t, tablemodel.New(tablemodel.Config{Sequences: 8, Batch: 64}), Options{PrefillChunk: 57})
}

func TestExact(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{})
	newEngine(t, m, Options{Exact: true})
	assert.Equal(t, 1, m.Counters().Probes)

	m = tablemodel.New(tablemodel.Config{Noise: eval.Noise{MaxAbs: 0.125, Rows: 40, Depth: 600}})
	newEngine(t, m, Options{}).Close() // others use the model below
	assert.Zero(t, m.Counters().Probes)
	_, err := New(m, tablemodel.Words(), Options{Exact: true})
	assert.ErrorIs(t, err, ErrNotExact)
	assert.ErrorContains(t, err, "differs by up to 0.125 (40 rows compared, up to 600 tokens deep)")

	_, err = New(probes{m, eval.Noise{}, nil}, tablemodel.Words(), Options{Exact: true})
	assert.ErrorIs(t, err, ErrNotExact)
	assert.ErrorContains(t, err, "no rows")
	_, err = New(probes{m, eval.Noise{}, errBoom}, tablemodel.Words(), Options{Exact: true})
	assert.ErrorIs(t, err, errBoom)
}

type probes struct {
	*tablemodel.Model
	noise eval.Noise
	err   error
}

func (p probes) Probe(context.Context) (eval.Noise, error) { return p.noise, p.err }

func TestBadRequest(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{Context: 16})
	e := newEngine(t, m, Options{})
	tests := []struct {
		name   string
		change func(r *Request)
		want   string
		is     error
	}{
		{"empty prompt", func(r *Request) { r.Prompt = nil }, "the prompt is empty", nil},
		{"long prompt", func(r *Request) { r.Prompt = prompt(17, 1) }, "17 tokens in a context of 16", ErrPromptTooLong},
		{"negative token", func(r *Request) { r.Prompt = []int32{1, -1} }, "prompt token 1 is -1", eval.ErrToken},
		{"token outside", func(r *Request) { r.Prompt = []int32{32} }, "prompt token 0 is 32: token outside the vocabulary of 32", eval.ErrToken},
		{"end token outside", func(r *Request) { r.EndTokens = []int32{5, 32} }, "end token 1 is 32", eval.ErrToken},
		{"empty stop string", func(r *Request) { r.Stop = []string{"a", ""} }, "stop string 1 is empty", nil},
		{"negative budget", func(r *Request) { r.MaxTokens = -1 }, "MaxTokens is -1: it must be at least 0", nil},
		{"negative TopLogProbs", func(r *Request) { r.TopLogProbs = -1 }, "TopLogProbs is -1: it must be in [0, 32]", nil},
		{"large TopLogProbs", func(r *Request) { r.TopLogProbs = 33 }, "TopLogProbs is 33", nil},
		{"negative TraceTop", func(r *Request) { r.TraceTop = -1 }, "TraceTop is -1: it must be in [0, 32]", nil},
		{"end tokens and a constraint", func(r *Request) { r.Sampling.Constraint, r.EndTokens = matcherOf(t, `root ::= "a"`), []int32{5} }, "EndTokens with a constraint: it must be empty", nil},
		{"a constraint and no ends", func(r *Request) { r.Sampling.Constraint, r.IgnoreEOG = matcherOf(t, `root ::= "a"`), true }, "IgnoreEOG with a constraint: it must be false", nil},
		{"sampling", func(r *Request) { r.Sampling = sampler.Config{Temperature: -1} }, "generate: sampler: ", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := Request{Prompt: bos()}
			test.change(&r)
			o := runRequest(t, t.Context(), e, r)
			require.ErrorContains(t, o.err, test.want)
			assert.True(t, strings.HasPrefix(o.err.Error(), "generate: "), o.err)
			if test.is != nil {
				assert.ErrorIs(t, o.err, test.is)
			}
			assert.Equal(t, Failed, o.stats.Finish)
		})
	}
	assert.Zero(t, m.Counters().Evals)
}

func TestStreamIsSingleUse(t *testing.T) {
	e := scripted(t, "a")
	s := e.Stream(t.Context(), Request{Prompt: bos()})
	for range s {
	}
	assert.PanicsWithValue(t, "generate: a stream is ranged over a second time", func() {
		for range s {
		}
	})
}

// The prompt is the caller's: it is not written to, nor behind its end.
func TestPromptIsLeftAlone(t *testing.T) {
	e := newEngine(t, tablemodel.New(tablemodel.Config{}), Options{})
	all := prompt(40, 1)
	want := slices.Clone(all)
	r := example()
	r.Prompt = all[:10]
	first := runRequest(t, t.Context(), e, r)
	assert.Len(t, first.tokens, 11)
	assert.Equal(t, want, all)
}

// A stream that is not ranged over does nothing.
func TestStreamIsLazy(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{})
	e := newEngine(t, m, Options{})
	e.Stream(t.Context(), Request{Prompt: bos()})
	assert.Empty(t, e.open)
}

func TestLeaveLoop(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{})
	e := newEngine(t, m, Options{})
	r := example()
	want := simulate(tablemodel.Hashed(0), 1024, r)
	for n := 1; n <= len(want.tokens); n++ {
		var stats Stats
		r.Stats = &stats
		text, got := "", 0
		for token, err := range e.Stream(t.Context(), r) {
			require.NoError(t, err)
			text += token.Text
			if got++; got == n {
				break
			}
		}
		assert.True(t, strings.HasPrefix(want.text, text))
		assert.GreaterOrEqual(t, stats.Generated, n)
		if stats.Generated < r.MaxTokens {
			assert.Equal(t, Cancelled, stats.Finish)
		}
	}
	r.Stats = nil
	assert.Panics(t, func() {
		for range e.Stream(t.Context(), r) {
			panic("in the body")
		}
	})
	waitFor(t, e, func() bool { return len(e.open) == 0 })
	assertSame(t, want, runRequest(t, t.Context(), e, r))
}

// Leaving the loop interrupts the Eval under way.
func TestLeaveLoopInterrupts(t *testing.T) {
	started := make(chan struct{})
	m := tablemodel.New(tablemodel.Config{OnEval: at(5, func(ctx context.Context) error {
		close(started)
		<-ctx.Done()
		return context.Cause(ctx)
	})})
	e := newEngine(t, m, Options{})
	for range e.Stream(t.Context(), example()) {
		<-started
		break
	}
	assertSame(t, simulate(tablemodel.Hashed(0), 1024, example()), runRequest(t, t.Context(), e, example()))
}

// A reader that stands still delays neither the others nor the engine.
func TestSlowReader(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{Sequences: 2})
	e := newEngine(t, m, Options{})
	r := example()
	r.Prompt, r.MaxTokens = prompt(10, 1), 200
	want := simulate(tablemodel.Hashed(0), 1024, r)
	got := outcome{}
	r.Stats = &got.stats
	for token, err := range e.Stream(t.Context(), r) {
		require.NoError(t, err)
		if len(got.tokens) == 0 {
			assertSame(t, simulate(tablemodel.Hashed(0), 1024, example()), runRequest(t, t.Context(), e, example()))
			waitFor(t, e, func() bool { return len(e.open) == 0 }) // this text is done too
		}
		got.tokens = append(got.tokens, token)
		got.text += token.Text
	}
	assertSame(t, want, got)
}

// Requests get their sequences in the order in which they came; one that waits
// can be cancelled.
func TestQueue(t *testing.T) {
	gate := make(chan struct{})
	var first []int32 // the first prompt token of each Eval's first row
	m := tablemodel.New(tablemodel.Config{OnEval: func(_ context.Context, n int, rows []eval.Row) error {
		if n == 0 {
			<-gate
		}
		first = append(first, rows[0].Token)
		return nil
	}})
	e := newEngine(t, m, Options{MaxQueue: 4})
	ctx, cancel := context.WithCancel(t.Context())
	outcomes := make([]chan outcome, 5)
	for i := range outcomes {
		outcomes[i] = make(chan outcome, 1)
		c := t.Context()
		if i == 2 {
			c = ctx
		}
		go func() {
			outcomes[i] <- runRequest(t, c, e, Request{Prompt: []int32{int32(10 + i)}, MaxTokens: 1, IgnoreEOG: true})
		}()
		waitFor(t, e, func() bool { return len(e.open) == i+1 && len(e.queue) == i })
	}
	busy := runRequest(t, t.Context(), e, example())
	assert.ErrorIs(t, busy.err, ErrBusy)

	cancel()
	o := <-outcomes[2]
	assert.ErrorIs(t, o.err, context.Canceled)
	assert.Equal(t, Cancelled, o.stats.Finish)
	assert.Zero(t, o.stats.PromptTime)
	close(gate)
	for _, i := range []int{0, 1, 3, 4} {
		assert.NoError(t, (<-outcomes[i]).err)
	}
	e.Close()
	assert.Equal(t, []int32{10, 11, 13, 14}, first)
}

func TestClose(t *testing.T) {
	for call := range 8 {
		started := make(chan struct{})
		m := tablemodel.New(tablemodel.Config{Sequences: 2, OnEval: at(call, func(ctx context.Context) error {
			close(started)
			<-ctx.Done()
			return fmt.Errorf("interrupted: %w", context.Cause(ctx))
		})})
		e := newEngine(t, m, Options{})
		all := make(chan outcome)
		for i := range 4 { // two live, two waiting
			r := example()
			r.Prompt, r.MaxTokens = prompt(5, i), 0
			go func() { all <- runRequest(t, t.Context(), e, r) }()
		}
		<-started
		e.Close()
		for range 4 {
			o := <-all
			assert.ErrorIs(t, o.err, ErrClosed)
			assert.Equal(t, Failed, o.stats.Finish)
		}
		assert.ErrorIs(t, runRequest(t, t.Context(), e, example()).err, ErrClosed)
		e.Close()
	}
}

func TestCloseIdle(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{})
	e := newEngine(t, m, Options{})
	e.Close()
	assert.Zero(t, m.Counters().Evals)
}

// Close in the body of the loop.
func TestCloseWhileReading(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{})
	e := newEngine(t, m, Options{})
	r := example()
	r.MaxTokens = 0
	var last error
	n := 0
	for _, err := range e.Stream(t.Context(), r) {
		if n == 0 {
			e.Close()
		}
		n++
		last = err
	}
	if !errors.Is(last, ErrClosed) {
		// The engine had run ahead to the end of the context.
		assert.Equal(t, 1024-10+1, n)
	}
}

// An engine without requests evaluates nothing, and says so to the evaluator.
func TestIdle(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{})
	e := newEngine(t, m, Options{})
	waitFor(t, e, func() bool { return m.Counters().Idles == 1 })
	for i := range 3 {
		runRequest(t, t.Context(), e, example())
		waitFor(t, e, func() bool { return m.Counters().Idles == i+2 })
	}
}

func TestStatsRates(t *testing.T) {
	s := Stats{Prompt: 120, Cached: 20, Evaluated: 100, Generated: 51, Wait: time.Second, PromptTime: 2 * time.Second, GenerateTime: 5 * time.Second}
	assert.Equal(t, 50.0, s.PromptRate())
	assert.Equal(t, 10.0, s.GenerateRate())
	assert.Equal(t, 3*time.Second, s.TimeToFirst())
	assert.Zero(t, Stats{Prompt: 5, Cached: 5, PromptTime: time.Second}.PromptRate())
	assert.Zero(t, Stats{Generated: 1}.GenerateRate())
	assert.Zero(t, Stats{}.GenerateRate())
}

func TestTimes(t *testing.T) {
	now := time.Now()
	after := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	var s Stats
	times{asked: after(0), seated: after(1), first: after(3), last: after(7)}.end(&s)
	assert.Equal(t, Stats{Wait: time.Second, PromptTime: 2 * time.Second, GenerateTime: 4 * time.Second}, s)

	s = Stats{}
	times{asked: now.Add(-time.Second), seated: now.Add(-time.Second / 2)}.end(&s)
	assert.Equal(t, time.Second/2, s.Wait)
	assert.GreaterOrEqual(t, s.PromptTime, time.Second/2)

	s = Stats{}
	times{asked: now.Add(-time.Second)}.end(&s)
	assert.GreaterOrEqual(t, s.Wait, time.Second)
	assert.Zero(t, s.PromptTime)
}

// What the evaluator holds when the engine starts is not evaluated again.
func TestHeld(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{Sequences: 2})
	var rows []eval.Row
	for _, x := range prompt(8, 3) {
		rows = append(rows, eval.Row{Token: x, Seq: 1})
	}
	require.NoError(t, m.Eval(t.Context(), rows))
	e := newEngine(t, m, Options{Held: [][]int32{nil, prompt(8, 3)}})
	r := greedyFor(prompt(10, 3), 4)
	o := runRequest(t, t.Context(), e, r)
	assertSame(t, simulate(tablemodel.Hashed(0), 1024, r), o)
	assert.Equal(t, 8, o.stats.Cached)
	e.Close()

	for want, held := range map[string][][]int32{
		"generate: Held names 3 sequences, and the evaluator has 2": {nil, nil, nil},
		"generate: Held has 2 tokens for sequence 0, which holds 0": {{1, 2}},
	} {
		_, err := New(tablemodel.New(tablemodel.Config{Sequences: 2}), tablemodel.Words(), Options{Held: held})
		assert.EqualError(t, err, want)
	}
}
