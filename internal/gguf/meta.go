package gguf

import (
	"bytes"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of llama.cpp (llama-hparams.h), and some of our own that no model
// comes near and that keep a lie from taking all memory or time.
const (
	maxLayers  = 512
	maxExperts = 1024
	maxTokens  = 1 << 22
	maxToken   = 1 << 12 // bytes; some tokenizers recurse as deep
	maxWidth   = 1 << 24 // rows, heads, windows of one layer
)

// meta looks metadata up, also by the keys of the file's architecture.
type meta struct {
	f    *File
	kvs  map[string]*KV
	arch string
}

// checkMeta checks what llama.cpp uses without a check of its own. A value of
// another kind than llama.cpp expects is mostly left to it: it answers with an
// error.
func checkMeta(f *File) error {
	m := &meta{f: f, kvs: make(map[string]*KV, len(f.KVs))}
	for i := range f.KVs {
		m.kvs[f.KVs[i].Key] = &f.KVs[i]
	}
	if err := m.checkKinds(KindString, "general.architecture"); err != nil {
		return err
	}
	kind, _ := m.text("general.type")
	if kind == "adapter" || m.kvs["adapter.type"] != nil {
		if err := m.checkKinds(KindString, "general.type", "adapter.type"); err != nil {
			return err
		}
		if err := m.checkKinds(KindFloat32, "adapter.lora.alpha"); err != nil {
			return err
		}
	}
	m.arch, _ = m.text("general.architecture")
	if kind == "adapter" {
		// Whoever opens it as a model is not stopped by what it calls itself.
		isModel := m.get("block_count") != nil || m.kvs["tokenizer.ggml.model"] != nil
		if err := checkAdapter(f); err != nil || !isModel {
			return err
		}
	}
	if parts, _ := m.uint("split.count"); parts > 1 {
		if err := m.checkKinds(KindUint16, "split.count", "split.no"); err != nil {
			return err
		}
		if no, _ := m.uint("split.no"); no > 0 {
			return nil // the first part has the metadata
		}
	}
	if m.arch == "" {
		return errorf("general.architecture is missing")
	}
	for _, check := range []func(*meta) error{
		checkBounds, checkExperts, checkHeads, checkNeeded, checkRope, checkVocab,
	} {
		if err := check(m); err != nil {
			return err
		}
	}
	return nil
}

// checkKinds checks the kind of values that llama.cpp takes without looking at it.
func (m *meta) checkKinds(want Kind, keys ...string) error {
	for _, key := range keys {
		if kv := m.kvs[key]; kv != nil && kv.Value.Kind != want {
			return failf(kv.Offset, "%s is %v: it must be %v", key, kv.Value.Kind, want)
		}
	}
	return nil
}

// checkAdapter checks what llama.cpp, which compares two dimensions with those of
// the model's matrices, leaves out: there are more only for stacks of experts.
func checkAdapter(f *File) error {
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if len(t.Shape) > 2 && t.Elements() != t.Shape[0]*t.Shape[1] && !strings.Contains(t.Name, "_exps") {
			return failf(t.at, "tensor %q has the shape %d: an adapter's matrix has two dimensions", t.Name, t.Shape)
		}
	}
	return nil
}

// text returns a string value as C code sees it, which stops at a zero byte.
func (m *meta) text(key string) (string, bool) {
	kv := m.kvs[key]
	if kv == nil {
		return "", false
	}
	s, ok := kv.Value.Text()
	s, _, _ = strings.Cut(s, "\x00")
	return s, ok
}

func (m *meta) uint(key string) (uint64, bool) {
	kv := m.kvs[key]
	if kv == nil {
		return 0, false
	}
	return kv.Value.Uint()
}

// get returns the entry of the architecture's own key.
func (m *meta) get(key string) *KV { return m.kvs[m.arch+"."+key] }

// num returns the u32 under one of the architecture's keys, or zero.
func (m *meta) num(key string) uint64 {
	kv := m.get(key)
	if kv == nil || kv.Value.Kind != KindUint32 {
		return 0
	}
	u, _ := kv.Value.Uint()
	return u
}

