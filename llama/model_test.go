package llama

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/gguf"
	"github.com/sortes-llm/sortes/internal/tinymodel"
)

func open(t testing.TB, path string, o ModelOptions) *Model {
	t.Helper()
	m, err := Open(context.Background(), path, o)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m
}

func TestFactsOfATinyModel(t *testing.T) {
	m := tinyModel(t, "llama")
	f := m.Facts()
	require.Contains(t, f.ChatTemplate, "{% for message in messages %}")
	f.ChatTemplate = ""
	// 300 tokens of 64 twice, the last norm, and in each of 2 layers two norms,
	// q and o of 64x64, k and v of 64x32, and three of 64x128.
	const weights = 2*300*64 + 64 + 2*(2*64+2*64*64+2*64*32+3*64*128)
	require.Equal(t, Facts{
		Description: "llama ?B (guessed) all F32", Architecture: "llama", Parameters: weights, Bytes: 4 * weights,
		TrainContext: 2048, Embedding: 64, Layers: 2, Heads: 4, KVHeads: 2, KeySize: 16, Decoder: true,
	}, f)
	require.Equal(t, []string{tinyPath(t, "llama")}, m.Files())

	require.Equal(t, tinymodel.Window, tinyModel(t, "window").Facts().SlidingWindow)
	require.True(t, tinyModel(t, "recurrent").Facts().Recurrent)
	require.False(t, tinyModel(t, "recurrent").Facts().Hybrid)
	require.True(t, tinyModel(t, "hybrid").Facts().Hybrid)
	require.False(t, tinyModel(t, "encoder").Facts().Encoder, "an encoder alone is a decoder to llama.cpp")
}

func TestFactsOfTheRealModel(t *testing.T) {
	header, err := gguf.ReadFile(realPath)
	require.NoError(t, err)
	realBytes := uint64(0)
	for _, x := range header.Tensors {
		realBytes += uint64(x.Size)
	}
	f := realModel(t).Facts()
	require.Contains(t, f.ChatTemplate, "<|im_start|>")
	f.ChatTemplate = ""
	require.Equal(t, Facts{
		Description: "llama 256M Q4_1", Architecture: "llama", Parameters: 134515008, Bytes: realBytes,
		TrainContext: 8192, Embedding: 576, Layers: 30, Heads: 9, KVHeads: 3, KeySize: 64, Decoder: true,
	}, f)
}

// Heads of 64 fit blocks of 32, those of 16 do not.
func TestDraftKeyType(t *testing.T) {
	require.Equal(t, TypeAuto, tinyModel(t, "llama").DraftKeyType())
	want := TypeQ8_0
	for _, d := range Devices() {
		if d.Type == DeviceGPU {
			want = TypeAuto
		}
	}
	require.Equal(t, want, realModel(t).DraftKeyType())
}

func TestMetadata(t *testing.T) {
	m := tinyModel(t, "llama")
	for key, want := range map[string]string{
		"general.architecture":                   "llama",
		"general.name":                           "tiny llama",
		"llama.block_count":                      "2",
		"llama.attention.layer_norm_rms_epsilon": "0.000010",
		"tokenizer.ggml.add_bos_token":           "true",
	} {
		got, ok := m.Meta(key)
		require.True(t, ok, key)
		require.Equal(t, want, got, key)
	}
	for _, key := range []string{"", "none", "llama.block_count\x00", "tokenizer.ggml.tokens\xff"} {
		_, ok := m.Meta(key)
		require.False(t, ok, key)
	}
	all := m.Metadata()
	for _, kv := range all {
		got, ok := m.Meta(kv.Key)
		require.True(t, ok, kv.Key)
		require.Equal(t, kv.Value, got)
	}
	require.Contains(t, all, KeyValue{"llama.block_count", "2"})

	// Longer than any buffer.
	long := strings.Repeat("long ", 5000)
	path := rewritten(t, "llama", func(kvs []gguf.KV, tensors []gguf.Data) ([]gguf.KV, []gguf.Data) {
		return setKV(kvs, "general.description", long), tensors
	})
	got, ok := open(t, path, ModelOptions{}).Meta("general.description")
	require.True(t, ok)
	require.Equal(t, long, got)
}

