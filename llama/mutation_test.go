package llama

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/internal/gguf"
	"github.com/sortes-llm/sortes/internal/tinymodel"
)

// A mutation is a tiny model with one thing changed.
type mutation struct {
	name    string
	model   string
	kvs     []gguf.KV
	tensors []gguf.Data
}

// mutationModels are the models that are changed, by name.
var mutationModels = map[string]func() []byte{
	"llama":     func() []byte { return tinymodel.Llama(tinymodel.Options{Layers: 2}) },
	"SPM":       func() []byte { return tinymodel.Llama(tinymodel.Options{Layers: 1, Tokenizer: tinymodel.SPM}) },
	"window":    func() []byte { return tinymodel.SlidingWindow(tinymodel.Options{}) },
	"recurrent": func() []byte { return tinymodel.Recurrent(tinymodel.Options{}) },
	"hybrid":    func() []byte { return tinymodel.Hybrid(tinymodel.Options{}) },
	"encoder":   func() []byte { return tinymodel.Encoder(tinymodel.Options{}) },
	"adapter":   func() []byte { return tinymodel.Adapter(tinymodel.Options{Layers: 2}) }, // for llama
}

// TestMutations gives llama.cpp models with one entry of the metadata or one
// tensor deleted, added or changed, and uses what opens. Nothing may end the
// process, hang, or fail on a thread of ggml, where it would end it.
//
// By default it tries a sample. SORTES_MUTATIONS=1 tries all, any other number
// that one.
func TestMutations(t *testing.T) {
	if from := os.Getenv("SORTES_MUTATIONS_CHILD"); from != "" {
		var first, step int
		_, err := fmt.Sscan(from, &first, &step)
		require.NoError(t, err)
		tryMutations(t, first, step)
		return
	}
	step := 127
	if s := os.Getenv("SORTES_MUTATIONS"); s != "" {
		var err error
		step, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	tried := 0
	for next := step / 2; ; {
		last, count, finished, fault := mutationChild(t, next, step)
		tried += count
		if fault != "" {
			t.Error(fault)
		}
		if finished {
			break
		}
		next = last + step
	}
	t.Logf("%d mutations", tried)
	require.Greater(t, tried, 100)
}

// mutationChild tries mutations from the first on in a process of its own. It
// returns the number of the last one tried, how many were, and what is wrong
// with the last.
func mutationChild(t *testing.T, first, step int) (last, count int, finished bool, fault string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestMutations$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), fmt.Sprintf("SORTES_MUTATIONS_CHILD=%d %d", first, step), "TMPDIR="+t.TempDir()) // a crash leaves its files
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())

	const patience = time.Minute
	hung := false
	watchdog := time.AfterFunc(patience, func() { hung = true; cancel() })
	last = first
	name := "nothing"
	for lines := bufio.NewScanner(out); lines.Scan(); {
		watchdog.Reset(patience)
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "try":
			number, what, _ := strings.Cut(rest, " ")
			last, _ = strconv.Atoi(number)
			name = what
			count++
		case "fault":
			fault = name + ": " + rest
		case "done":
			finished = true
		}
	}
	err = cmd.Wait()
	switch {
	case !watchdog.Stop() && hung:
		fault = name + ": hangs"
	case fault == "" && (err != nil || !finished):
		all := stderr.String()
		fault = fmt.Sprintf("%s: the process ended: %v\n%s", name, err, all[:min(len(all), 1500)])
	}
	return last, count, finished && err == nil, fault
}

