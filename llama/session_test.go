package llama

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
)

// plain are the options whose numbers come nearest to those of the reference.
func plain(o SessionOptions) SessionOptions {
	o.KeyType, o.ValueType = TypeF32, TypeF32
	if o.Context == 0 {
		o.Context = 256
	}
	return o
}

// A pair is a session and, per sequence, what the reference makes of it.
type pair struct {
	t      *testing.T
	s      *Session
	r      *reference
	caches []*refCache
}

func newPair(t *testing.T, o SessionOptions) *pair {
	p := &pair{t: t, s: newSession(t, tinyModel(t, "llama"), plain(o)), r: newReference(t)}
	for range p.s.limits.Sequences {
		p.caches = append(p.caches, p.r.cache())
	}
	return p
}

// eval evaluates rows on both sides and compares the logits of every output.
func (p *pair) eval(rows ...eval.Row) {
	p.t.Helper()
	evaluate(p.t, p.s, rows...)
	tolerance := 1e-3
	if p.s.options.FlashAttention != FlashOff {
		tolerance = 2e-2 // on a CPU it computes in half precision here and there
	}
	for i, row := range rows {
		_, want := p.r.next(p.caches[row.Seq], row.Token)
		if row.Output {
			requireNear(p.t, want, p.s.Logits(i), tolerance, "row", i, row)
		}
	}
	p.check()
}

func (p *pair) check() {
	p.t.Helper()
	for seq, c := range p.caches {
		require.Equal(p.t, c.len(), p.s.Len(seq))
	}
	checkLengths(p.t, p.s)
}

func (p *pair) truncate(seq, n int) {
	p.t.Helper()
	require.NoError(p.t, p.s.Truncate(seq, n))
	p.caches[seq].cut(n, p.caches[seq].len())
	p.check()
}

func (p *pair) copy(dst, src int) {
	p.t.Helper()
	require.NoError(p.t, p.s.Copy(dst, src))
	p.caches[dst] = p.caches[src].clone()
	p.check()
}

func (p *pair) shift(seq, from, to int) {
	p.t.Helper()
	require.NoError(p.t, p.s.Shift(seq, from, to))
	p.caches[seq].cut(from, to)
	p.check()
}

func (p *pair) clear() {
	p.t.Helper()
	require.NoError(p.t, p.s.Clear())
	for seq := range p.caches {
		p.caches[seq] = p.r.cache()
	}
	p.check()
}

var layouts = map[string]SessionOptions{
	"separate": {Sequences: 3},
	"unified":  {Sequences: 3, Unified: true},
	// Small microbatches cut an Eval, and several rows of a sequence, apart.
	"separate, microbatch 3": {Sequences: 3, Microbatch: 3},
	"unified, microbatch 3":  {Sequences: 3, Microbatch: 3, Unified: true},
	"no flash attention":     {Sequences: 3, FlashAttention: FlashOff},
}

func eachLayout(t *testing.T, test func(t *testing.T, p *pair)) {
	for name, o := range layouts {
		t.Run(name, func(t *testing.T) { test(t, newPair(t, o)) })
	}
}

func TestLogitsOfABatchAndOfSingleRows(t *testing.T) {
	eachLayout(t, func(t *testing.T, p *pair) {
		tokens := []int32{1, 77, 200, 5, 299, 120, 121, 0}
		p.eval(rowsOf(0, tokens...)...)
		for _, id := range tokens {
			p.eval(rowsOf(1, id)...)
		}
		p.eval(quietRowsOf(2, tokens...)...)
		p.eval(eval.Row{Token: 9}) // no output at all
		require.Panics(t, func() { p.s.Logits(0) })
		p.eval(rowsOf(0, 10)...)
	})
}

// Rows of several sequences, mixed, with outputs here and there: a row of
// logits must belong to its own row, whatever order llama.cpp computes them in.
func TestRowsOfSeveralSequencesMixed(t *testing.T) {
	eachLayout(t, func(t *testing.T, p *pair) {
		p.eval(
			eval.Row{Token: 10, Seq: 2, Output: true},
			eval.Row{Token: 11, Seq: 0},
			eval.Row{Token: 12, Seq: 1, Output: true},
			eval.Row{Token: 13, Seq: 0, Output: true},
			eval.Row{Token: 14, Seq: 2, Output: true},
			eval.Row{Token: 15, Seq: 0, Output: true},
			eval.Row{Token: 16, Seq: 2},
			eval.Row{Token: 17, Seq: 0, Output: true},
		)
		p.eval(
			eval.Row{Token: 20, Seq: 1, Output: true},
			eval.Row{Token: 21, Seq: 0, Output: true},
			eval.Row{Token: 22, Seq: 2, Output: true},
		)
		p.eval(rowsOf(1, 30, 31, 32, 33, 34, 35, 36)...)
	})
}