func TestOverrides(t *testing.T) {
	m := open(t, tinyPath(t, "llama"), ModelOptions{Overrides: map[string]any{
		"llama.context_length":                   int64(777),
		"llama.attention.layer_norm_rms_epsilon": 0.5,
		"tokenizer.ggml.add_bos_token":           false,
		"tokenizer.ggml.pre":                     strings.Repeat("x", 0) + "gpt-2",
	}})
	require.Equal(t, 777, m.Facts().TrainContext)
	require.False(t, m.Vocab().Special().AddBOS)
	tokens, err := m.Vocab().Tokenize("a", TokenizeOptions{AddSpecial: true})
	require.NoError(t, err)
	require.Len(t, tokens, 1)
	s := newSession(t, m, SessionOptions{Context: 256})
	evaluate(t, s, rowsOf(0, 10)...)
	plain := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256})
	evaluate(t, plain, rowsOf(0, 10)...)
	require.Greater(t, apart(s.Logits(0), plain.Logits(0)), 0.05, "another epsilon")

	for _, c := range []struct {
		key   string
		value any
		want  string
	}{
		{"", int64(1), `override of the key "": want 1 to 127 bytes`},
		{strings.Repeat("k", 128), int64(1), "want 1 to 127 bytes"},
		{"a\x00b", int64(1), "want 1 to 127 bytes"},
		{"k", 1, "override of k with a int: want an int64, float64, bool or string"},
		{"k", nil, "want an int64, float64, bool or string"},
		{"k", float32(1), "want an int64, float64, bool or string"},
		{"k", strings.Repeat("v", 128), "override of k with 128 bytes of text: want at most 127, none of them zero"},
		{"k", "a\x00", "none of them zero"},
	} {
		_, err := Open(context.Background(), tinyPath(t, "llama"), ModelOptions{Overrides: map[string]any{c.key: c.value}})
		require.ErrorContains(t, err, c.want)
	}
	open(t, tinyPath(t, "llama"), ModelOptions{Overrides: map[string]any{strings.Repeat("k", 127): strings.Repeat("v", 127)}})
}

func TestLoadModes(t *testing.T) {
	var want []float32
	for _, o := range []ModelOptions{
		{}, {LoadMode: LoadRead}, {LoadMode: LoadMmap}, {LoadMode: LoadMlock}, {LoadMode: LoadMmapMlock}, {LoadMode: LoadDirectIO},
		{NoRepack: true}, {CheckData: true}, {CPUOnly: true}, {GPULayers: 1}, {SplitMode: SplitNone},
		{Devices: []string{"CPU"}}, {TensorSplit: []float32{1}},
	} {
		m := open(t, tinyPath(t, "llama"), o)
		s := newSession(t, m, SessionOptions{Context: 256})
		evaluate(t, s, rowsOf(0, 10, 11)...)
		if want == nil {
			want = logits(s, 1)
		}
		require.Equal(t, want, s.Logits(1), "%+v", o)
	}
	for _, c := range []struct {
		o    ModelOptions
		want string
	}{
		{ModelOptions{LoadMode: -1}, "load mode -1: want one of the LoadMode constants"},
		{ModelOptions{LoadMode: LoadDirectIO + 1}, "load mode 6: want one of the LoadMode constants"},
		{ModelOptions{SplitMode: -1}, "split mode -1: want one of the SplitMode constants"},
		{ModelOptions{SplitMode: SplitTensors + 1}, "split mode 4: want one of the SplitMode constants"},
		{ModelOptions{GPULayers: -1}, "GPU layers -1: want 1 or more, or 0 for all"},
		{ModelOptions{GPULayers: 1, CPUOnly: true}, "GPU layers 1: not together with CPU only"},
		{ModelOptions{MainGPU: -1}, "main GPU -1: want 0 to"},
		{ModelOptions{MainGPU: 1 << 40}, "main GPU 1099511627776: want 0 to"},
		{ModelOptions{TensorSplit: make([]float32, 1000)}, "tensor split with 1000 parts: want at most"},
		{ModelOptions{TensorSplit: []float32{-1}}, "tensor split part -1: want 0 or more"},
		{ModelOptions{Devices: []string{"none"}}, `device "none": want one of CPU`},
	} {
		_, err := Open(context.Background(), tinyPath(t, "llama"), c.o)
		require.ErrorContains(t, err, "llama: "+c.want)
	}
}

func TestSplitModel(t *testing.T) {
	whole := tinymodel.Llama(tinymodel.Options{})
	dir := t.TempDir()
	first := tinymodel.SaveSplit(dir, "tiny", tinymodel.Split(whole, 3))
	m := open(t, first, ModelOptions{})
	require.Len(t, m.Files(), 3)
	s := newSession(t, m, SessionOptions{Context: 256})
	want := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256})
	evaluate(t, s, rowsOf(0, 10, 11)...)
	evaluate(t, want, rowsOf(0, 10, 11)...)
	require.Equal(t, want.Logits(1), s.Logits(1))

	require.NoError(t, os.Remove(m.Files()[2]))
	_, err := Open(context.Background(), first, ModelOptions{})
	require.ErrorContains(t, err, "part 3 of 3 is missing")
}

