package llama

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/gguf"
	"github.com/sortes-llm/sortes/internal/tinymodel"
)

// A reference is the Llama architecture a second time, in plain Go and float64,
// to compare llama.cpp's numbers and our use of its memory with.
type reference struct {
	weights          map[string][]float32
	width            int
	heads, kvHeads   int
	head, inner      int
	layers, vocab    int
	epsilon, ropeMin float64
}

// A refCache is the memory of one sequence: per layer and token the key before
// its rotation, and the value.
type refCache struct {
	keys, values [][][]float64 // [layer][token]
}

func newReference(t testing.TB) *reference {
	t.Helper()
	model := tinymodel.Llama(tinymodel.Options{})
	f, err := gguf.Read(bytes.NewReader(model), int64(len(model)))
	require.NoError(t, err)
	num := func(key string) int {
		v, ok := f.Lookup("llama." + key)
		require.True(t, ok, key)
		n, _ := v.Int()
		return int(n)
	}
	r := &reference{
		weights: map[string][]float32{},
		width:   num("embedding_length"), heads: num("attention.head_count"), kvHeads: num("attention.head_count_kv"),
		inner: num("feed_forward_length"), layers: num("block_count"), epsilon: 1e-5, ropeMin: 10000,
	}
	r.head = r.width / r.heads
	for _, x := range f.Tensors {
		require.Equal(t, gguf.F32, x.Type)
		values := make([]float32, x.Elements())
		_, err := binary.Decode(model[f.DataOffset+x.Offset:], binary.LittleEndian, values)
		require.NoError(t, err)
		r.weights[x.Name] = values
	}
	r.vocab = len(r.weights["output.weight"]) / r.width
	return r
}

func (r *reference) cache() *refCache {
	return &refCache{keys: make([][][]float64, r.layers), values: make([][][]float64, r.layers)}
}

func (c *refCache) len() int { return len(c.keys[0]) }

// cut drops the tokens from a to b-1; those behind them move down.
func (c *refCache) cut(a, b int) {
	for l := range c.keys {
		c.keys[l] = append(append([][]float64(nil), c.keys[l][:a]...), c.keys[l][b:]...)
		c.values[l] = append(append([][]float64(nil), c.values[l][:a]...), c.values[l][b:]...)
	}
}

func (c *refCache) clone() *refCache {
	d := &refCache{keys: make([][][]float64, len(c.keys)), values: make([][][]float64, len(c.values))}
	for l := range c.keys {
		d.keys[l] = append([][]float64(nil), c.keys[l]...)
		d.values[l] = append([][]float64(nil), c.values[l]...)
	}
	return d
}

// next evaluates a token and returns the hidden state and the logits behind it.
func (r *reference) next(c *refCache, token int32) (hidden, logits []float64) {
	x := make([]float64, r.width)
	for i := range x {
		x[i] = float64(r.weights["token_embd.weight"][int(token)*r.width+i])
	}
	at := c.len()
	for l := range r.layers {
		name := func(s string) []float32 { return r.weights[fmt.Sprintf("blk.%d.%s.weight", l, s)] }
		h := r.norm(x, name("attn_norm"))
		q := times(name("attn_q"), h)
		c.keys[l] = append(c.keys[l], times(name("attn_k"), h))
		c.values[l] = append(c.values[l], times(name("attn_v"), h))
		mixed := make([]float64, r.width)
		for i := range r.heads {
			group := i / (r.heads / r.kvHeads)
			qi := r.rotated(q[i*r.head:(i+1)*r.head], at)
			weights := make([]float64, len(c.keys[l]))
			sum := 0.0
			for p, k := range c.keys[l] {
				ki := r.rotated(k[group*r.head:(group+1)*r.head], p)
				dot := 0.0
				for j := range ki {
					dot += ki[j] * qi[j]
				}
				weights[p] = math.Exp(dot / math.Sqrt(float64(r.head)))
				sum += weights[p]
			}
			for p, v := range c.values[l] {
				for j := range r.head {
					mixed[i*r.head+j] += weights[p] / sum * v[group*r.head+j]
				}
			}
		}
		add(x, times(name("attn_output"), mixed))
		h = r.norm(x, name("ffn_norm"))
		gate, up := times(name("ffn_gate"), h), times(name("ffn_up"), h)
		for i, g := range gate {
			up[i] *= g / (1 + math.Exp(-g))
		}
		add(x, times(name("ffn_down"), up))
	}
	hidden = r.norm(x, r.weights["output_norm.weight"])
	return hidden, times(r.weights["output.weight"], hidden)
}

func (r *reference) norm(x []float64, factors []float32) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	scale := 1 / math.Sqrt(sum/float64(len(x))+r.epsilon)
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v * scale * float64(factors[i])
	}
	return y
}

// rotated turns each pair of neighbours by an angle that grows with the position.
func (r *reference) rotated(x []float64, position int) []float64 {
	y := make([]float64, len(x))
	for i := 0; i < len(x); i += 2 {
		sin, cos := math.Sincos(float64(position) * math.Pow(r.ropeMin, -float64(i)/float64(len(x))))
		y[i], y[i+1] = x[i]*cos-x[i+1]*sin, x[i]*sin+x[i+1]*cos
	}
	return y
}

// times multiplies a matrix, whose rows are as long as x, with x.
func times(matrix []float32, x []float64) []float64 {
	y := make([]float64, len(matrix)/len(x))
	for i := range y {
		for j, v := range x {
			y[i] += float64(matrix[i*len(x)+j]) * v
		}
	}
	return y
}

func add(x, y []float64) {
	for i := range x {
		x[i] += y[i]
	}
}

// requireNear asserts that logits, which are about 3 in size, are those of the
// reference up to a tolerance.
func requireNear(t testing.TB, want []float64, got []float32, tolerance float64, what ...any) {
	t.Helper()
	require.Len(t, got, len(want), what...)
	for i, w := range want {
		if math.Abs(w-float64(got[i])) > tolerance || got[i] != got[i] {
			require.Failf(t, "not as the reference", "%v: number %d is %v, want %v", what, i, got[i], w)
		}
	}
}