// nums returns the 32-bit numbers under one of the architecture's keys, which
// may hold one for all layers or an array of one per layer.
func (m *meta) nums(key string) []uint64 {
	kv := m.get(key)
	if kv == nil {
		return nil
	}
	switch kv.Value.Elem {
	case KindUint32, KindInt32, KindBool:
	default:
		return nil
	}
	var nums []uint64
	for e := range kv.Value.All() {
		b, isBool := e.Bool()
		i, _ := e.Int()
		if isBool && b {
			i = 1
		}
		nums = append(nums, uint64(uint32(i)))
	}
	return nums
}

// fail makes an error about one of the architecture's keys.
func (m *meta) fail(key, format string, args ...any) error {
	kv := m.get(key)
	if kv == nil {
		return errorf("%s.%s is missing: "+format, append([]any{m.arch, key}, args...)...)
	}
	return failf(kv.Offset, "%s is %v: "+format, append([]any{clip(kv.Key), kv.Value}, args...)...)
}

// checkBounds checks single numbers.
func checkBounds(m *meta) error {
	width := uint64(m.width())
	layers := uint64(maxLayers)
	if m.get("block_count") != nil {
		layers = m.num("block_count")
	}
	for _, b := range []struct {
		key       string
		low, high uint64
		archs     []string // all if none; a zero or a missing number is no fault in others
	}{
		{"block_count", 1, maxLayers, nil},
		{"decoder_block_count", 0, maxLayers, nil},
		{"nextn_predict_layers", 0, layers, nil},
		{"expert_count", 0, maxExperts, nil},
		{"attention.head_count", 0, width, nil},
		{"attention.head_count_kv", 0, width, nil},
		{"attention.key_length", 0, width, nil},
		{"attention.value_length", 0, width, nil},
		{"attention.key_length_swa", 0, width, nil},
		{"attention.value_length_swa", 0, width, nil},
		{"vocab_size", 0, maxTokens, nil},
		// llama.cpp divides by these.
		{"wkv.head_size", 1, width, []string{"rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"}},
		{"ssm.group_count", 1, width, []string{"mamba2", "granitehybrid", "falcon-h1", "nemotron_h", "nemotron_h_moe", "qwen3next", "qwen35", "qwen35moe"}},
		{"full_attention_interval", 1, math.MaxUint32, []string{"qwen3next", "qwen35", "qwen35moe", "qwen4exp", "minimax-01"}},
		{"interleave_moe_layer_step", 1, math.MaxUint32, []string{"ernie4_5-moe"}},
		{"attention.group_norm_groups", 1, width, []string{"wavtokenizer-dec"}},
		{"attention.output_group_count", 1, width, []string{"deepseek4", "dflash"}},
		// Its logarithms leave the table outside this range.
		{"attention.relative_buckets_count", 4, 255, []string{"t5", "t5encoder"}},
	} {
		if b.archs != nil && !slices.Contains(b.archs, m.arch) {
			continue
		}
		for _, n := range m.nums(b.key) {
			if n < b.low || n > b.high {
				return m.fail(b.key, "from %d to %d are allowed", b.low, b.high)
			}
		}
	}
	for _, key := range []string{
		"attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon", "attention.group_norm_epsilon",
	} {
		if kv := m.get(key); kv != nil {
			if x, ok := kv.Value.Float(); ok && !(x >= 0) {
				return m.fail(key, "it must be a number that is not negative")
			}
		}
	}
	return nil
}

