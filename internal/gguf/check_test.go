package gguf_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/gguf"
	"github.com/sortes-llm/sortes/internal/tinymodel"
)

// An edit changes a model before it is written again.
type edit func(kvs []gguf.KV, tensors []gguf.Data) ([]gguf.KV, []gguf.Data)

// set gives a key a value, the end of the metadata being the place of a new one.
func set(key string, value any) edit {
	return func(kvs []gguf.KV, tensors []gguf.Data) ([]gguf.KV, []gguf.Data) {
		kv := gguf.NewKV(key, value)
		if i := slices.IndexFunc(kvs, func(kv gguf.KV) bool { return kv.Key == key }); i >= 0 {
			kvs[i] = kv
			return kvs, tensors
		}
		return append(kvs, kv), tensors
	}
}

func unset(key string) edit {
	return func(kvs []gguf.KV, tensors []gguf.Data) ([]gguf.KV, []gguf.Data) {
		return slices.DeleteFunc(kvs, func(kv gguf.KV) bool { return kv.Key == key }), tensors
	}
}

// store changes the type and shape of a tensor, and its data to zeros.
func store(name string, typ gguf.Type, size int, shape ...int64) edit {
	return func(kvs []gguf.KV, tensors []gguf.Data) ([]gguf.KV, []gguf.Data) {
		i := slices.IndexFunc(tensors, func(d gguf.Data) bool { return d.Name == name })
		tensors[i] = gguf.Data{Name: name, Type: typ, Shape: shape, Bytes: make([]byte, size)}
		return kvs, tensors
	}
}

func rename(from, to string) edit {
	return func(kvs []gguf.KV, tensors []gguf.Data) ([]gguf.KV, []gguf.Data) {
		i := slices.IndexFunc(tensors, func(d gguf.Data) bool { return d.Name == from })
		tensors[i].Name = to
		return kvs, tensors
	}
}

func apply(t *testing.T, model []byte, edits ...edit) []byte {
	t.Helper()
	f, err := read(model)
	require.NoError(t, err)
	kvs := f.KVs
	var tensors []gguf.Data
	for _, x := range f.Tensors {
		at := f.DataOffset + x.Offset
		tensors = append(tensors, gguf.Data{Name: x.Name, Type: x.Type, Shape: x.Shape, Bytes: model[at : at+x.Size]})
	}
	for _, e := range edits {
		kvs, tensors = e(kvs, tensors)
	}
	var b bytes.Buffer
	require.NoError(t, gguf.Write(&b, kvs, tensors))
	return b.Bytes()
}

func check(b []byte) error {
	f, _ := read(b)
	return f.Check()
}

// place returns where an entry or the description of a tensor begins: at the
// length of its name.
func place(model []byte, name string) int {
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(name)))
	return bytes.Index(model, append(length, name...))
}

// patch overwrites bytes of a copy of the model, counted from the length of a
// name.
func patch(model []byte, name string, skip int, with ...byte) []byte {
	b := slices.Clone(model)
	copy(b[place(b, name)+skip:], with)
	return b
}

func le(x uint64) []byte { return binary.LittleEndian.AppendUint64(nil, x) }

func TestGoodModels(t *testing.T) {
	for _, typ := range []gguf.Type{gguf.F32, gguf.F16, gguf.Q8_0, gguf.Q4_0} {
		for _, tok := range []tinymodel.Tokenizer{tinymodel.BPE, tinymodel.SPM} {
			o := tinymodel.Options{Type: typ, Tokenizer: tok}
			for name, m := range map[string][]byte{
				"llama": tinymodel.Llama(o), "window": tinymodel.SlidingWindow(o), "recurrent": tinymodel.Recurrent(o),
				"hybrid": tinymodel.Hybrid(o), "encoder": tinymodel.Encoder(o), "adapter": tinymodel.Adapter(o),
			} {
				assert.NoError(t, check(m), "%s %v %d", name, typ, tok)
			}
		}
	}
	for i, part := range tinymodel.Split(tinymodel.Llama(tinymodel.Options{}), 3) {
		assert.NoError(t, check(part), i)
	}
}