func TestTruncateCopyClear(t *testing.T) {
	eachLayout(t, func(t *testing.T, p *pair) {
		p.eval(rowsOf(0, 10, 11, 12, 13, 14, 15)...)
		p.truncate(0, 6) // nothing
		p.truncate(0, 4)
		p.eval(rowsOf(0, 40, 41)...)
		p.copy(1, 0)
		p.copy(2, 1) // a copy of a copy that no decode has seen yet
		p.truncate(0, 2)
		p.eval(append(append(rowsOf(0, 50), rowsOf(1, 51)...), rowsOf(2, 52)...)...)
		p.copy(0, 0)
		p.copy(2, 0) // over what was there
		p.truncate(0, 0)
		p.eval(append(rowsOf(2, 60), rowsOf(0, 61)...)...)
		p.copy(1, 0)
		p.truncate(1, 0)
		p.copy(0, 1) // empty
		p.eval(rowsOf(0, 62)...)
		p.clear()
		p.eval(rowsOf(1, 10, 11)...)
		p.eval(rowsOf(0, 10)...)
	})
}

func TestShift(t *testing.T) {
	eachLayout(t, func(t *testing.T, p *pair) {
		require.True(t, p.s.CanShift())
		p.eval(rowsOf(0, 10, 11, 12, 13, 14, 15, 16, 17)...)
		p.eval(rowsOf(1, 30, 31, 32)...)
		p.shift(0, 3, 3) // nothing
		p.shift(0, 2, 5)
		p.eval(rowsOf(0, 18)...)
		p.shift(0, 0, 1)
		p.shift(0, 1, 2) // a second one before the next decode
		p.eval(append(rowsOf(0, 19, 20), rowsOf(1, 33)...)...)
		p.shift(0, 0, p.s.Len(0)) // all
		p.eval(rowsOf(0, 10)...)
		for _, bad := range [][2]int{{-1, 1}, {2, 1}, {0, 2}} {
			require.Equal(t, "llama: shift: want 0 <= from <= to <= Len(seq)", panicText(func() { _ = p.s.Shift(0, bad[0], bad[1]) }))
		}
		for _, n := range []int{-1, 2} {
			require.Equal(t, "llama: truncate: want 0 to Len(seq)", panicText(func() { _ = p.s.Truncate(0, n) }))
		}
		p.check()
	})
}

// In a unified cache a copy is the same cells: to shift one would shift both.
func TestShiftOfSharedTokens(t *testing.T) {
	for _, unified := range []bool{false, true} {
		p := newPair(t, SessionOptions{Sequences: 4, Unified: unified})
		shift := func(seq, from, to int, shared bool) {
			t.Helper()
			if !shared || !unified && p.s.Len(seq) > to {
				p.shift(seq, from, to)
				return
			}
			if unified {
				require.ErrorIs(t, p.s.Shift(seq, from, to), ErrShared)
				p.check()
			}
		}
		p.eval(rowsOf(0, 10, 11, 12, 13, 14, 15)...)
		p.copy(1, 0)
		p.copy(2, 1)
		p.eval(rowsOf(0, 16, 17, 18)...)
		p.eval(rowsOf(2, 26, 27, 28)...)
		shift(0, 1, 3, true)
		shift(1, 0, 1, true)
		shift(2, 5, 5, false) // nothing
		shift(2, 0, 5, true)
		shift(2, 0, p.s.Len(2)-3, false) // what moves is its own
		p.eval(append(append(rowsOf(0, 30), rowsOf(1, 31)...), rowsOf(2, 32)...)...)
		p.truncate(1, 2)
		shift(0, 0, 2, false)
		p.eval(append(append(rowsOf(0, 30), rowsOf(1, 31)...), rowsOf(2, 32)...)...)
		p.copy(3, 0)
		shift(3, 0, 1, true)
		p.clear()
		p.eval(rowsOf(3, 10, 11)...)
		p.eval(rowsOf(0, 12, 13)...)
		shift(3, 0, 1, false)
		p.eval(append(rowsOf(3, 30), rowsOf(0, 31)...)...)
	}
}

