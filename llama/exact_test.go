package llama

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/internal/gguf"
	"github.com/sortes-llm/sortes/internal/tinymodel"
)

// fillSequence adds n arbitrary tokens to a sequence.
func fillSequence(t testing.TB, s *Session, seq, n int) {
	t.Helper()
	for chunk := range slices.Chunk(someTokens(s.model, n, uint32(n)), min(512, s.limits.Batch)) {
		rows := rowsOf(seq, chunk...)
		for i := range rows {
			rows[i].Output = s.options.Embeddings
		}
		evaluate(t, s, rows...)
	}
}

// companyNoise is the largest difference that company makes to the logits of
// 16 rows at a depth: 2, 4 and 16 of them at once, and one beside rows of the
// other sequences. Sequence 0 holds fewer tokens at first.
func companyNoise(t testing.TB, s *Session, depth int) float64 {
	t.Helper()
	fillSequence(t, s, 0, depth-s.Len(0))
	tokens := someTokens(s.model, 16, 2)
	alone := make([][]float32, len(tokens))
	for i, id := range tokens {
		alone[i] = next(t, s, 0, id)
	}
	most := 0.0
	for _, width := range []int{2, 4, 16} {
		require.NoError(t, s.Truncate(0, depth))
		evaluate(t, s, rowsOf(0, tokens[:width]...)...)
		for i := range width {
			most = max(most, apart(alone[i], s.Logits(i)))
		}
	}
	require.NoError(t, s.Truncate(0, depth))
	rows := rowsOf(0, tokens[0])
	for seq := 1; seq < s.limits.Sequences; seq++ {
		require.NoError(t, s.Copy(seq, 0))
		require.NoError(t, s.Truncate(seq, depth-depth*seq/10))
		rows = append(rows, eval.Row{Token: tokens[seq], Seq: seq, Output: true})
	}
	evaluate(t, s, rows...)
	return max(most, apart(alone[0], s.Logits(0)))
}

func TestExactLogitsDoNotDependOnCompany(t *testing.T) {
	o := SessionOptions{Context: 1024, Sequences: 4, Outputs: 16, Exact: true}
	s := newSession(t, realModel(t), o)
	key, value := s.KVTypes()
	require.NotEqual(t, TypeAuto, key)
	require.Equal(t, key, value)
	noise, err := s.Probe(context.Background())
	require.NoError(t, err)
	require.True(t, noise.Exact())
	require.Equal(t, 600, noise.Depth)
	require.Positive(t, noise.Rows)
	require.Positive(t, noise.Took)

	o.Exact, o.KeyType, o.ValueType, o.Unified = false, key, value, true
	for _, s := range []*Session{s, newSession(t, realModel(t), o)} {
		for _, depth := range []int{100, 600} {
			require.Zero(t, companyNoise(t, s, depth), "depth %d", depth)
		}
	}
}

// What the probe says of a session is what it does, and exact mode refuses the
// options of a session whose probe sees a difference.
func TestExactRefusesWhatTheProbeSees(t *testing.T) {
	m := realModel(t)
	for name, o := range map[string]SessionOptions{
		"f16":      {Context: 1024, KeyType: TypeF16},
		"no flash": {Context: 1024, KeyType: TypeF16, FlashAttention: FlashOff},
		"shallow":  {Context: 256, KeyType: TypeF16, Sequences: 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, m, o)
			noise, err := s.Probe(context.Background())
			require.NoError(t, err)
			checkLengths(t, s, 0)
			if name != "f16" && companyNoise(t, s, min(600, o.Context-30)) > 0 {
				require.False(t, noise.Exact(), "the probe misses a difference")
			}

			o.Exact = true
			exact, err := m.NewSession(o)
			if noise.Exact() {
				require.NoError(t, err)
				exact.Close()
				return
			}
			require.ErrorContains(t, err, "exact mode: with this model on this machine the logits of a row depend on the rows beside it")
			require.ErrorContains(t, err, fmt.Sprintf("f16/f16: %.3g", noise.MaxAbs))
		})
	}
}