// What is true of the structure of a file, whatever the model.
func TestCheckStructure(t *testing.T) {
	const (
		embd = "token_embd.weight"
		norm = "output_norm.weight" // the next tensor, of 64 elements
		key  = "llama.block_count"
	)
	m := tinymodel.Llama(tinymodel.Options{})
	table := fmt.Sprint(tinymodel.Vocab * 64 * 4) // bytes of token_embd.weight, a multiple of 32
	data, err := read(m)
	require.NoError(t, err)
	// What stands behind a name of n bytes: dimensions at 8+n, the first at
	// 12+n, type and offset behind the last.
	n := 8 + len(embd)
	for name, c := range map[string]struct {
		model []byte
		at    int // where the fault is
		want  string
	}{
		"a tensor too far": {patch(m, norm, 8+len(norm)+4+8+4, le(1<<62)...), place(m, norm),
			`tensor "output_norm.weight" has its data at offset 4611686018427387904: they must follow the tensor before, at ` + table},
		"2^64-1": {patch(m, norm, 8+len(norm)+4+8+4, le(math.MaxUint64)...), place(m, norm),
			`tensor "output_norm.weight" has its data at offset 18446744073709551615: they must follow the tensor before, at ` + table},
		"overlapping": {patch(m, norm, 8+len(norm)+4+8+4, le(0)...), place(m, norm),
			`tensor "output_norm.weight" has its data at offset 0: they must follow the tensor before, at ` + table},
		"first not at zero": {patch(m, embd, n+4+16+4, le(32)...), place(m, embd),
			`tensor "token_embd.weight" has its data at offset 32: they must follow the tensor before, at 0`},
		"zero dimension": {patch(m, embd, n+4, le(0)...), place(m, embd),
			`tensor "token_embd.weight" has 0 as dimension 1: it must be positive`},
		"negative dimension": {patch(m, embd, n+12, le(1<<63)...), place(m, embd),
			`tensor "token_embd.weight" has -9223372036854775808 as dimension 2: it must be positive`},
		"2^64 elements": {patch(m, embd, n+12, le(1<<58)...), place(m, embd),
			`tensor "token_embd.weight" has the shape [64 288230376151711744], with more elements than 63 bits can count`},
		"2^64 bytes": {patch(m, embd, n+12, le(1<<56)...), place(m, embd),
			`tensor "token_embd.weight" has the shape [64 72057594037927936], with more bytes than 63 bits can count`},
		"larger than the file": {patch(m, embd, n+12, le(1<<32)...), place(m, embd),
			fmt.Sprintf(`tensor "token_embd.weight" has 1099511627776 bytes of data at byte %d, but the file ends after %d`, data.DataOffset, int64(len(m))-data.DataOffset)},
		"withdrawn type": {patch(m, embd, n+20, 4), place(m, embd),
			`tensor "token_embd.weight" has the unknown type 4`},
		"no such type": {patch(m, embd, n+20, 43), place(m, embd),
			`tensor "token_embd.weight" has the unknown type 43`},
		"huge type": {patch(m, embd, n+20, 0xff, 0xff, 0xff, 0xff), place(m, embd),
			`tensor "token_embd.weight" has the unknown type 4294967295`},
		"half a block": {patch(m, embd, n+20, byte(gguf.Q4_K)), place(m, embd),
			`tensor "token_embd.weight" has rows of 64 elements: Q4_K needs a multiple of 256`},
		"intermediate type": {patch(m, embd, n+20, byte(gguf.Q8_1)), place(m, embd),
			`tensor "token_embd.weight" is stored as Q8_1, which ggml keeps for results in between`},
		"whole numbers": {patch(m, embd, n+20, byte(gguf.I32)), place(m, embd),
			`tensor "token_embd.weight" is stored as I32: a weight must be F32, F16, BF16 or quantised`},
		"F16 for a norm": {patch(m, norm, 8+len(norm)+12, byte(gguf.F16)), place(m, norm),
			`tensor "output_norm.weight" is stored as F16: llama.cpp adds and multiplies with it element by element, for which it must be F32`},
		"twice the same tensor": {patch(m, "blk.0.attn_norm.weight", 8+4, '1'), place(m, "blk.1.attn_norm.weight"),
			fmt.Sprintf(`tensor "blk.1.attn_norm.weight" occurs twice, first at byte %d`, place(m, "blk.0.attn_norm.weight"))},
		"zero byte in a tensor": {patch(m, embd, 8+3, 0), place(m, embd),
			`the tensor name "tok\x00n_embd.weight" has a zero byte`},
		"zero byte first":    {patch(m, key, 8, 0), place(m, key), `key "\x00lama.block_count" has a zero byte`},
		"zero byte in a key": {patch(m, key, 8+3, 0), place(m, key), `key "lla\x00a.block_count" has a zero byte`},
	} {
		assert.EqualError(t, check(c.model), fmt.Sprintf("gguf: byte %d: %s", c.at, c.want), name)
	}
}