// A unified cache has one pool of cells; the tokens of a shared prefix take
// them once.
func TestNoSlot(t *testing.T) {
	p := newPair(t, SessionOptions{Sequences: 3, Unified: true, Cells: 256})
	require.Equal(t, 256, p.s.Limits().Context)
	p.eval(quietRowsOf(0, someTokens(p.s.model, 200, 1)...)...)
	p.copy(1, 0)
	p.copy(2, 0)
	rows := quietRowsOf(1, someTokens(p.s.model, 56, 2)...)
	err := p.s.Eval(context.Background(), append(rows, eval.Row{Token: 10, Seq: 2, Output: true}))
	require.ErrorIs(t, err, eval.ErrNoSlot)
	require.EqualError(t, err, "llama: decode: no room in the KV cache for 57 rows")
	p.check()
	p.eval(rows...) // one less fits
	require.ErrorIs(t, p.s.Eval(context.Background(), rowsOf(2, 10)), eval.ErrNoSlot)
	p.truncate(1, 210)
	p.eval(rowsOf(2, 10, 11, 12)...)
}

func TestContextIsALimitForEverySequence(t *testing.T) {
	for _, unified := range []bool{false, true} {
		p := newPair(t, SessionOptions{Context: 200, Sequences: 2, Unified: unified})
		require.Equal(t, 256, p.s.Limits().Context, "rounded up")
		p.eval(quietRowsOf(0, someTokens(p.s.model, 255, 1)...)...)
		err := p.s.Eval(context.Background(), append(rowsOf(1, 10), rowsOf(0, 10, 11)...))
		require.ErrorIs(t, err, eval.ErrNoSlot)
		require.EqualError(t, err, "llama: decode: sequence 0 holds 255 tokens: no room in the KV cache")
		p.check()
		p.eval(append(rowsOf(1, 10), rowsOf(0, 10)...)...)
		require.ErrorIs(t, p.s.Eval(context.Background(), rowsOf(0, 10)), eval.ErrNoSlot)
		p.shift(0, 0, 100)
		p.eval(rowsOf(0, 11)...)
	}
}

// A row that is refused takes the rows before it along.
func TestEvalIsAllOrNothing(t *testing.T) {
	eachLayout(t, func(t *testing.T, p *pair) {
		p.eval(rowsOf(0, 10, 11)...)
		rows := append(rowsOf(1, 20, 21), rowsOf(0, 12, 300, 13)...)
		err := p.s.Eval(context.Background(), rows)
		require.ErrorIs(t, err, eval.ErrToken)
		require.EqualError(t, err, "llama: decode: token 300: token outside the vocabulary of 300")
		p.check()
		require.Panics(t, func() { p.s.Logits(0) })
		require.Panics(t, func() { _ = p.s.Eval(context.Background(), append(rowsOf(1, 20, 21), rowsOf(3, 12)...)) })
		p.check()
		p.eval(append(rowsOf(1, 20), rowsOf(0, 12)...)...)
	})
}

func TestLogitsMayBeWrittenTo(t *testing.T) {
	s := newSession(t, tinyModel(t, "llama"), plain(SessionOptions{Sequences: 2}))
	evaluate(t, s, rowsOf(0, 10, 11)...)
	want := logits(s, 1)
	clear(s.Logits(0))
	require.Equal(t, want, s.Logits(1))
	require.Len(t, s.Logits(0), 300)
	require.Equal(t, 300, cap(s.Logits(0)))
	evaluate(t, s, rowsOf(1, 10, 11)...)
	require.Equal(t, want, logits(s, 1))
}

func TestEvalDoesNotAllocate(t *testing.T) {
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256, Sequences: 2})
	rows := append(rowsOf(0, 10), rowsOf(1, 11)...)
	ctx := context.Background()
	var err error
	allocations := testing.AllocsPerRun(50, func() {
		err = s.Eval(ctx, rows)
		_ = s.Logits(1)
	})
	require.NoError(t, err)
	require.Zero(t, allocations)
}

