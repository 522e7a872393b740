package gguf_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/sortes-llm/sortes/internal/gguf"
	"github.com/sortes-llm/sortes/internal/tinymodel"
)

func arch(name string) edit { return set("general.architecture", name) }

// Every value here ended llama.cpp v0.5.0: by a signal, by an abort, by taking
// all memory, or by never coming back. The comment says how.
func TestCheckMeta(t *testing.T) {
	vocab := tinymodel.Vocab
	tokens := func(change func(tokens []string)) edit {
		all := make([]string, vocab)
		for i := range all {
			all[i] = fmt.Sprint("token ", i)
		}
		change(all)
		return set("tokenizer.ggml.tokens", all)
	}
	for _, c := range []struct {
		key   string // what the error is about: its entry's place is named
		edits []edit
		want  string
	}{
		// Taken by C code for a value of this kind: abort.
		{"general.type", []edit{set("adapter.type", "lora"), set("general.type", uint32(1))}, "general.type is u32: it must be string"},
		{"general.architecture", []edit{set("general.architecture", []string{"llama"})}, "general.architecture is array: it must be string"},
		{"split.no", []edit{set("split.count", uint16(2)), set("split.no", uint32(1))}, "split.no is u32: it must be u16"},
		{"split.count", []edit{set("split.count", int32(2))}, "split.count is i32: it must be u16"},
		{"adapter.type", []edit{set("adapter.type", 1.5)}, "adapter.type is f64: it must be string"},
		{"adapter.lora.alpha", []edit{set("general.type", "adapter"), set("adapter.lora.alpha", 8.0)}, "adapter.lora.alpha is f64: it must be f32"},

		{"llama.block_count", []edit{set("general.type", "adapter"), set("llama.block_count", uint32(0))}, "llama.block_count is 0: from 1 to 512 are allowed"},
		// A number of a part is no reason to look away: this is the whole model.
		{"llama.block_count", []edit{set("split.no", uint16(1)), set("llama.block_count", uint32(0))}, "llama.block_count is 0: from 1 to 512 are allowed"},

		// Asserted by llama_model_base::load_hparams: abort.
		{"llama.block_count", []edit{set("llama.block_count", uint32(0))}, "llama.block_count is 0: from 1 to 512 are allowed"},
		{"llama.block_count", []edit{set("llama.block_count", uint32(513))}, "llama.block_count is 513: from 1 to 512 are allowed"},
		{"llama.nextn_predict_layers", []edit{set("llama.nextn_predict_layers", uint32(3))}, "llama.nextn_predict_layers is 3: from 0 to 2 are allowed"},
		{"llama.expert_count", []edit{set("llama.expert_count", uint32(1025))}, "llama.expert_count is 1025: from 0 to 1024 are allowed"},
		{"llama.expert_used_count", []edit{set("llama.expert_used_count", uint32(1))}, "llama.expert_used_count is 1: there are 0 experts"},
		{"llama.expert_used_count", []edit{set("llama.expert_count", uint32(4)), set("llama.expert_used_count", []uint32{2, 5})}, "llama.expert_used_count is [2, 5]: there are 4 experts"},
		{"llama.expert_used_count", []edit{set("llama.expert_count", uint32(4)), set("llama.expert_used_count", uint32(0))}, "llama.expert_used_count is 0: some of the 4 experts must be used"},
		{"llama.expert_group_count", []edit{set("llama.expert_group_count", uint32(1))}, "llama.expert_group_count is 1: there are 0 experts"},
		{"hunyuan-dense.expert_group_count", []edit{arch("hunyuan-dense"), set("hunyuan-dense.expert_count", uint32(1)), set("hunyuan-dense.expert_group_count", uint32(1))}, "hunyuan-dense.expert_group_count is 1: there are 0 experts"},
		{"llama.expert_group_count", experts(8, 3, 1), "llama.expert_group_count is 3: it must divide the 8 experts"},
		{"llama.expert_group_count", experts(8, 8, 1), "llama.expert_group_count is 8: there are 8 experts"},
		{"llama.expert_group_used_count", experts(8, 4, 4), "llama.expert_group_used_count is 4: there are 4 groups"},
		{"llama.expert_group_used_count", experts(8, 4, 0), "llama.expert_group_used_count is 0: there are 4 groups"},
		{"llama.rope.scaling.type", []edit{set("llama.rope.scaling.type", "cubic")}, `llama.rope.scaling.type is "cubic": none, linear, yarn and longrope are known`},

		// Asserted on the threads that compute, where nothing can be caught: abort.
		{"llama.attention.layer_norm_rms_epsilon", []edit{set("llama.attention.layer_norm_rms_epsilon", float32(-1))}, "llama.attention.layer_norm_rms_epsilon is -1: it must be a number that is not negative"},
		{"llama.attention.layer_norm_rms_epsilon", []edit{set("llama.attention.layer_norm_rms_epsilon", float32(math.NaN()))}, "llama.attention.layer_norm_rms_epsilon is NaN: it must be a number that is not negative"},
		{"llama.rope.dimension_count", []edit{set("llama.rope.dimension_count", uint32(15))}, "llama.rope.dimension_count is 15: 15 of the 16 elements of a head would be rotated, not an even number from 2 to 16"},
		{"llama.rope.dimension_count", []edit{set("llama.rope.dimension_count", uint32(18))}, "llama.rope.dimension_count is 18: 18 of the 16 elements of a head would be rotated, not an even number from 2 to 16"},
		{"llama.rope.dimension_count_swa", []edit{set("llama.rope.dimension_count_swa", uint32(18))}, "llama.rope.dimension_count_swa is 18: 18 of the 16 elements of a head would be rotated, not an even number from 2 to 16"},
		{"llama.rope.dimension_count_swa", []edit{set("llama.rope.dimension_count_swa", uint32(7))}, "llama.rope.dimension_count_swa is 7: 7 of the 16 elements of a head would be rotated, not an even number from 2 to 16"},
		{"llama.rope.dimension_count_swa", []edit{set("llama.rope.dimension_count_swa", uint32(0))}, "llama.rope.dimension_count_swa is 0: 0 of the 16 elements of a head would be rotated, not an even number from 2 to 16"},
		// A loop that does not end.
		{"llama.rope.dimension_count", []edit{set("llama.rope.dimension_count", uint32(0))}, "llama.rope.dimension_count is 0: 0 of the 16 elements of a head would be rotated, not an even number from 2 to 16"},

		{"qwen2vl.rope.dimension_sections", []edit{arch("qwen2vl"), set("qwen2vl.rope.dimension_sections", []int32{0, 0, 0, 8})}, "qwen2vl.rope.dimension_sections is [0, 0, 0, 8]: qwen2vl needs it and no zero"},
		{"llama.rope.dimension_sections", []edit{set("llama.rope.dimension_sections", []int32{8, -8, 0, 0})}, "llama.rope.dimension_sections is [8, -8, 0, 0]: the sum must not exceed the 16 elements of a head"},

		// All memory, for a cache of such rows.
		{"llama.attention.key_length", []edit{set("llama.attention.key_length", uint32(math.MaxUint32))}, fmt.Sprintf("llama.attention.key_length is 4294967295: from 0 to %d are allowed", vocab)},
		{"llama.attention.value_length", []edit{set("llama.attention.value_length", uint32(200))}, fmt.Sprintf("llama.attention.value_length is 200: with 2 heads the cache would have rows of 400 elements, the tensors have %d at most", vocab)},
		{"llama.attention.head_count_kv", []edit{set("llama.attention.head_count_kv", []int32{2, -1})}, fmt.Sprintf("llama.attention.head_count_kv is [2, -1]: from 0 to %d are allowed", vocab)},
		// All memory, for so many tokens.
		{"llama.vocab_size", []edit{set("llama.vocab_size", uint32(math.MaxUint32)), set("tokenizer.ggml.model", "none")}, "llama.vocab_size is 4294967295: from 0 to 4194304 are allowed"},

		// Divided by: signal 8.
		{"rwkv6.wkv.head_size", []edit{arch("rwkv6"), set("rwkv6.wkv.head_size", uint32(0))}, fmt.Sprintf("rwkv6.wkv.head_size is 0: from 1 to %d are allowed", vocab)},
		{"mamba2.ssm.group_count", []edit{arch("mamba2"), set("mamba2.ssm.group_count", uint32(0))}, fmt.Sprintf("mamba2.ssm.group_count is 0: from 1 to %d are allowed", vocab)},
		{"qwen3next.full_attention_interval", []edit{arch("qwen3next"), set("qwen3next.full_attention_interval", uint32(0))}, "qwen3next.full_attention_interval is 0: from 1 to 4294967295 are allowed"},
		{"olmo2.attention.head_count", []edit{arch("olmo2"), set("olmo2.attention.head_count", uint32(0))}, "olmo2.attention.head_count is 0: olmo2 needs it and no zero"},
		{"tokenizer.ggml.tokens", []edit{set("tokenizer.ggml.tokens", []string{})}, "tokenizer.ggml.tokens has 0 tokens: from 1 to 4194304 are allowed"},
		// A memory of the wrong kind: signal 11.
		{"afmoe.attention.sliding_window", []edit{arch("afmoe"), set("afmoe.attention.sliding_window", uint32(0))}, "afmoe.attention.sliding_window is 0: afmoe needs it and no zero"},

		// Asserted by llama_vocab: abort. C strings end at a zero byte.
		{"tokenizer.ggml.tokens", []edit{tokens(func(x []string) { x[7] = x[4] })}, `tokens 4 and 7 are both "token 4"`},
		{"tokenizer.ggml.tokens", []edit{tokens(func(x []string) { x[7] = "token 4\x00x" })}, `tokens 4 and 7 are both "token 4"`},
		// A table whose entries lead out of bounds.
		{"tokenizer.ggml.tokens", []edit{set("tokenizer.ggml.model", "plamo2"), tokens(func(x []string) { x[7] = "a\xff" })}, `token 7 is "a\xff": tokens of plamo2 must be UTF-8`},
		// Recursion as deep as the token is long: signal 11.
		{"tokenizer.ggml.tokens", []edit{tokens(func(x []string) { x[7] = strings.Repeat("a", 4097) })}, "token 7 has 4097 bytes: at most 4096 are allowed"},
		// A search that never moves on, with more memory at every step.
		{"tokenizer.ggml.tokens", []edit{set("tokenizer.ggml.model", "rwkv"), tokens(func(x []string) { x[7], x[8] = `\nab`, `\x0b` })}, "tokens begin with the byte 0x0a, but no token is that byte alone"},
	} {
		b := apply(t, tinymodel.Llama(tinymodel.Options{}), c.edits...)
		assert.EqualError(t, check(b), fmt.Sprintf("gguf: byte %d: %s", place(b, c.key), c.want), c.key)
	}
}