// checkNeeded checks what some architectures take for granted: they divide by the
// number of heads, expect a cache with windows, or choose among the sections of a
// rotation.
func checkNeeded(m *meta) error {
	for _, need := range []struct {
		key   string
		archs []string
	}{
		{"attention.head_count", []string{"olmo2", "phimoe", "gemma2", "gemma3", "deepseek2-ocr"}},
		{"attention.sliding_window", []string{"afmoe"}},
		{"rope.dimension_sections", []string{"qwen2vl", "paddleocr", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen4exp", "qwen3tts"}},
	} {
		n := m.nums(need.key)
		if slices.Contains(need.archs, m.arch) && (len(n) == 0 || slices.Max(n[:min(3, len(n))]) == 0) {
			return m.fail(need.key, "%s needs it and no zero", m.arch)
		}
	}
	return nil
}

// width returns the largest dimension of the file's tensors, which no row of a
// layer can exceed. In a part of a split model and in a file of a vocabulary
// alone that tensor may be absent.
func (m *meta) width() int64 {
	if n, _ := m.uint("split.count"); n > 1 || len(m.f.Tensors) == 0 {
		return maxWidth
	}
	w := int64(1)
	for i := range m.f.Tensors {
		for _, d := range m.f.Tensors[i].Shape {
			w = max(w, d)
		}
	}
	return w
}

// checkExperts checks the numbers of a mixture of experts, as
// llama_model_base::load_hparams asserts them.
func checkExperts(m *meta) error {
	experts := m.num("expert_count")
	used := slices.Max(append(m.nums("expert_used_count"), 0))
	if (m.arch == "hunyuan-dense" || m.arch == "hunyuan_vl") && experts <= 1 {
		experts, used = 0, 0
	}
	groups := m.num("expert_group_count")
	switch inGroups := m.num("expert_group_used_count"); {
	case used > experts:
		return m.fail("expert_used_count", "there are %d experts", experts)
	case experts > 0 && used == 0:
		return m.fail("expert_used_count", "some of the %d experts must be used", experts)
	case groups > 0 && groups >= experts:
		return m.fail("expert_group_count", "there are %d experts", experts)
	case groups > 1 && experts%groups != 0:
		return m.fail("expert_group_count", "it must divide the %d experts", experts)
	case groups > 1 && (inGroups == 0 || inGroups >= groups):
		return m.fail("expert_group_used_count", "there are %d groups", groups)
	}
	return nil
}

// checkHeads checks that a row of the cache, which llama.cpp allocates before it
// compares heads with tensors, is no longer than a row of a tensor.
func checkHeads(m *meta) error {
	kv := m.nums("attention.head_count_kv")
	if kv == nil {
		kv = m.nums("attention.head_count")
	}
	most := slices.Max(append(kv, 0))
	width := uint64(m.width())
	for _, key := range []string{
		"attention.key_length", "attention.value_length", "attention.key_length_swa", "attention.value_length_swa",
	} {
		if n := m.num(key); n*most > width {
			return m.fail(key, "with %d heads the cache would have rows of %d elements, the tensors have %d at most", most, n*most, width)
		}
	}
	return nil
}

// ropeless are the architectures without rotary positions (LLAMA_ROPE_TYPE_NONE
// in llama_model_rope_type), and bert, which has learned ones.
var ropeless = map[string]bool{
	"bert": true,
	"clip": true, "gpt2": true, "gptj": true, "mpt": true, "refact": true, "bloom": true,
	"mamba": true, "mamba2": true, "jamba": true, "jina-bert-v2": true, "t5": true, "t5encoder": true,
	"jais": true, "rwkv6": true, "rwkv6qwen2": true, "rwkv7": true, "arwkv7": true,
	"wavtokenizer-dec": true, "nemotron_h": true, "nemotron_h_moe": true, "kimi-linear": true, "kimi-k3": true,
}

// checkRope checks the number of rotated elements of a head. Zero makes ggml
// loop for ever, an odd number or one too large makes it abort.
func checkRope(m *meta) error {
	const key = "rope.scaling.type"
	if kv := m.get(key); kv != nil {
		s, ok := m.text(kv.Key)
		if ok && !slices.Contains([]string{"none", "linear", "yarn", "longrope"}, s) {
			return m.fail(key, "none, linear, yarn and longrope are known")
		}
	}
	heads := append(m.nums("attention.head_count"), 0)[0]
	if ropeless[m.arch] || m.optionalRope() || heads == 0 {
		return nil
	}
	size := m.num("embedding_length") / heads
	if m.get("attention.key_length") != nil {
		size = m.num("attention.key_length")
	}
	rotated := size
	if m.get("rope.dimension_count") != nil {
		rotated = m.num("rope.dimension_count")
	}
	sizeSWA, rotatedSWA := size, rotated
	if m.get("attention.key_length_swa") != nil {
		sizeSWA = m.num("attention.key_length_swa")
	}
	if m.get("rope.dimension_count_swa") != nil {
		rotatedSWA = m.num("rope.dimension_count_swa")
	}
	if rotated == 0 || rotated%2 != 0 || rotated > size {
		return m.fail("rope.dimension_count", "%d of the %d elements of a head would be rotated, not an even number from 2 to %d", rotated, size, size)
	}
	var sections uint64
	for _, n := range m.nums("rope.dimension_sections") {
		sections += n
	}
	if sections > size {
		return m.fail("rope.dimension_sections", "the sum must not exceed the %d elements of a head", size)
	}
	if rotatedSWA == 0 || rotatedSWA%2 != 0 || rotatedSWA > sizeSWA {
		return m.fail("rope.dimension_count_swa", "%d of the %d elements of a head would be rotated, not an even number from 2 to %d", rotatedSWA, sizeSWA, sizeSWA)
	}
	return nil
}

// optionalRope reports whether this is one of the Granite models whose file
// switches the rotation off.
func (m *meta) optionalRope() bool {
	kv := m.get("rope.scaling.finetuned")
	if kv == nil || !slices.Contains([]string{"granite", "granitemoe", "granitehybrid", "graniteswitch"}, m.arch) {
		return false
	}
	on, ok := kv.Value.Bool()
	return ok && !on
}

// checkVocab checks the list of tokens.
func checkVocab(m *meta) error {
	model, _ := m.text("tokenizer.ggml.model")
	if model == "none" || model == "no_vocab" {
		return nil // llama.cpp does not look at the list
	}
	kv := m.kvs["tokenizer.ggml.tokens"]
	if kv == nil || kv.Value.Kind != KindArray || kv.Value.Elem != KindString {
		return nil // llama.cpp answers with an error
	}
	n := kv.Value.Len()
	if n < 1 || n > maxTokens {
		return failf(kv.Offset, "%s has %d tokens: from 1 to %d are allowed", kv.Key, n, maxTokens)
	}
	seed := maphash.MakeSeed()
	seen := make([]uint64, 1<<bits.Len(uint(2*n))) // hashes, at their place or the next free one
	i := 0
	for e := range kv.Value.All() {
		text := e.cText()
		if len(text) > maxToken {
			return failf(kv.Offset, "token %d has %d bytes: at most %d are allowed", i, len(text), maxToken)
		}
		if model == "plamo2" && !utf8.Valid(text) {
			// Its table of suffixes leads out of bounds.
			return failf(kv.Offset, "token %d is %q: tokens of %s must be UTF-8", i, text, model)
		}
		if len(text) > 0 {
			hash := maphash.Bytes(seed, text) | 1
			place := hash >> 1 & uint64(len(seen)-1)
			for seen[place] != 0 {
				if seen[place] == hash {
					return failf(kv.Offset, "tokens %d and %d are both %q", kv.Value.find(text), i, text)
				}
				place = (place + 1) & uint64(len(seen)-1)
			}
			seen[place] = hash
		}
		i++
	}
	if model == "rwkv" {
		return checkBytes(kv)
	}
	return nil
}

// cText returns a string as C code sees it, which stops at a zero byte.
func (v Value) cText() []byte {
	text, _, _ := bytes.Cut(v.data[8:], []byte{0})
	return text
}

// find returns the index of the first string that C code takes for text.
func (v Value) find(text []byte) int {
	i := 0
	for e := range v.All() {
		if bytes.Equal(e.cText(), text) {
			break
		}
		i++
	}
	return i
}

// checkBytes checks that the tokenizer of RWKV finds a token wherever it finds
// the beginning of one; it would search for ever.
func checkBytes(kv *KV) error {
	var begin, alone [256]bool
	for e := range kv.Value.All() {
		if text := unescape(e.cText()); len(text) > 0 {
			begin[text[0]] = true
			alone[text[0]] = alone[text[0]] || len(text) == 1
		}
	}
	for c := range begin {
		if begin[c] && !alone[c] {
			return failf(kv.Offset, "tokens begin with the byte %#02x, but no token is that byte alone", c)
		}
	}
	return nil
}

// unescape replaces \t, \n, \r and \xNN, as llama_unescape_rwkv_token does, and
// takes any other escaped byte for itself.
func unescape(s []byte) []byte {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out = append(out, s[i])
			continue
		}
		i++
		switch s[i] {
		case 't':
			out = append(out, '\t')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 'x':
			if i+2 < len(s) {
				n, _ := strconv.ParseUint(string(s[i+1:i+3]), 16, 8)
				out = append(out, byte(n))
			}
			i += 2
		default:
			out = append(out, s[i])
		}
	}
	return out
}
