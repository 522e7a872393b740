// Package tinymodel writes models of a few hundred kilobytes that llama.cpp
// loads and runs, for tests: the same bytes for the same options, always.
// Their weights are noise; their text is gibberish that varies.
//
// Every model generates and knows the same tokens, which can spell any text.
// The token ids of special meaning are constants of this package.
package tinymodel

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sortes-llm/sortes/internal/gguf"
)

// Context is the context length that the models state.
const Context = 2048

const (
	width = 64 // of a row that goes from layer to layer
	heads = 4
	kv    = 2 // heads of keys and values
	head  = width / heads
	inner = 128 // width inside the feed-forward and the state-space layers
)

// Options vary a model. The zero value is a good model.
type Options struct {
	Seed      uint64
	Type      gguf.Type // of the large matrices: F32 (0), F16, Q8_0 or Q4_0
	Layers    int       // 0 means 2
	Tokenizer Tokenizer
	// Noise mixes other weights into those of Seed, in the proportion Noise
	// to 1. The result is a draft for the model without: where that takes its
	// likeliest token, the draft agrees on about 85% of tokens at 0.05, 75% at
	// 0.1 and 50% at 0.2 (Llama).
	Noise float64
}

// Llama returns a dense transformer, the plainest that llama.cpp knows.
func Llama(o Options) []byte {
	b := newBuilder("llama", o)
	b.attention()
	b.set("rope.dimension_count", uint32(head))
	b.embeddings("output_norm.weight")
	for i := range b.layers {
		b.norm("blk.%d.attn_norm.weight", i, width)
		b.heads(i)
		b.norm("blk.%d.ffn_norm.weight", i, width)
		b.feedForward(i)
	}
	return b.bytes()
}

// Window is the number of tokens that every other layer of SlidingWindow sees.
const Window = 64

// SlidingWindow returns a transformer whose first layer, and every other one
// after it, sees only the last Window tokens (gemma2).
func SlidingWindow(o Options) []byte {
	b := newBuilder("gemma2", o)
	b.attention()
	b.set("attention.key_length", uint32(head))
	b.set("attention.value_length", uint32(head))
	b.set("attention.sliding_window", uint32(Window))
	b.set("attn_logit_softcapping", float32(50))
	b.set("final_logit_softcapping", float32(30))
	b.tiedEmbeddings()
	for i := range b.layers {
		b.norm("blk.%d.attn_norm.weight", i, width)
		b.heads(i)
		b.norm("blk.%d.post_attention_norm.weight", i, width)
		b.norm("blk.%d.ffn_norm.weight", i, width)
		b.feedForward(i)
		b.norm("blk.%d.post_ffw_norm.weight", i, width)
	}
	return b.bytes()
}

// Recurrent returns a state-space model, which has no cache of keys and values
// but a state that cannot be rolled back (mamba).
func Recurrent(o Options) []byte {
	const conv, state, rank = 4, 16, 4
	b := newBuilder("mamba", o)
	b.set("feed_forward_length", uint32(0))
	b.set("attention.head_count", uint32(0))
	b.set("attention.layer_norm_rms_epsilon", float32(1e-5))
	b.set("ssm.conv_kernel", uint32(conv))
	b.set("ssm.inner_size", uint32(inner))
	b.set("ssm.state_size", uint32(state))
	b.set("ssm.time_step_rank", uint32(rank))
	b.embeddings("output_norm.weight")
	for i := range b.layers {
		b.norm("blk.%d.attn_norm.weight", i, width)
		b.matrix("blk.%d.ssm_in.weight", i, width, 2*inner)
		b.vector("blk.%d.ssm_conv1d.weight", i, func(int) float64 { return b.normal() / 2 }, conv, inner)
		b.vector("blk.%d.ssm_conv1d.bias", i, constant(0), inner)
		b.matrix("blk.%d.ssm_x.weight", i, inner, rank+2*state)
		b.vector("blk.%d.ssm_dt.weight", i, func(int) float64 { return b.normal() }, rank, inner)
		b.vector("blk.%d.ssm_dt.bias", i, constant(-2), inner)
		b.vector("blk.%d.ssm_a", i, func(j int) float64 { return -float64(1 + j%state) }, state, inner)
		b.vector("blk.%d.ssm_d", i, constant(1), inner)
		b.matrix("blk.%d.ssm_out.weight", i, inner, width)
	}
	return b.bytes()
}