func experts(count, groups, used uint32) []edit {
	return []edit{
		set("llama.expert_count", count), set("llama.expert_used_count", uint32(2)),
		set("llama.expert_group_count", groups), set("llama.expert_group_used_count", used),
	}
}

// What is close to a fault and none.
func TestCheckMetaAllows(t *testing.T) {
	o := tinymodel.Options{}
	for name, b := range map[string][]byte{
		"no metadata of the architecture": apply(t, tinymodel.Llama(o), arch("some-new-one")),
		"512 layers":                      apply(t, tinymodel.Llama(o), set("llama.block_count", uint32(512))),
		"experts":                         apply(t, tinymodel.Llama(o), experts(8, 4, 2)...),
		"one group":                       apply(t, tinymodel.Llama(o), experts(8, 1, 0)...),
		"experts by layer":                apply(t, tinymodel.Llama(o), append(experts(8, 4, 2), set("llama.expert_used_count", []uint32{0, 8}))...),
		"hunyuan's one expert":            apply(t, tinymodel.Llama(o), arch("hunyuan-dense"), set("hunyuan-dense.expert_count", uint32(1)), set("hunyuan-dense.expert_used_count", uint32(0))),
		"no rotation":                     apply(t, tinymodel.Recurrent(o), set("mamba.rope.dimension_count", uint32(0)), set("mamba.attention.head_count", uint32(3))),
		"sections":                        apply(t, tinymodel.Llama(o), set("llama.rope.dimension_sections", []int32{8, 8, 0, 0})),
		"no experts in any layer":         apply(t, tinymodel.Llama(o), set("llama.expert_used_count", []bool{false, false})),
		"a switch for every layer":        apply(t, tinymodel.Llama(o), append(experts(1, 0, 0), set("llama.expert_used_count", []bool{true, false}))...),
		"half of a head rotated":          apply(t, tinymodel.Llama(o), set("llama.rope.dimension_count", uint32(8))),
		"another kind":                    apply(t, tinymodel.Llama(o), set("llama.block_count", "two")),
		"no zero groups":                  apply(t, tinymodel.Recurrent(o), arch("plamo2"), set("plamo2.ssm.group_count", uint32(0))),
		"empty tokens":                    apply(t, tinymodel.Llama(o), set("tokenizer.ggml.tokens", []string{"", "", "a", "\x00b"})),
		"a long token":                    apply(t, tinymodel.Llama(o), set("tokenizer.ggml.tokens", []string{strings.Repeat("a", 4096)})),
		"tokens of rwkv":                  apply(t, tinymodel.Llama(o), set("tokenizer.ggml.model", "rwkv"), set("tokenizer.ggml.tokens", []string{`\n`, `\nab`, `\xff`, `\xffz`, `\`, ""})),
		"a stack of experts":              apply(t, tinymodel.Adapter(o), store("blk.0.attn_q.weight.lora_a", gguf.F32, 4*64*4*2, 64, 4, 2), rename("blk.0.attn_q.weight.lora_a", "blk.0.ffn_up_exps.weight.lora_a")),
		"learned positions":               apply(t, tinymodel.Encoder(o), set("bert.attention.head_count", uint32(64))),
		"rotation switched off":           apply(t, tinymodel.Llama(o), arch("granitehybrid"), set("granitehybrid.rope.scaling.finetuned", false), set("granitehybrid.embedding_length", uint32(60)), set("granitehybrid.attention.head_count", uint32(4))),
		"a list of tokens and no use":     apply(t, tinymodel.Llama(o), set("tokenizer.ggml.model", "no_vocab"), set("tokenizer.ggml.tokens", []string{"a", "a"})),
		"kinds nobody looks at":           apply(t, tinymodel.Llama(o), set("general.type", uint32(1)), set("adapter.lora.alpha", 8.0), set("split.no", uint32(1))),
		"no tensors":                      apply(t, tinymodel.Llama(o), func(kvs []gguf.KV, _ []gguf.Data) ([]gguf.KV, []gguf.Data) { return kvs, nil }),
		"wide rows in a split model":      apply(t, tinymodel.Llama(o), set("llama.attention.value_length", uint32(200)), set("split.count", uint16(2))),
	} {
		assert.NoError(t, check(b), name)
	}
}

func TestCheckNeeded(t *testing.T) {
	for _, c := range [][2]string{{"olmo2", "attention.head_count"}, {"afmoe", "attention.sliding_window"}, {"qwen35", "rope.dimension_sections"}} {
		key := c[0] + "." + c[1]
		assert.EqualError(t, check(apply(t, tinymodel.Llama(tinymodel.Options{}), arch(c[0]))), "gguf: "+key+" is missing: "+c[0]+" needs it and no zero")
	}
}

func TestCheckAdapter(t *testing.T) {
	const name = "blk.0.attn_q.weight.lora_a"
	b := apply(t, tinymodel.Adapter(tinymodel.Options{}), store(name, gguf.F32, 4*64*4*2, 64, 4, 2))
	assert.EqualError(t, check(b), fmt.Sprintf("gguf: byte %d: tensor %q has the shape [64 4 2]: an adapter's matrix has two dimensions", place(b, name), name))
}

func TestCheckNeedsArchitecture(t *testing.T) {
	m := tinymodel.Llama(tinymodel.Options{})
	const want = "gguf: general.architecture is missing"
	assert.EqualError(t, check(apply(t, m, unset("general.architecture"))), want)
	assert.EqualError(t, check(apply(t, m, arch(""))), want)
	assert.EqualError(t, check(apply(t, m, arch("\x00llama"))), want)
}
