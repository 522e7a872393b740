package tinymodel

import (
	"bytes"
	"fmt"
	"math"

	"github.com/sortes-llm/sortes/internal/gguf"
)

// A builder collects the metadata and the tensors of a model.
type builder struct {
	arch    string
	o       Options
	layers  int
	vocab   int
	kvs     []gguf.KV
	tensors []gguf.Data
	rng     uint64
}

func newBuilder(arch string, o Options) *builder {
	b := &builder{arch: arch, o: o, layers: o.Layers}
	if b.layers == 0 {
		b.layers = 2
	}
	tokens := o.Tokenizer.entries()
	b.vocab = tokens[0].Value.Len()
	b.kvs = []gguf.KV{
		gguf.NewKV("general.architecture", arch),
		gguf.NewKV("general.name", "tiny "+arch),
	}
	b.kvs = append(b.kvs, tokens...)
	b.set("block_count", uint32(b.layers))
	b.set("context_length", uint32(Context))
	b.set("embedding_length", uint32(width))
	return b
}

// set sets one of the architecture's own values.
func (b *builder) set(key string, value any) {
	key = b.arch + "." + key
	entry := gguf.NewKV(key, value)
	for i := range b.kvs {
		if b.kvs[i].Key == key {
			b.kvs[i] = entry
			return
		}
	}
	b.kvs = append(b.kvs, entry)
}

// attention sets what all transformers have.
func (b *builder) attention() {
	b.set("feed_forward_length", uint32(inner))
	b.set("attention.head_count", uint32(heads))
	b.set("attention.head_count_kv", uint32(kv))
	b.set("attention.layer_norm_rms_epsilon", float32(1e-5))
}

// embeddings adds the tables at both ends of a model.
func (b *builder) embeddings(norm string) {
	b.add("token_embd.weight", b.o.Type, func(int) float64 { return b.normal() }, width, int64(b.vocab))
	b.norm(norm, -1, width)
	b.add("output.weight", b.o.Type, func(i int) float64 {
		return b.normal() * 3 / math.Sqrt(width) * likely(int32(i/width))
	}, width, int64(b.vocab))
}

// tiedEmbeddings adds one table for both ends. It is small against what the
// layers add, or else a model would repeat its last token.
func (b *builder) tiedEmbeddings() {
	b.add("token_embd.weight", b.o.Type, func(i int) float64 {
		return b.normal() / 12 / math.Sqrt(width) * (likely(int32(i/width)) + 1./16)
	}, width, int64(b.vocab))
	b.vector("output_norm.weight", -1, constant(30), width)
}

func (b *builder) heads(layer int) {
	b.matrix("blk.%d.attn_q.weight", layer, width, width)
	b.matrix("blk.%d.attn_k.weight", layer, width, kv*head)
	b.matrix("blk.%d.attn_v.weight", layer, width, kv*head)
	b.matrix("blk.%d.attn_output.weight", layer, width, width)
}

func (b *builder) feedForward(layer int) {
	b.matrix("blk.%d.ffn_gate.weight", layer, width, inner)
	b.matrix("blk.%d.ffn_up.weight", layer, width, inner)
	b.matrix("blk.%d.ffn_down.weight", layer, inner, width)
}

// matrix adds a matrix that keeps the size of what it is multiplied with. A
// name without a layer has -1 for it.
func (b *builder) matrix(name string, layer int, from, to int64) {
	typ := b.o.Type
	if block, _ := typ.Block(); from%block != 0 {
		typ = gguf.F32
	}
	scale := 1 / math.Sqrt(float64(from))
	b.add(named(name, layer), typ, func(int) float64 { return b.normal() * scale }, from, to)
}

// norm adds the factors of a normalisation.
func (b *builder) norm(name string, layer int, n int64) {
	b.vector(name, layer, constant(1), n)
}

// vector adds a tensor that must not be quantised.
func (b *builder) vector(name string, layer int, at func(i int) float64, shape ...int64) {
	b.add(named(name, layer), gguf.F32, at, shape...)
}

func named(name string, layer int) string {
	if layer < 0 {
		return name
	}
	return fmt.Sprintf(name, layer)
}

func constant(x float64) func(int) float64 { return func(int) float64 { return x } }

// add adds a tensor whose element i is at(i). The numbers that at draws depend
// on the seed and the tensor's name only.
func (b *builder) add(name string, typ gguf.Type, at func(i int) float64, shape ...int64) {
	n := 1
	for _, d := range shape {
		n *= int(d)
	}
	values := make([]float32, n)
	start := seed(b.o.Seed, name)
	b.rng = start
	for i := range values {
		values[i] = float32(at(i))
	}
	if b.o.Noise != 0 && b.rng != start { // what was not drawn stays
		b.rng = seed(b.o.Seed+1, name)
		keep := 1 / math.Hypot(1, b.o.Noise)
		for i := range values {
			// The conversion keeps multiplication and addition from being fused.
			values[i] = float32(keep * (float64(values[i]) + float64(b.o.Noise*at(i))))
		}
	}
	b.tensors = append(b.tensors, gguf.Data{Name: name, Shape: shape, Type: typ, Bytes: store(typ, values)})
}

// normal draws a number of mean 0 and variance 1, nearly normal: the sum of
// twelve uniform ones. Only additions, so that every machine gets the same.
func (b *builder) normal() float64 {
	var sum int64
	for range 6 {
		b.rng += 0x9e3779b97f4a7c15
		z := mix(b.rng)
		sum += int64(z>>32) + int64(z&math.MaxUint32)
	}
	return float64(sum)/(1<<32) - 6
}

// mix scrambles a number (the finaliser of SplitMix64).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func seed(s uint64, name string) uint64 {
	for _, c := range []byte(name) {
		s = mix(s*31 + uint64(c) + 1)
	}
	return s
}

func (b *builder) bytes() []byte { return encode(b.kvs, b.tensors) }

func encode(kvs []gguf.KV, tensors []gguf.Data) []byte {
	var w bytes.Buffer
	if err := gguf.Write(&w, kvs, tensors); err != nil {
		panic(err)
	}
	return w.Bytes()
}