func tryMutations(t *testing.T, first, step int) {
	// No mutation may take all memory of the machine.
	limit := syscall.Rlimit{Cur: 4 << 30, Max: 4 << 30}
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_AS, &limit))
	path := filepath.Join(t.TempDir(), "mutation.gguf")
	base, err := Open(context.Background(), tinymodel.Save(t.TempDir(), "base.gguf", mutationModels["llama"]()), ModelOptions{})
	require.NoError(t, err)
	defer base.Close()
	i := 0
	for m := range mutations(t) {
		if i >= first && (i-first)%step == 0 {
			fmt.Println("try", i, m.model, m.name)
			var b bytes.Buffer
			require.NoError(t, gguf.Write(&b, m.kvs, m.tensors))
			require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
			use := useModel
			if m.model == "adapter" {
				use = func(path string) error { return useAdapter(base, path) }
			}
			if err := use(path); err != nil {
				// Its threads may wait for one that left: better a new process.
				fmt.Println("fault", strings.ReplaceAll(err.Error(), "\n", " "))
				os.Exit(0)
			}
		}
		i++
	}
	fmt.Println("done")
}

// useModel opens a model and does some of everything with it. An error of the
// library is as good as an answer; its error is about what no error may be.
func useModel(path string) error {
	ctx := context.Background()
	m, err := Open(ctx, path, ModelOptions{})
	if err != nil {
		return nil
	}
	defer m.Close()
	m.Facts()
	m.Metadata()
	v := m.Vocab()
	v.Special()
	v.Suppressed()
	v.EndTokens()
	tokens := []int32{}
	for _, text := range []string{"", "the cat\n", " A\u00e9\u6f22<s>\x00\xff  1,234 </s>", strings.Repeat("and 7", 300)} {
		for _, o := range []TokenizeOptions{{}, {AddSpecial: true}, {AddSpecial: true, ParseSpecial: true}} {
			if some, err := v.Tokenize(text, o); err == nil {
				v.Detokenize(some)
				tokens = some
			}
		}
	}
	for id := range int32(v.Size()) {
		v.Piece(id)
		v.SpecialPiece(id)
		v.Attributes(id)
		v.Score(id)
	}
	// One thread, on which an assertion is caught and reported; on any other it
	// would end the process.
	o := SessionOptions{Context: 300, Sequences: 2, Batch: 40, Microbatch: 20, Outputs: 40, Threads: 1}
	for _, o.Embeddings = range []bool{false, true} {
		s, err := m.NewSession(o)
		if err != nil {
			continue
		}
		err = useSession(s, tokens)
		s.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// useAdapter does the same with an adapter to a model, and tries it as a model.
func useAdapter(base *Model, path string) error {
	if err := useModel(path); err != nil {
		return err
	}
	a, err := base.LoadAdapter(path)
	if err != nil {
		return nil
	}
	defer a.Close()
	s, err := base.NewSession(SessionOptions{Context: 300, Sequences: 2, Batch: 40, Microbatch: 20, Outputs: 40, Threads: 1})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.SetAdapters(AdapterScale{a, 1}); err != nil {
		return nil
	}
	return useSession(s, []int32{1, 2, 3})
}

func useSession(s *Session, tokens []int32) error {
	ctx := context.Background()
	tokens = tokens[:min(len(tokens), s.Limits().Batch-1)]
	steps := []func() error{
		func() error { return s.Eval(ctx, rowsOf(0, 0, 1, 2)) },
		func() error { return s.Eval(ctx, rowsOf(1, 1)) },
		func() error { return s.Eval(ctx, append(rowsOf(0, 2), rowsOf(1, tokens...)...)) },
		func() error { return s.Truncate(1, min(1, s.Len(1))) },
		func() error { return s.Copy(1, 0) },
		func() error { return s.Eval(ctx, append(rowsOf(1, 2), eval.Row{Token: 1, Seq: 0, Output: true})) },
		func() error { return s.Shift(0, 0, min(1, s.Len(0))) },
		func() error { return s.SaveState(new(bytes.Buffer), 0, make([]int32, s.Len(0))) },
		func() error { _, err := s.SequenceEmbedding(0); return err },
		func() error { return s.Eval(ctx, rowsOf(0, 1)) },
	}
	for i, step := range steps {
		// An assertion in the code that evaluates a graph may be met by any thread.
		var a Assertion
		if err := step(); errors.As(err, &a) && strings.Contains(string(a), "/ggml-cpu/") {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// mutations yields them in a fixed order.
func mutations(t *testing.T) func(yield func(mutation) bool) {
	return func(yield func(mutation) bool) {
		names := make([]string, 0, len(mutationModels))
		for name := range mutationModels {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			model := mutationModels[name]()
			f, err := gguf.Read(bytes.NewReader(model), int64(len(model)))
			require.NoError(t, err)
			var tensors []gguf.Data
			for _, x := range f.Tensors {
				at := f.DataOffset + x.Offset
				tensors = append(tensors, gguf.Data{Name: x.Name, Shape: x.Shape, Type: x.Type, Bytes: model[at : at+x.Size]})
			}
			base := mutation{model: name, kvs: f.KVs, tensors: tensors}
			for _, all := range []func(mutation, func(mutation) bool) bool{changedEntries, addedEntries, otherArchitectures, changedTensors} {
				if !all(base, yield) {
					return
				}
			}
		}
	}
}

// with returns the model with another name and an entry in place of entry i,
// or behind all.
func (m mutation) with(name string, i int, key string, value any) mutation {
	m.name = fmt.Sprintf("%s %s", key, name)
	m.kvs = slices.Clone(m.kvs)
	if i == len(m.kvs) {
		m.kvs = append(m.kvs, gguf.KV{})
	}
	m.kvs[i] = gguf.NewKV(key, value)
	return m
}

func changedEntries(m mutation, yield func(mutation) bool) bool {
	for i, kv := range m.kvs {
		without := m
		without.name = kv.Key + " deleted"
		without.kvs = slices.Delete(slices.Clone(m.kvs), i, i+1)
		if !yield(without) {
			return false
		}
		values := otherValues(kv)
		for _, name := range sortedKeys(values) {
			if !yield(m.with("= "+name, i, kv.Key, values[name])) {
				return false
			}
		}
	}
	return true
}

func sortedKeys(values map[string]any) []string {
	var names []string
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

var scalars = map[string]any{
	"u8": uint8(1), "i8": int8(-1), "u16": uint16(2), "i16": int16(-1), "u32": uint32(1), "i32": int32(-1), "u64": uint64(1), "i64": int64(-1),
	"f32": float32(1), "f64": float64(1), "true": true, "false": false, "string": "x",
	"0": uint32(0), "2": uint32(2), "3": uint32(3), "7": uint32(7), "64": uint32(64), "1000": uint32(1000), "2^24": uint32(1 << 24), "2^31": uint32(1 << 31), "2^32-1": uint32(math.MaxUint32),
	"-0.0": float32(math.Copysign(0, -1)), "0.0": float32(0), "-1.0": float32(-1), "NaN": float32(math.NaN()), "Inf": float32(math.Inf(1)), "1e30": float32(1e30), "1e-30": float32(1e-30),
	"no u32": []uint32{}, "[1]": []uint32{1}, "[0 0]": []uint32{0, 0}, "[1 0]": []uint32{1, 0}, "[7 9]": []int32{7, 9}, "[-1 -1]": []int32{-1, -1}, "[-1 0 0 0]": []int32{-1, 0, 0, 0},
	"[NaN NaN]": []float32{float32(math.NaN()), float32(math.NaN())}, "[true false]": []bool{true, false}, "strings": []string{"a", ""}, "no strings": []string{},
}

var vocabularies = map[string][]string{
	"tokenizer.ggml.model": {"none", "no_vocab", "llama", "bert", "gpt2", "t5", "rwkv", "plamo2", "gemma4", "hybriddna", "whitespace", "test", "", "nothing"},
	"tokenizer.ggml.pre":   {"default", "llama-bpe", "deepseek-llm", "gpt-4o", "tekken", "kimi-k2", "falcon", "superbpe", "", "nothing"},
}

// otherValues are what an entry is given in place of its own.
func otherValues(kv gguf.KV) map[string]any {
	values := map[string]any{}
	for name, v := range scalars {
		values[name] = v
	}
	for _, word := range vocabularies[kv.Key] {
		values[strconv.Quote(word)] = word
	}
	if i, ok := kv.Value.Int(); ok && kv.Value.Kind == gguf.KindUint32 {
		for _, n := range []int64{i - 1, i + 1, i / 2, 2 * i, 3 * i} {
			values[fmt.Sprint(uint32(n))] = uint32(n)
		}
	}
	if kv.Value.Kind == gguf.KindString {
		values["empty"], values["long"], values["not UTF-8"], values["zero byte"] = "", strings.Repeat("long ", 5000), "\xff\xfe", "a\x00b"
	}
	if kv.Value.Kind == gguf.KindArray {
		n := kv.Value.Len()
		var all reflect.Value
		switch kv.Value.Elem {
		case gguf.KindString:
			var s []string
			for e := range kv.Value.All() {
				text, _ := e.Text()
				s = append(s, text)
			}
			all = reflect.ValueOf(s)
			for name, text := range map[string]string{"empty": "", "long": strings.Repeat("a", 4000), "very long": strings.Repeat("\u00e9 ", 50000),
				"not UTF-8": "a\xff\xc3", "zero byte": "\x00", "space": " ", "no byte": "<0x>", "special": "<|im_end|>"} {
				one, every := slices.Clone(s), slices.Clone(s)
				one[n/2] = text
				for i := range every {
					every[i] = text
				}
				values["one "+name], values["all "+name] = one, every
			}
			numbered := slices.Clone(s)
			for i := range numbered {
				numbered[i] = fmt.Sprintf("\xe2%d\xff", i)
			}
			values["numbered"] = numbered
		case gguf.KindInt32, gguf.KindUint32:
			var s []int32
			for e := range kv.Value.All() {
				i, _ := e.Int()
				s = append(s, int32(i))
			}
			all = reflect.ValueOf(s)
			for _, x := range []int32{0, 1, 2, 3, 4, 5, 6, 9, -1, math.MinInt32, math.MaxInt32} {
				every := slices.Repeat([]int32{x}, n)
				one := slices.Clone(s)
				one[n/2] = x
				values[fmt.Sprint("all ", x)], values[fmt.Sprint("one ", x)] = every, one
			}
			unsigned := make([]uint32, n)
			values["unsigned"] = unsigned
		case gguf.KindFloat32:
			s := make([]float32, n)
			for i := range s {
				s[i] = float32(i)
			}
			all = reflect.ValueOf(s)
			for name, x := range map[string]float64{"NaN": math.NaN(), "Inf": math.Inf(1), "-Inf": math.Inf(-1), "max": math.MaxFloat32, "-max": -math.MaxFloat32, "0": 0} {
				values["all "+name] = slices.Repeat([]float32{float32(x)}, n)
			}
		default:
			return values
		}
		values["one less"] = all.Slice(0, n-1).Interface()
		values["half"] = all.Slice(0, n/2).Interface()
		values["one"] = all.Slice(0, 1).Interface()
		values["none"] = all.Slice(0, 0).Interface()
		values["twice"] = reflect.AppendSlice(all.Slice3(0, n, n), all).Interface()
		values["one more"] = reflect.AppendSlice(all.Slice3(0, n, n), all.Slice(0, 1)).Interface()
	}
	return values
}

// addedEntries adds what llama.cpp looks for and the model has not.
func addedEntries(m mutation, yield func(mutation) bool) bool {
	arch, _ := m.kvs[slices.IndexFunc(m.kvs, func(kv gguf.KV) bool { return kv.Key == "general.architecture" })].Value.Text()
	keys := strings.Fields(otherKeys)
	for _, key := range strings.Fields(architectureKeys) {
		keys = append(keys, arch+"."+key)
	}
	for _, key := range keys {
		if key == "general.alignment" { // the file would be as large
			continue
		}
		if slices.ContainsFunc(m.kvs, func(kv gguf.KV) bool { return kv.Key == key }) {
			continue
		}
		for _, name := range sortedKeys(scalars) {
			if !yield(m.with("added: "+name, len(m.kvs), key, scalars[name])) {
				return false
			}
		}
	}
	return true
}

// otherArchitectures calls the model something else.
func otherArchitectures(m mutation, yield func(mutation) bool) bool {
	for _, arch := range strings.Fields(architectures) {
		other := m
		other.name = "as " + arch
		other.kvs = slices.Clone(m.kvs)
		var old string
		for i, kv := range other.kvs {
			if kv.Key == "general.architecture" {
				old, _ = kv.Value.Text()
				other.kvs[i] = gguf.NewKV(kv.Key, arch)
			}
		}
		for i, kv := range other.kvs {
			if key, ok := strings.CutPrefix(kv.Key, old+"."); ok {
				other.kvs[i].Key = arch + "." + key
			}
		}
		if !yield(other) {
			return false
		}
		for _, key := range []string{"expert_count", "attention.sliding_window", "attention.head_count_kv", "ssm.group_count", "logit_scale", "rope.dimension_sections"} {
			for _, name := range []string{"0", "2", "[0 0]"} {
				more := other.with("added: "+name, len(other.kvs), arch+"."+key, scalars[name])
				more.name = other.name + ", " + more.name
				if i := slices.IndexFunc(other.kvs, func(kv gguf.KV) bool { return kv.Key == arch+"."+key }); i >= 0 {
					more.kvs = slices.Delete(more.kvs, i, i+1)
				}
				if !yield(more) {
					return false
				}
			}
		}
	}
	return true
}

func changedTensors(m mutation, yield func(mutation) bool) bool {
	try := func(name string, i int, with ...gguf.Data) bool {
		other := m
		other.name = m.tensors[i].Name + " " + name
		other.tensors = slices.Replace(slices.Clone(m.tensors), i, i+1, with...)
		return yield(other)
	}
	for i, d := range m.tensors {
		if !try("deleted", i) || !try("twice", i, d, d) {
			return false
		}
		for _, typ := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.F64, gguf.I8, gguf.I32, gguf.Q8_0, gguf.Q4_0, gguf.MXFP4, gguf.IQ4_NL} {
			if other, ok := zeros(d.Name, typ, d.Shape...); ok && !try(fmt.Sprint("as ", typ), i, other) {
				return false
			}
		}
		shapes := [][]int64{append(slices.Clone(d.Shape), 1), append(slices.Clone(d.Shape), 2), {1}, {64}, {}}
		for j, n := range d.Shape {
			for _, n := range []int64{1, n - 1, n + 1, n / 2, 2 * n} {
				shape := slices.Clone(d.Shape)
				shape[j] = n
				shapes = append(shapes, shape)
			}
		}
		if len(d.Shape) == 2 {
			shapes = append(shapes, []int64{d.Shape[1], d.Shape[0]}, []int64{d.Shape[0] * d.Shape[1]}, []int64{d.Shape[0], 1, d.Shape[1]})
		}
		for _, shape := range shapes {
			if other, ok := zeros(d.Name, d.Type, shape...); ok && !try(fmt.Sprint("of shape ", shape), i, other) {
				return false
			}
		}
		for _, c := range []byte{0, 0x7f, 0xff} { // in F32: zeros, a large number, NaN
			other := d
			other.Bytes = bytes.Repeat([]byte{c}, len(d.Bytes))
			if !try(fmt.Sprintf("full of %#02x", c), i, other) {
				return false
			}
		}
	}
	return true
}

// zeros is a tensor of zeros, if there can be one.
func zeros(name string, typ gguf.Type, shape ...int64) (gguf.Data, bool) {
	block, size := typ.Block()
	n := gguf.Tensor{Shape: shape}.Elements()
	if n <= 0 || len(shape) > 4 || len(shape) > 0 && shape[0]%block != 0 || len(shape) == 0 && block > 1 {
		return gguf.Data{}, false
	}
	return gguf.Data{Name: name, Shape: shape, Type: typ, Bytes: make([]byte, n/block*size)}, true
}

// architectures are those of llama.cpp v0.5.0 (llama-arch.cpp).
const architectures = `
afmoe apertus arcee arctic arwkv7 baichuan bailingmoe bailingmoe2 bailingmoe3 bert bitnet bloom chameleon chatglm clip codeshell cogvlm cohere2
cohere2moe command-r dbrx deci deepseek deepseek2 deepseek2-ocr deepseek32 deepseek4 dflash dots1 dots3note dream eagle3 ernie4_5 ernie4_5-moe
eurobert exaone exaone-moe exaone4 falcon falcon-h1 gemma gemma-embedding gemma2 gemma3 gemma3n gemma4 gemma4-assistant glm-dsa glm4 glm4moe gpt-oss
gpt2 gptj gptneox granite granite_swa granitehybrid granitemoe graniteswitch grok grovemoe hrm_text hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 hy_v4
internlm2 jais jais2 jamba jina-bert-v2 jina-bert-v3 kimi-k3 kimi-linear laguna lfm2 lfm2moe llada llada-moe llama llama-embed llama4 maincoder mamba
mamba2 maple mellum mimo2 minicpm minicpm3 minimax-01 minimax-m2 minimax-m3 mistral3 mistral4 modern-bert mpt muse-glimmer nanbeige nemotron
nemotron_h nemotron_h_moe neo-bert nomic-bert nomic-bert-moe olmo olmo2 olmoe openelm orion paddleocr pangu-embedded phi2 phi3 phimoe plamo plamo2
plamo3 plm pockettts qwen qwen2 qwen2moe qwen2vl qwen3 qwen35 qwen35moe qwen3moe qwen3next qwen3tts qwen3vl qwen3vlmoe qwen4exp refact rnd1 rwkv6
rwkv6qwen2 rwkv7 seed_oss smallthinker smollm3 spark2_5 stablelm starcoder starcoder2 step35 t5 t5encoder talkie wavtokenizer-dec xverse
`

// architectureKeys are the keys that llama.cpp looks for behind the name of an architecture.
const architectureKeys = `
activation.situ_beta activation.situ_linear_beta adapters.count adapters.lora_rank adapters.router_gain adapters.token_ids_activate
adapters.token_ids_substitute attention.causal attention.clamp_kqv attention.compress_ratios attention.compress_rope_freq_base
attention.decay_lora_rank attention.gate_lora_rank attention.group_norm_epsilon attention.group_norm_groups attention.head_count
attention.head_count_kv attention.iclr_lora_rank attention.indexer.block_size attention.indexer.head_count attention.indexer.key_length
attention.indexer.local_blocks attention.indexer.top_k attention.indexer.types attention.key_length attention.key_length_mla
attention.key_length_mla_swa attention.key_length_swa attention.kv_lora_rank attention.kv_lora_rank_swa attention.layer_norm_epsilon
attention.layer_norm_rms_epsilon attention.max_alibi_bias attention.output_group_count attention.output_lora_rank attention.output_scale
attention.q_lora_rank attention.recurrent_layers attention.relative_buckets_count attention.rope_pattern attention.scale attention.shared_kv_layers
attention.sliding_window attention.sliding_window_pattern attention.temperature_length attention.temperature_scale attention.value_length
attention.value_length_mla attention.value_length_mla_swa attention.value_length_swa attention.value_residual_mix_lora_rank attention.value_scale
attn_logit_softcapping attn_res.block_size block_count block_size classifier.output_labels context_length conv_group_size conv_kernel_size
convnext.block_count convnext.embedding_length decoder_block_count decoder_start_token_id deepstack_mapping dense_2_feat_in dense_2_feat_out
dense_3_feat_in dense_3_feat_out embedding_length embedding_length_out embedding_length_per_layer_input embedding_scale
expert_chunk_feed_forward_length expert_count expert_feed_forward_length expert_gating_func expert_group_count expert_group_scale
expert_group_used_count expert_latent_length expert_shared_count expert_shared_feed_forward_length expert_used_count expert_weights_norm
expert_weights_scale experts_per_group features_length feed_forward_length final_logit_softcapping full_attention_interval hash_layer_count
hidden_activation hrm.h_cycles hrm.l_cycles hrm.layers_per_stack hrm.prefix_lm hyper_connection.count hyper_connection.epsilon
hyper_connection.low_rank hyper_connection.magnitude hyper_connection.sinkhorn_iterations interleave_moe_layer_step kda.gate_lower_bound kda.head_dim
kda.safe_gate leading_dense_block_count logit_scale moe_every_n_layers moe_latent_size n_deepstack_layers nextn_predict_layers norm_before_fc
norm_before_residual num_loops ple.conv_kernel ple.eos_token_id ple.head_offsets ple.head_vocab_sizes ple.heads_per_ngram ple.image_token_id
ple.layer_multipliers ple.layers ple.ngram_size pooling_type posnet.block_count posnet.embedding_length rescale_every_n_layers residual_scale
rope.dimension_count rope.dimension_count_swa rope.dimension_sections rope.freq_base rope.freq_base_swa rope.scale_linear rope.scaling.alpha
rope.scaling.attn_factor rope.scaling.factor rope.scaling.finetuned rope.scaling.original_context_length rope.scaling.type
rope.scaling.yarn_attn_factor rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow rope.scaling.yarn_ext_factor rope.scaling.yarn_log_multiplier
router_logit_softcapping selector_rank selector_top_k shortconv.l_cache skip_loop_final_norm ssm.conv_kernel ssm.dt_b_c_rms ssm.group_count
ssm.inner_size ssm.state_size ssm.time_step_rank swiglu_clamp_exp swiglu_clamp_shexp swin_norm target_hidden_size target_layers tensor_data_layout
time_decay_extra_dim time_mix_extra_dim token_shift_count use_parallel_residual vocab_size wkv.head_size
`

// otherKeys are further keys of llama.cpp, most of them of tokenizers.
const otherKeys = `
adapter.alora.invocation_tokens adapter.lora.alpha adapter.lora.prompt_prefix adapter.lora.task_name adapter.type general.alignment general.file_type
general.name general.quantization_version general.type split.count split.no split.tensors.count tokenizer.chat_template tokenizer.ggml.add_bos_token
tokenizer.ggml.add_eos_token tokenizer.ggml.add_sep_token tokenizer.ggml.add_space_prefix tokenizer.ggml.bos_token_id tokenizer.ggml.cls_token_id
tokenizer.ggml.eom_token_id tokenizer.ggml.eos_token_id tokenizer.ggml.eot_token_id tokenizer.ggml.fim_mid_token_id tokenizer.ggml.fim_pad_token_id
tokenizer.ggml.fim_pre_token_id tokenizer.ggml.fim_rep_token_id tokenizer.ggml.fim_sep_token_id tokenizer.ggml.fim_suf_token_id
tokenizer.ggml.mask_token_id tokenizer.ggml.merges tokenizer.ggml.middle_token_id tokenizer.ggml.model tokenizer.ggml.normalizer.lowercase
tokenizer.ggml.normalizer.strip_accents tokenizer.ggml.padding_token_id tokenizer.ggml.pre tokenizer.ggml.precompiled_charsmap
tokenizer.ggml.prefix_token_id tokenizer.ggml.remove_extra_whitespaces tokenizer.ggml.scores tokenizer.ggml.seperator_token_id
tokenizer.ggml.suffix_token_id tokenizer.ggml.suppress_tokens tokenizer.ggml.token_type tokenizer.ggml.token_type_count tokenizer.ggml.tokens
tokenizer.ggml.unknown_token_id tokenizer.huggingface.json tokenizer.rwkv.world
`
