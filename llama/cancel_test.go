package llama

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
)

// A cancelled Eval is as if it had not been called: the account in Go, the
// one in llama.cpp, and every bit of what comes next.
func TestCancelLeavesEverythingAsItWas(t *testing.T) {
	for _, c := range []struct {
		model string
		o     SessionOptions
	}{
		{"llama", SessionOptions{Sequences: 2}},
		{"llama", SessionOptions{Sequences: 2, Unified: true}},
		{"llama", SessionOptions{Sequences: 2, Microbatch: 32}},
		{"window", SessionOptions{Sequences: 2, Microbatch: 32}},
		{"window", SessionOptions{Sequences: 2, FullSWA: true, Microbatch: 32}},
		{"recurrent", SessionOptions{Sequences: 2, Microbatch: 32}},
		{"hybrid", SessionOptions{Sequences: 2, Microbatch: 32}},
	} {
		name := c.model
		if c.o.Unified {
			name += ", unified"
		}
		if c.o.FullSWA {
			name += ", full"
		}
		if c.o.Microbatch > 0 {
			name += ", small microbatches"
		}
		t.Run(name, func(t *testing.T) {
			m := tinyModel(t, c.model)
			c.o.Context, c.o.Threads = 1024, 1
			prefix := quietRowsOf(0, someTokens(m, 150, 1)...)
			more := append(quietRowsOf(0, someTokens(m, 600, 2)...), quietRowsOf(1, someTokens(m, 200, 3)...)...)
			last := []eval.Row{{Token: 10, Seq: 0, Output: true}, {Token: 11, Seq: 1, Output: true}}

			want := newSession(t, m, c.o)
			evaluate(t, want, prefix...)
			start := time.Now()
			fork := newSession(t, m, c.o)
			evaluate(t, fork, prefix...)
			evaluate(t, fork, more...)
			whole := time.Since(start)
			evaluate(t, want, last...)

			s := newSession(t, m, c.o)
			evaluate(t, s, prefix...)
			cancelled := 0
			const tries = 25
			for i := range tries {
				ctx, cancel := context.WithTimeoutCause(context.Background(), whole*time.Duration(i)/tries, errStop)
				err := s.Eval(ctx, more)
				cancel()
				if err == nil {
					checkLengths(t, s, 750, 200)
					s.Close()
					s = newSession(t, m, c.o)
					evaluate(t, s, prefix...)
					continue
				}
				require.ErrorIs(t, err, errStop)
				require.ErrorContains(t, err, "llama: decode: ")
				require.NotErrorIs(t, err, eval.ErrNoRollback)
				cancelled++
				checkLengths(t, s, 150, 0)
				require.Panics(t, func() { s.Logits(len(more) - 1) })
			}
			require.Greater(t, cancelled, 3, "cancelled in the middle")
			evaluate(t, s, last...)
			require.Equal(t, want.Logits(0), s.Logits(0))
			require.Equal(t, want.Logits(1), s.Logits(1))
			checkLengths(t, s, 151, 1)
		})
	}
}

func TestCancelledBefore(t *testing.T) {
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256})
	evaluate(t, s, rowsOf(0, 10)...)
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errStop)
	err := s.Eval(ctx, rowsOf(0, 11))
	require.ErrorIs(t, err, errStop)
	require.EqualError(t, err, "llama: decode: stopped by the test")
	checkLengths(t, s, 1)
	require.Panics(t, func() { s.Logits(0) })
	ctx, cancel2 := context.WithCancel(context.Background())
	cancel2()
	require.ErrorIs(t, s.Eval(ctx, rowsOf(0, 11)), context.Canceled)
	evaluate(t, s, rowsOf(0, 11)...)
}

// A cancellation that comes just when an Eval ends must not reach the next one,
// which has a context of its own.
func TestLateCancelDoesNotReachTheNextEval(t *testing.T) {
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 1024, Threads: 1})
	tokens := someTokens(s.model, 40, 1)
	start := time.Now()
	evaluate(t, s, quietRowsOf(0, tokens...)...)
	whole := time.Since(start)
	late := 0
	for i := range 300 {
		require.NoError(t, s.Truncate(0, 0))
		ctx, cancel := context.WithTimeout(context.Background(), whole*time.Duration(70+i%60)/100)
		err := s.Eval(ctx, quietRowsOf(0, tokens...))
		if err == nil {
			late++
		} else {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.NoError(t, s.Eval(context.Background(), rowsOf(0, 10)))
		cancel()
	}
	t.Logf("%d of 300 were too late", late)
}

func TestCancelFromAnotherGoroutineInALongPrefill(t *testing.T) {
	m := realModel(t)
	s := newSession(t, m, SessionOptions{Context: 2048})
	want := newSession(t, m, SessionOptions{Context: 2048})
	prefix := someTokens(m, 20, 1)
	evaluate(t, s, quietRowsOf(0, prefix...)...)
	evaluate(t, want, quietRowsOf(0, prefix...)...)

	var log strings.Builder
	SetLogger(slog.New(slog.NewTextHandler(&log, nil)), slog.LevelWarn)
	defer SetLogger(slog.New(slog.DiscardHandler), slog.LevelError)
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		time.Sleep(50 * time.Millisecond)
		cancel(errStop)
	}()
	err := s.Eval(ctx, quietRowsOf(0, someTokens(m, 1900, 2)...))
	require.ErrorIs(t, err, errStop)
	require.Empty(t, log.String(), "a cancelled decode is no failure")
	checkLengths(t, s, 20)
	require.Equal(t, next(t, want, 0, 100), next(t, s, 0, 100))
}