func TestVocabOnly(t *testing.T) {
	m := open(t, tinyPath(t, "llama"), ModelOptions{VocabOnly: true})
	tokens, err := m.Vocab().Tokenize("the", TokenizeOptions{})
	require.NoError(t, err)
	require.Len(t, tokens, 1)
	require.Equal(t, "llama", m.Facts().Architecture)
	for _, o := range []SessionOptions{{}, {Context: 256}, {Context: 256, Exact: true}, {Context: 256, Embeddings: true}} {
		_, err = m.NewSession(o)
		require.EqualError(t, err, "llama: the model was opened with its vocabulary only: no sessions")
	}
	_, err = m.LoadAdapter(adapterPath(1))
	require.Error(t, err)
}

func TestProgress(t *testing.T) {
	var mu sync.Mutex
	var parts []float32
	open(t, realPath, ModelOptions{Progress: func(part float32) {
		mu.Lock()
		defer mu.Unlock()
		parts = append(parts, part)
	}})
	require.NotEmpty(t, parts)
	require.IsNonDecreasing(t, parts)
	require.Equal(t, float32(1), parts[len(parts)-1])
	require.GreaterOrEqual(t, parts[0], float32(0))
}

func TestCancelWhileLoading(t *testing.T) {
	before := live.Load()
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errStop)
	_, err := Open(ctx, realPath, ModelOptions{})
	require.ErrorIs(t, err, errStop)
	require.EqualError(t, err, "llama: load model "+realPath+": stopped by the test")

	ctx, cancel = context.WithCancelCause(context.Background())
	_, err = Open(ctx, realPath, ModelOptions{Progress: func(float32) { cancel(errStop) }})
	require.ErrorIs(t, err, errStop)
	require.Equal(t, before, live.Load())

	// Nothing is left behind that the next load would trip over.
	open(t, tinyPath(t, "llama"), ModelOptions{})
}

func TestFilesThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, data, 0o666))
		return path
	}
	noise := make([]byte, 1000)
	for i := range noise {
		noise[i] = byte(i*i*7 + i)
	}
	model := tinymodel.Llama(tinymodel.Options{})
	lie := func(at int, value any) []byte {
		data := bytes.Clone(model)
		_, err := binary.Encode(data[at:], binary.LittleEndian, value)
		require.NoError(t, err)
		return data
	}
	refused := func(path, want string) {
		t.Helper()
		_, err := Open(context.Background(), path, ModelOptions{})
		require.ErrorContains(t, err, "llama: load model")
		require.ErrorContains(t, err, want)
		err = Quantize(context.Background(), path, filepath.Join(dir, "out.gguf"), "Q8_0", QuantizeOptions{})
		require.ErrorContains(t, err, want)
		require.Error(t, loadRaw(path), "llama.cpp itself")
	}
	refused("", "the path is empty")
	refused(filepath.Join(dir, "none.gguf"), "no such file or directory")
	refused(filepath.Join(dir, "none.gguf", "deeper"), "no such file or directory")
	refused("a\x00b", "a\x00b")
	refused(dir, "is a directory, not a GGUF file")
	if runtime.GOOS == "linux" {
		refused("/dev/null", "not a regular file")
	}
	refused(write("empty.gguf", nil), "gguf: byte 0")
	refused(write("noise.gguf", noise), "not a GGUF file")
	refused(write("text.gguf", []byte("Once upon a time")), "not a GGUF file")
	for i := range 10 {
		n := len(model) * i / 10
		refused(write(fmt.Sprintf("cut%d.gguf", i), model[:n]), "gguf: ")
	}
	refused(write("cut1.gguf", model[:len(model)-1]), "gguf: ")
	refused(write("version.gguf", lie(4, uint32(99))), "version 99")
	refused(write("tensors.gguf", lie(8, uint64(1)<<63)), "the number of tensors is 9223372036854775808")
	refused(write("entries.gguf", lie(16, uint64(1)<<63)), "the number of metadata entries is 9223372036854775808")
	refused(write("key.gguf", lie(24, uint64(1)<<63)), "a key takes 9223372036854775808 bytes")
}

