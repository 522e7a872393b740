package llama

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/tinymodel"
)

const noEmbedding = "llama: no embedding for this row"

func TestEmbeddingsOfTokens(t *testing.T) {
	s := newSession(t, tinyModel(t, "llama"), plain(SessionOptions{Embeddings: true, Sequences: 2, Pooling: PoolingNone, FlashAttention: FlashOff}))
	require.Equal(t, s.Limits().Batch, s.Limits().Outputs)
	r := newReference(t)
	a, b := r.cache(), r.cache()
	require.Equal(t, noEmbedding, panicText(func() { s.Embedding(0) }))
	rows := append(rowsOf(0, 10, 11), rowsOf(1, 12)...)
	for i := range rows {
		rows[i].Output = false // every row is output anyway
	}
	evaluate(t, s, rows...)
	for i, c := range []*refCache{a, a, b} {
		hidden, want := r.next(c, rows[i].Token)
		require.Len(t, s.Embedding(i), tinymodel.EmbeddingWidth)
		requireNear(t, hidden, s.Embedding(i), 1e-3)
		requireNear(t, want, s.Logits(i), 1e-3)
	}
	for _, i := range []int{-1, 3} {
		require.Equal(t, noEmbedding, panicText(func() { s.Embedding(i) }))
	}
	_, err := s.SequenceEmbedding(0)
	require.ErrorContains(t, err, "llama: no pooled embedding")

	evaluate(t, s, rowsOf(1, 13)...) // the cache goes on
	hidden, _ := r.next(b, 13)
	requireNear(t, hidden, s.Embedding(0), 1e-3)
}

func TestEmbeddingsOfSequences(t *testing.T) {
	r := newReference(t)
	tokens := [][]int32{{10, 11, 12}, {13, 14}}
	var hidden [][][]float64
	for _, ids := range tokens {
		c := r.cache()
		var states [][]float64
		for _, id := range ids {
			h, _ := r.next(c, id)
			states = append(states, h)
		}
		hidden = append(hidden, states)
	}
	mean := func(states [][]float64) []float64 {
		sum := make([]float64, len(states[0]))
		for _, h := range states {
			for i, x := range h {
				sum[i] += x / float64(len(states))
			}
		}
		return sum
	}
	for pooling, want := range map[Pooling]func([][]float64) []float64{
		PoolingMean: mean,
		PoolingCLS:  func(states [][]float64) []float64 { return states[0] },
		PoolingLast: func(states [][]float64) []float64 { return states[len(states)-1] },
	} {
		s := newSession(t, tinyModel(t, "llama"), plain(SessionOptions{Embeddings: true, Sequences: 3, Pooling: pooling, FlashAttention: FlashOff}))
		evaluate(t, s, append(rowsOf(0, tokens[0]...), rowsOf(1, tokens[1]...)...)...)
		for seq, states := range hidden {
			got, err := s.SequenceEmbedding(seq)
			require.NoError(t, err)
			requireNear(t, want(states), got, 1e-3, "pooling", pooling)
		}
		_, err := s.SequenceEmbedding(2)
		require.ErrorContains(t, err, "did not evaluate this sequence")
		require.Equal(t, noEmbedding, panicText(func() { s.Embedding(0) }), "pooled")
	}
}

// Without a classification head the score means nothing, but there is one.
func TestRerankerScores(t *testing.T) {
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256, Embeddings: true, Pooling: PoolingRank})
	evaluate(t, s, rowsOf(0, 10, 11)...)
	scores, err := s.SequenceEmbedding(0)
	require.NoError(t, err)
	require.Len(t, scores, 1)
}

// llama.cpp's trial graph wants rows that the sequences share evenly.
func TestEmbeddingsOfAnOddNumberOfSequences(t *testing.T) {
	for _, o := range []SessionOptions{
		{Sequences: 3}, {Sequences: 7, Batch: 10}, {Sequences: 7, Batch: 10, Microbatch: 3}, {Sequences: 7, Unified: true, Cells: 300}, {Sequences: 5, Batch: 2},
	} {
		for _, name := range []string{"llama", "encoder"} {
			if o.Unified && name == "encoder" {
				continue
			}
			o.Context, o.Embeddings, o.Pooling = 256, true, PoolingMean
			s := newSession(t, tinyModel(t, name), o)
			if o.Batch > 0 {
				require.Equal(t, o.Batch, s.Limits().Batch)
			}
			rows := append(rowsOf(2, 10), rowsOf(1, 11)...)
			evaluate(t, s, rows...)
			_, err := s.SequenceEmbedding(2)
			require.NoError(t, err)
		}
	}
}

func TestWithoutEmbeddings(t *testing.T) {
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256})
	evaluate(t, s, rowsOf(0, 10)...)
	require.Equal(t, noEmbedding, panicText(func() { s.Embedding(0) }))
	_, err := s.SequenceEmbedding(0)
	require.ErrorContains(t, err, "the session has no Embeddings")
}

func TestEncoder(t *testing.T) {
	s := newSession(t, tinyModel(t, "encoder"), SessionOptions{Context: 256, Embeddings: true, Sequences: 2})
	of := func(tokens ...int32) []float32 {
		evaluate(t, s, rowsOf(0, tokens...)...)
		got, err := s.SequenceEmbedding(0)
		require.NoError(t, err)
		require.Len(t, got, tinymodel.EmbeddingWidth)
		return append([]float32(nil), got...)
	}
	// It keeps nothing: every Eval stands for itself.
	a := of(20, 21, 22)
	require.Zero(t, s.Len(0))
	b := of(23, 24)
	require.Equal(t, a, of(20, 21, 22))
	require.Greater(t, apart(a, b), 0.1)
	require.Greater(t, apart(a, of(20, 21, 25)), 0.01)
	require.Greater(t, apart(a, of(22, 21, 20)), 0.001, "positions count")

	evaluate(t, s, append(rowsOf(0, 20, 21, 22), rowsOf(1, 23, 24)...)...)
	for seq, want := range [][]float32{a, b} {
		got, err := s.SequenceEmbedding(seq)
		require.NoError(t, err)
		require.Less(t, apart(want, got), 1e-2)
		require.False(t, math.IsNaN(float64(got[0])))
	}
	require.NoError(t, s.Clear())
	require.NoError(t, s.Truncate(0, 0))
	require.NoError(t, s.Copy(1, 0))
	require.False(t, s.CanShift())
	_, err := s.Probe(context.Background())
	require.ErrorContains(t, err, "no logits to compare")

	none := newSession(t, tinyModel(t, "encoder"), SessionOptions{Context: 256, Embeddings: true, Pooling: PoolingNone})
	evaluate(t, none, rowsOf(0, 20, 21, 22)...)
	mean := make([]float64, tinymodel.EmbeddingWidth)
	for i := range 3 {
		for j, x := range none.Embedding(i) {
			mean[j] += float64(x) / 3
		}
	}
	requireNear(t, mean, a, 1e-2)
}