func TestRecurrentMemoryCannotRollBack(t *testing.T) {
	for _, name := range []string{"recurrent", "hybrid"} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, tinyModel(t, name), SessionOptions{Context: 256, Sequences: 3})
			evaluate(t, s, rowsOf(0, 10, 11, 12)...)
			want := logits(s, 2)
			for n := 1; n < 3; n++ {
				err := s.Truncate(0, n)
				require.ErrorIs(t, err, eval.ErrNoRollback)
				require.ErrorContains(t, err, "llama: truncate to ")
				checkLengths(t, s, 3, 0, 0)
			}
			require.NoError(t, s.Truncate(0, 3))

			// What cannot be cut can be copied before.
			require.NoError(t, s.Copy(1, 0))
			checkLengths(t, s, 3, 3, 0)
			ahead := next(t, s, 0, 13)
			require.Equal(t, ahead, next(t, s, 1, 13))
			require.NoError(t, s.Copy(2, 1))
			require.NoError(t, s.Truncate(1, 0))
			checkLengths(t, s, 4, 0, 4)
			evaluate(t, s, rowsOf(1, 10, 11, 12)...)
			require.InDeltaSlice(t, want, s.Logits(2), 2e-2)
			require.NoError(t, s.Truncate(0, 0))
			require.NoError(t, s.Clear())
			checkLengths(t, s, 0, 0, 0)
			evaluate(t, s, rowsOf(0, 10, 11, 12)...)
			require.Equal(t, want, logits(s, 2))
		})
	}
}

// Without FullSWA the cells that left the window are gone.
func TestSlidingWindow(t *testing.T) {
	m := tinyModel(t, "window")
	tokens := someTokens(m, 300, 1)
	full := newSession(t, m, SessionOptions{Context: 512, FullSWA: true, Microbatch: 32})
	s := newSession(t, m, SessionOptions{Context: 512, Microbatch: 32})
	evaluate(t, full, quietRowsOf(0, tokens...)...)
	evaluate(t, s, quietRowsOf(0, tokens...)...)
	require.InDeltaSlice(t, full.Logits(299), s.Logits(299), 2e-2)

	err := s.Truncate(0, 100)
	require.ErrorIs(t, err, eval.ErrNoRollback)
	require.ErrorContains(t, err, "the sliding window of 64 now starts at token")
	checkLengths(t, s, 300)
	require.NoError(t, full.Truncate(0, 100))
	require.InDeltaSlice(t, freshNext(t, m, tokens[:100], 10), next(t, full, 0, 10), 2e-2)

	// A little is always possible.
	require.NoError(t, s.Truncate(0, 299))
	require.InDeltaSlice(t, freshNext(t, m, tokens[:299], 10), next(t, s, 0, 10), 2e-2)
	require.NoError(t, s.Truncate(0, 0))
	evaluate(t, s, quietRowsOf(0, tokens[:50]...)...)
	require.NoError(t, s.Truncate(0, 20)) // nothing has left the window yet
	require.InDeltaSlice(t, freshNext(t, m, tokens[:20], 10), next(t, s, 0, 10), 2e-2)
}

// freshNext are the logits of a new session that holds tokens, after one more.
func freshNext(t *testing.T, m *Model, tokens []int32, token int32) []float32 {
	t.Helper()
	s := newSession(t, m, SessionOptions{Context: 512, FullSWA: true})
	evaluate(t, s, quietRowsOf(0, tokens...)...)
	return next(t, s, 0, token)
}

func TestPerf(t *testing.T) {
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256})
	evaluate(t, s, quietRowsOf(0, 10, 11, 12, 13, 14)...)
	for range 3 {
		next(t, s, 0, 15)
	}
	p := s.Perf()
	require.Equal(t, 5, p.PromptTokens)
	require.Equal(t, 3, p.EvalTokens)
	require.Positive(t, p.PromptMS)
	require.Positive(t, p.EvalMS)
	require.Positive(t, p.GraphsReused)
	s.ResetPerf()
	require.Zero(t, s.Perf().EvalMS)
	next(t, s, 0, 15)
	require.Equal(t, 1, s.Perf().EvalTokens)
}

func TestErrorsAreAnError(t *testing.T) {
	e := &Error{Op: "decode", Code: -1, Log: "line one\nline two\n"}
	require.EqualError(t, e, "llama: decode: line one; line two (code -1)")
	e = &Error{Op: "decode", Err: Assertion("x.cpp:1: GGML_ASSERT(a) failed"), Log: "why\n"}
	require.EqualError(t, e, "llama: decode: x.cpp:1: GGML_ASSERT(a) failed: why")
	require.ErrorIs(t, &Error{Op: "x", Err: ErrBroken}, ErrBroken)
	require.True(t, errors.As(e, new(Assertion)))
}