// A model that lacks what its architecture needs is llama.cpp's to refuse, in
// its own words.
func TestModelsThatLlamaRefuses(t *testing.T) {
	for want, change := range map[string]func([]gguf.KV, []gguf.Data) ([]gguf.KV, []gguf.Data){
		"unknown model architecture: 'none'": func(k []gguf.KV, d []gguf.Data) ([]gguf.KV, []gguf.Data) {
			return setKV(k, "general.architecture", "none"), d
		},
		"tensor 'output_norm.weight' not found": func(k []gguf.KV, d []gguf.Data) ([]gguf.KV, []gguf.Data) {
			var kept []gguf.Data
			for _, x := range d {
				if x.Name != "output_norm.weight" {
					kept = append(kept, x)
				}
			}
			return k, kept
		},
		"tensor 'token_embd.weight' has wrong shape": func(k []gguf.KV, d []gguf.Data) ([]gguf.KV, []gguf.Data) {
			for i := range d {
				if d[i].Name == "token_embd.weight" {
					d[i].Shape = []int64{300, 64}
				}
			}
			return k, d
		},
	} {
		_, err := Open(context.Background(), rewritten(t, "llama", change), ModelOptions{})
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Contains(t, e.Log, want)
		require.ErrorContains(t, err, want)
	}
}

func TestCloseRules(t *testing.T) {
	m, err := Open(context.Background(), tinyPath(t, "llama"), ModelOptions{})
	require.NoError(t, err)
	s, err := m.NewSession(SessionOptions{Context: 256})
	require.NoError(t, err)
	a, err := m.LoadAdapter(adapterPath(1))
	require.NoError(t, err)
	const before = "llama: model closed before its sessions and adapters"
	require.Equal(t, before, panicText(m.Close))
	s.Close()
	s.Close()
	require.Equal(t, before, panicText(m.Close))
	a.Close()
	m.Close()
	m.Close()

	ctx := context.Background()
	for name, call := range map[string]func(){
		"NewSession": func() { _, _ = m.NewSession(SessionOptions{}) },
		"Exact":      func() { _, _ = m.NewSession(SessionOptions{Exact: true}) },
		"Adapter":    func() { _, _ = m.LoadAdapter(adapterPath(1)) },
		"Facts":      func() { m.Facts() },
		"Meta":       func() { m.Meta("x") },
		"Metadata":   func() { m.Metadata() },
		"Tokenize":   func() { _, _ = m.Vocab().Tokenize("x", TokenizeOptions{}) },
		"Special":    func() { m.Vocab().Special() },
		"Suppressed": func() { m.Vocab().Suppressed() },
		"Type":       func() { m.Vocab().Type() },
		"Score":      func() { m.Vocab().Score(1) },
	} {
		require.Equal(t, "llama: model is closed", panicText(call), name)
	}
	for name, call := range map[string]func(){
		"Eval":      func() { _ = s.Eval(ctx, rowsOf(0, 1)) },
		"Logits":    func() { s.Logits(0) },
		"Embedding": func() { s.Embedding(0) },
		"Sequence":  func() { _, _ = s.SequenceEmbedding(0) },
		"Len":       func() { s.Len(0) },
		"Truncate":  func() { _ = s.Truncate(0, 0) },
		"Copy":      func() { _ = s.Copy(0, 0) },
		"Clear":     func() { _ = s.Clear() },
		"Shift":     func() { _ = s.Shift(0, 0, 0) },
		"CanShift":  func() { s.CanShift() },
		"Save":      func() { _ = s.SaveState(new(bytes.Buffer), 0, nil) },
		"Load":      func() { _, _ = s.LoadState(new(bytes.Buffer), 0) },
		"Probe":     func() { _, _ = s.Probe(ctx) },
		"Limits":    func() { s.Limits() },
		"Model":     func() { s.Model() },
		"KVTypes":   func() { s.KVTypes() },
		"Idle":      func() { s.Idle() },
		"Perf":      func() { s.Perf() },
		"ResetPerf": func() { s.ResetPerf() },
		"Adapters":  func() { _ = s.SetAdapters() },
	} {
		require.Equal(t, "llama: session is closed", panicText(call), name)
	}
}

func TestModelOfManyGoroutines(t *testing.T) {
	m := tinyModel(t, "llama")
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Go(func() {
			for range 20 {
				tokens, err := m.Vocab().Tokenize("the and a", TokenizeOptions{})
				if err != nil || string(m.Vocab().Detokenize(tokens)) != "the and a" {
					t.Error(err, tokens)
				}
				s, err := m.NewSession(SessionOptions{Context: 256, Threads: 1})
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Eval(context.Background(), rowsOf(0, int32(10+i))); err != nil {
					t.Error(err)
				}
				s.Close()
			}
		})
	}
	wait.Wait()
}