func TestCheckNames(t *testing.T) {
	m := tinymodel.Llama(tinymodel.Options{})
	long := strings.Repeat("x", 64)
	for name, c := range map[string]struct {
		edit edit
		want string
	}{
		"same key":       {func(k []gguf.KV, d []gguf.Data) ([]gguf.KV, []gguf.Data) { return append(k, k[0]), d }, `key "general.architecture" occurs twice, first at byte 24`},
		"no key":         {set("", "x"), "a key of 0 bytes: from 1 to 65535 are allowed"},
		"long key":       {set(strings.Repeat("k", 1<<16), "x"), "a key of 65536 bytes: from 1 to 65535 are allowed"},
		"no name":        {rename("output.weight", ""), "the name of tensor 3 has 0 bytes: from 1 to 63 are allowed"},
		"long name":      {rename("output.weight", long), "the name of tensor 3 has 64 bytes: from 1 to 63 are allowed"},
		"alignment":      {set("general.alignment", uint32(48)), "general.alignment is 48: it must be a power of two"},
		"alignment 0":    {set("general.alignment", uint32(0)), "general.alignment is 0: it must be a power of two"},
		"alignment kind": {set("general.alignment", uint64(32)), "general.alignment is u64: it must be u32"},
	} {
		assert.ErrorContains(t, check(apply(t, m, c.edit)), ": "+c.want, name)
	}
	assert.NoError(t, check(apply(t, m, rename("output.weight", long[:63]), set(strings.Repeat("k", 1<<16-1), "x"))), "the longest that are allowed")
}