func TestExactTypes(t *testing.T) {
	pair := func(a, b TensorType) [2]TensorType { return [2]TensorType{a, b} }
	bf16, q8 := pair(TypeBF16, TypeBF16), pair(TypeQ8_0, TypeQ8_0)
	for _, c := range []struct {
		o    SessionOptions
		want [][2]TensorType
	}{
		{SessionOptions{Context: 256, CacheOnHost: true}, [][2]TensorType{pair(TypeF16, TypeF16), bf16, q8}},
		{SessionOptions{Context: 257, CacheOnHost: true}, [][2]TensorType{bf16, q8}},
		{SessionOptions{CacheOnHost: true}, [][2]TensorType{bf16, q8}},
		{SessionOptions{CacheOnHost: true, FlashAttention: FlashOff}, [][2]TensorType{bf16}},
		{SessionOptions{KeyType: TypeQ8_0}, [][2]TensorType{pair(TypeQ8_0, TypeF16)}},
		{SessionOptions{ValueType: TypeBF16}, [][2]TensorType{pair(TypeF16, TypeBF16)}},
	} {
		require.Equal(t, c.want, c.o.exactTypes(Facts{TrainContext: 2048}), "%+v", c.o)
	}
}

// A probe leaves the session alone, and may be cancelled.
func TestProbeLeavesTheSessionAlone(t *testing.T) {
	for _, name := range []string{"llama", "window", "recurrent", "hybrid"} {
		for _, context_ := range []int{256, 1024} {
			s := newSession(t, tinyModel(t, name), SessionOptions{Context: context_, Sequences: 2, Batch: 64})
			evaluate(t, s, rowsOf(1, 10, 11, 12)...)
			want := logits(s, 2)
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(errStop)
			_, err := s.Probe(ctx)
			require.ErrorIs(t, err, errStop)
			noise, err := s.Probe(context.Background())
			require.NoError(t, err, name)
			require.Positive(t, noise.Rows)
			require.Equal(t, min(600, context_-16), noise.Depth)
			checkLengths(t, s, 0, 3)
			require.Equal(t, want, s.Logits(2))
		}
	}
}

// A cache that cannot be had is no reason to give up, nor is one with noise.
func TestExactTriesTheNextTypes(t *testing.T) {
	m := openOnce(t, tinymodel.Save(tinyDir, "exact.gguf", tinymodel.Llama(tinymodel.Options{Type: gguf.Q8_0})))
	ctx := context.Background()
	o := SessionOptions{Context: 256}
	impossible := [2]TensorType{TypeQ8_0, TypeQ8_0} // blocks of 32, heads of 16
	good := [2]TensorType{TypeBF16, TypeBF16}

	s, err := m.newExactSession(ctx, o, [][2]TensorType{impossible, good})
	require.NoError(t, err)
	key, value := s.KVTypes()
	require.Equal(t, good, [2]TensorType{key, value})
	s.Close()

	_, err = m.newExactSession(ctx, o, [][2]TensorType{impossible, impossible})
	require.ErrorContains(t, err, "llama: new session")

	// Without the fused kernel the logits depend on company, whatever the cache.
	o.FlashAttention = FlashOff
	noisy := [2]TensorType{TypeF16, TypeF16}
	if s, err := m.newExactSession(ctx, o, [][2]TensorType{noisy, impossible}); err != nil {
		require.ErrorContains(t, err, "f16/f16: ")
	} else {
		s.Close()
	}
}

// countdown is a context that is done after so many looks at its error.
type countdown struct {
	context.Context
	cancel context.CancelCauseFunc
	left   int
}

func (c *countdown) Err() error {
	if c.left--; c.left <= 0 {
		c.cancel(errStop)
	}
	return c.Context.Err()
}

func TestExactProbeCanBeCancelled(t *testing.T) {
	m := tinyModel(t, "llama")
	for _, looks := range []int{1, 2, 10} {
		inner, cancel := context.WithCancelCause(context.Background())
		ctx := &countdown{inner, cancel, looks}
		_, err := m.NewSessionContext(ctx, SessionOptions{Context: 1024, Exact: true})
		require.ErrorIs(t, err, errStop, "%d looks", looks)
	}
	require.Zero(t, m.children, "the sessions are closed")
}