// Hybrid returns a model whose layers are by turns short convolutions, with a
// recurrent state, and attention, with a cache (lfm2).
func Hybrid(o Options) []byte {
	const conv = 3
	b := newBuilder("lfm2", o)
	b.attention()
	kvHeads := make([]uint32, b.layers)
	for i := 1; i < b.layers; i += 2 {
		kvHeads[i] = kv
	}
	b.set("attention.head_count_kv", kvHeads)
	b.set("shortconv.l_cache", uint32(conv))
	b.embeddings("token_embd_norm.weight")
	for i := range b.layers {
		b.norm("blk.%d.attn_norm.weight", i, width)
		if kvHeads[i] > 0 {
			b.norm("blk.%d.attn_q_norm.weight", i, head)
			b.norm("blk.%d.attn_k_norm.weight", i, head)
			b.heads(i)
		} else {
			b.vector("blk.%d.shortconv.conv.weight", i, func(int) float64 { return b.normal() / 2 }, conv, width)
			b.matrix("blk.%d.shortconv.in_proj.weight", i, width, 3*width)
			b.matrix("blk.%d.shortconv.out_proj.weight", i, width, width)
		}
		b.norm("blk.%d.ffn_norm.weight", i, width)
		b.feedForward(i)
	}
	return b.bytes()
}

// Encoder returns a model that turns a text into one vector of EmbeddingWidth
// numbers, the mean over its tokens, and generates nothing (bert).
func Encoder(o Options) []byte {
	o.Tokenizer = wordPieces
	b := newBuilder("bert", o)
	b.attention()
	b.set("attention.layer_norm_epsilon", float32(1e-5))
	b.set("attention.causal", false)
	b.set("pooling_type", uint32(1))
	b.matrix("token_embd.weight", -1, width, int64(b.vocab))
	b.matrix("position_embd.weight", -1, width, Context)
	b.vector("token_types.weight", -1, constant(0), width, 1)
	b.norm("token_embd_norm.weight", -1, width)
	b.vector("token_embd_norm.bias", -1, constant(0), width)
	for i := range b.layers {
		b.heads(i)
		b.norm("blk.%d.attn_output_norm.weight", i, width)
		b.vector("blk.%d.attn_output_norm.bias", i, constant(0), width)
		b.matrix("blk.%d.ffn_up.weight", i, width, inner)
		b.matrix("blk.%d.ffn_down.weight", i, inner, width)
		b.norm("blk.%d.layer_output_norm.weight", i, width)
		b.vector("blk.%d.layer_output_norm.bias", i, constant(0), width)
	}
	return b.bytes()
}

// EmbeddingWidth is the number of elements of an embedding.
const EmbeddingWidth = width

// Adapter returns a LoRA adapter for the model that Llama makes with the same
// number of layers. Seed chooses its weights. At a scale of 1 it changes the
// text plainly.
func Adapter(o Options) []byte {
	const rank = 4
	b := newBuilder("llama", Options{Seed: o.Seed + 1<<32, Layers: o.Layers})
	b.kvs = []gguf.KV{
		gguf.NewKV("general.type", "adapter"),
		gguf.NewKV("general.architecture", "llama"),
		gguf.NewKV("adapter.type", "lora"),
		gguf.NewKV("adapter.lora.alpha", float32(2*rank)),
	}
	for i := range b.layers {
		for _, w := range []struct {
			name     string
			from, to int64
		}{{"attn_q", width, width}, {"attn_v", width, kv * head}, {"ffn_down", inner, width}} {
			b.matrix("blk.%d."+w.name+".weight.lora_a", i, w.from, rank)
			b.matrix("blk.%d."+w.name+".weight.lora_b", i, rank, w.to)
		}
	}
	return b.bytes()
}

// Split returns the parts of a model in n files, as llama-gguf-split makes
// them: the first has the metadata. It panics if model is not a GGUF file or n
// is not from 1 to the number of its tensors.
func Split(model []byte, n int) [][]byte {
	f, err := gguf.Read(bytes.NewReader(model), int64(len(model)))
	if err != nil || n < 1 || n > len(f.Tensors) {
		panic("tinymodel: not a model, or not in so many parts")
	}
	parts := make([][]byte, n)
	for i := range parts {
		kvs := []gguf.KV{
			gguf.NewKV("split.no", uint16(i)),
			gguf.NewKV("split.count", uint16(n)),
			gguf.NewKV("split.tensors.count", int32(len(f.Tensors))),
		}
		if i == 0 {
			kvs = append(f.KVs, kvs...)
		}
		var tensors []gguf.Data
		for _, t := range f.Tensors[len(f.Tensors)*i/n : len(f.Tensors)*(i+1)/n] {
			at := f.DataOffset + t.Offset
			tensors = append(tensors, gguf.Data{Name: t.Name, Shape: t.Shape, Type: t.Type, Bytes: model[at : at+t.Size]})
		}
		parts[i] = encode(kvs, tensors)
	}
	return parts
}

// Save writes a model into a directory and returns its path. It is for tests,
// and panics where the file cannot be written.
func Save(dir, name string, model []byte) string {
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, model, 0o666); err != nil {
		panic(err)
	}
	return path
}

// SaveSplit writes the parts of a split model into a directory, under the names
// that llama.cpp wants, and returns the path of the first.
func SaveSplit(dir, name string, parts [][]byte) string {
	var first string
	for i, part := range parts {
		path := Save(dir, fmt.Sprintf("%s-%05d-of-%05d.gguf", name, i+1, len(parts)), part)
		if i == 0 {
			first = path
		}
	}
	return first
}