// What ggml adds to and multiplies with element by element must be F32; what
// it multiplies as a matrix may be anything. The names are those of llama.cpp
// (LLM_TENSOR_INFOS in llama-arch.cpp), the operations those of its graphs.
func TestCheckTypes(t *testing.T) {
	for _, c := range []struct {
		name    string
		shape   []int64
		halves  bool // F16 is as good
		because string
	}{
		{"output_norm.weight", []int64{32}, false, "ggml_mul"},
		{"blk.0.attn_q_norm.weight", []int64{32, 4}, false, "ggml_mul, a norm for every head"},
		{"blk.11.post_ffw_norm_1.weight", []int64{32}, false, "ggml_mul"},
		{"blk.1.nextn.hnorm.weight", []int64{32}, false, "ggml_mul"},
		{"posnet.0.norm1.weight", []int64{1, 32}, false, "ggml_mul"},
		{"blk.0.attn_q.bias", []int64{32}, false, "ggml_add"},
		{"blk.0.ffn_up_exps.bias", []int64{32, 4}, false, "ggml_add_id"},
		{"token_types.weight", []int64{32, 2}, false, "ggml_add of its first row"},
		{"rope_freqs.weight", []int64{32}, false, "ggml_rope"},
		{"blk.0.ssm_a", []int64{16, 32}, false, "ggml_ssm_scan"},
		{"blk.0.ssm_d", []int64{1, 32}, false, "ggml_mul"},
		{"blk.0.ssm_dt.bias", []int64{32}, false, "ggml_add"},
		{"blk.0.ssm_conv1d.weight", []int64{4, 32}, false, "ggml_ssm_conv"},
		{"blk.0.ssm_conv1d_q.weight", []int64{4, 32}, false, "ggml_ssm_conv"},
		{"blk.0.shortconv.conv.weight", []int64{3, 32}, false, "ggml_ssm_conv"},
		{"blk.0.time_mix_lerp_fused.weight", []int64{32, 1, 1, 5}, false, "ggml_mul"},
		{"blk.0.channel_mix_lerp_k.weight", []int64{32, 1, 1}, false, "ggml_mul"},

		{"blk.0.ssm_alpha.weight", []int64{32, 8}, true, "ggml_mul_mat (qwen35)"},
		{"blk.0.ssm_dt.weight", []int64{32, 64}, true, "ggml_mul_mat (mamba)"},
		{"blk.0.shortconv.in_proj.weight", []int64{32, 96}, true, "ggml_mul_mat"},
		{"blk.0.time_mix_w1.weight", []int64{32, 8}, true, "ggml_mul_mat"},
		{"conv1d.weight", []int64{7, 32, 32}, true, "ggml_im2col"},
		{"position_embd.weight", []int64{32, 100}, true, "ggml_get_rows"},
		{"blk.0.ffn_gate_inp_shexp.weight", []int64{32}, true, "ggml_mul_mat, one row"},
		{"cls.output.weight", []int64{32}, true, "ggml_mul_mat, one row: a reranker"},
		{"cls.weight", []int64{32}, true, "ggml_mul_mat, one row: a reranker"},
		{"blk.0.attn_q.weight.lora_a", []int64{32}, true, "ggml_mul_mat, rank 1"},
	} {
		var b bytes.Buffer
		require.NoError(t, gguf.Write(&b, []gguf.KV{gguf.NewKV("general.architecture", "x")},
			[]gguf.Data{{Name: c.name, Shape: c.shape, Type: gguf.F16, Bytes: make([]byte, 2*gguf.Tensor{Shape: c.shape}.Elements())}}))
		if err := check(b.Bytes()); c.halves {
			assert.NoError(t, err, "%s: %s", c.name, c.because)
		} else {
			assert.ErrorContains(t, err, "is stored as F16", "%s: %s", c.name, c.because)
		}
	}
}

// Tensors need not be aligned by more than what ggml needs, but by that.
func TestCheckAlignment(t *testing.T) {
	m := tinymodel.Llama(tinymodel.Options{})
	assert.NoError(t, check(apply(t, m, set("general.alignment", uint32(64)))))
	for _, align := range []uint32{1, 8, 16} {
		for pad := range 32 {
			b := apply(t, m, set("general.alignment", align), set("x", strings.Repeat("x", pad)))
			f, err := read(b)
			require.NoError(t, err)
			if err = f.Check(); f.DataOffset%32 == 0 {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, fmt.Sprintf("gguf: byte %d: tensor \"token_embd.weight\" has its data at byte %d: it must be a multiple of 32",
					place(b, "token_embd.weight"), f.DataOffset))
			}
		}
	}
}

// A file without data for its tensors, as a download that was cut.
func TestCheckCut(t *testing.T) {
	m := tinymodel.Llama(tinymodel.Options{})
	f, err := read(m)
	require.NoError(t, err)
	last := f.Tensors[len(f.Tensors)-1]
	end := f.DataOffset + last.Offset + last.Size
	assert.NoError(t, check(m[:end]), "the padding behind the last tensor may be missing")
	assert.EqualError(t, check(m[:end-1]), fmt.Sprintf("gguf: byte %d: tensor %q has %d bytes of data at byte %d, but the file ends after %d",
		place(m, last.Name), last.Name, last.Size, f.DataOffset+last.Offset, last.Size-1))
	header := place(m, last.Name) + 8 + len(last.Name) + 4 + 8*len(last.Shape) + 4 + 8
	require.NotZero(t, f.DataOffset-int64(header))
	assert.EqualError(t, check(m[:header]), fmt.Sprintf("gguf: byte %d: the tensors' data begin at byte %d, but the file ends after %d",
		header, f.DataOffset, header))
}