func TestSessionOptionsThatAreRefused(t *testing.T) {
	m := tinyModel(t, "llama")
	pool, err := NewPool(2)
	require.NoError(t, err)
	defer pool.Close()
	for _, c := range []struct {
		o    SessionOptions
		want string
	}{
		{SessionOptions{Sequences: -1}, "-1 sequences: want 1 to 256"},
		{SessionOptions{Sequences: 257}, "257 sequences: want 1 to 256"},
		{SessionOptions{Context: -1}, "a context of -1 tokens: want 1 to 2147483647"},
		{SessionOptions{Context: 1 << 40}, "a context of 1099511627776 tokens: want 1 to 2147483647"},
		{SessionOptions{Cells: 512}, "512 cells: only with a unified cache"},
		{SessionOptions{Cells: -1, Unified: true}, "a cache of -1 tokens: want 1 to"},
		{SessionOptions{Batch: -1}, "a batch of -1 rows"},
		{SessionOptions{Batch: 1<<20 + 1}, "a batch of 1048577 rows"},
		{SessionOptions{Microbatch: -1}, "a batch of 0 rows, -1 at once"},
		{SessionOptions{Outputs: -1}, "-1 output rows: want 0 to the batch size 2048"},
		{SessionOptions{Batch: 4, Outputs: 5}, "5 output rows: want 0 to the batch size 4"},
		{SessionOptions{KeyType: 99}, "KV cache types TensorType(99) and auto: want f16"},
		{SessionOptions{ValueType: -1}, "KV cache types auto and TensorType(-1): want f16"},
		{SessionOptions{ValueType: TypeQ8_0, FlashAttention: FlashOff}, "a KV cache with values of type q8_0 needs flash attention"},
		{SessionOptions{KeyType: TypeQ8_0}, "K cache type q8_0 with block size 32 does not divide n_embd_head_k=16"},
		{SessionOptions{FlashAttention: 3}, "flash attention 3: want"},
		{SessionOptions{Pooling: -1}, "pooling -1: want"},
		{SessionOptions{Pooling: 6}, "pooling 6: want"},
		{SessionOptions{RopeFreqBase: -1}, "RoPE base -1 and scale 0: want 0 or more"},
		{SessionOptions{RopeFreqScale: 1e300}, "RoPE base 0 and scale 1e+300: want 0 or more"},
		{SessionOptions{Pool: pool, Threads: 3}, "3 threads, 0 for batches: want 1 to the pool's 2"},
		{SessionOptions{Pool: pool, BatchThreads: -1}, "0 threads, -1 for batches: want 1 to the pool's 2"},
		{SessionOptions{Threads: -1}, "threads"},
		{SessionOptions{Threads: 100000}, "100000 threads: want 1 to 512"},
	} {
		s, err := m.NewSession(c.o)
		if err == nil {
			s.Close()
		}
		require.ErrorContains(t, err, c.want, "%+v", c.o)
		require.ErrorContains(t, err, "llama: ")
	}
	encoder := tinyModel(t, "encoder")
	_, err = encoder.NewSession(SessionOptions{})
	require.EqualError(t, err, "llama: bert models make embeddings and nothing else: want Embeddings in the options")
}

// Sizes that do not go together in llama.cpp unless they are mended.
func TestSessionOptionsThatWork(t *testing.T) {
	for _, o := range []SessionOptions{
		{},
		{Context: 1},
		{Sequences: 8, Batch: 2},
		{Sequences: 8, Outputs: 2},
		{Sequences: 8, Outputs: 2, Unified: true},
		{Sequences: 8, Batch: 2, Embeddings: true},
		{Sequences: 256, Context: 256},
		{Batch: 1, Microbatch: 1},
		{Batch: 4, Microbatch: 100},
		{Cells: 1, Unified: true},
		{Cells: 300, Unified: true, Context: 64, Sequences: 2},
		{KeyType: TypeBF16, ValueType: TypeF32},
		{KeyType: TypeF32, FlashAttention: FlashOff},
		{Threads: 1},
		{Threads: 1, BatchThreads: 3},
		{RopeFreqBase: 5000, RopeFreqScale: 0.5},
		{FullSWA: true, CacheOnHost: true},
	} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			s := newSession(t, tinyModel(t, "llama"), o)
			l := s.Limits()
			require.Equal(t, max(1, o.Sequences), l.Sequences)
			require.GreaterOrEqual(t, l.Context, o.Context)
			if o.Batch > 0 {
				require.Equal(t, o.Batch, l.Batch)
			}
			require.LessOrEqual(t, l.Outputs, l.Batch)
			var rows []eval.Row
			for i := range l.Outputs {
				rows = append(rows, rowsOf(i%l.Sequences, 10)...)
			}
			evaluate(t, s, rows...)
			for i := range rows {
				s.Logits(i)
			}
		})
	}
}

func TestDefaultSession(t *testing.T) {
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{})
	require.Equal(t, eval.Limits{Vocab: 300, Sequences: 1, Context: 2048, Batch: 2048, Outputs: 33}, s.Limits())
	require.Same(t, tinyModel(t, "llama"), s.Model())
	key, value := s.KVTypes()
	require.Equal(t, []TensorType{TypeAuto, TypeAuto}, []TensorType{key, value})
}
