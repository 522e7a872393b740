package llama

// #include "shim.h"
// #include <stdlib.h>
import "C"

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/sortes-llm/sortes/internal/gguf"
)

// LoadMode says how weights come into memory.
type LoadMode int

// The load modes of llama.cpp (enum llama_load_mode).
const (
	LoadAuto      LoadMode = iota // mmap where the devices allow it
	LoadRead                      // read into allocated memory
	LoadMmap                      // map the file
	LoadMlock                     // read, and keep from being swapped out
	LoadMmapMlock                 // map, and keep from being swapped out
	LoadDirectIO                  // read past the page cache where possible
)

// SplitMode says how a model is laid over several GPUs.
type SplitMode int

// The split modes of llama.cpp (enum llama_split_mode).
const (
	SplitLayers  SplitMode = iota // layers and KV cache over the GPUs
	SplitNone                     // one GPU, ModelOptions.MainGPU
	SplitRows                     // rows of matrices
	SplitTensors                  // tensor parallel
)

// ModelOptions are the optional arguments of Open. The zero value is
// llama.cpp's default: mmap where possible, everything on the GPUs there are.
type ModelOptions struct {
	CPUOnly     bool           // keep every layer on the CPU
	GPULayers   int            // layers on the GPUs, at least 1; 0 means all
	Devices     []string       // names as in Devices; empty means all
	SplitMode   SplitMode      // over several GPUs
	TensorSplit []float32      // share of each GPU, in order; empty means by free memory
	MainGPU     int            // index of the GPU that SplitNone uses
	LoadMode    LoadMode       // how weights come into memory
	VocabOnly   bool           // load the vocabulary and no weights: no sessions
	CheckData   bool           // validate the values of every tensor (slow)
	NoRepack    bool           // keep the weights as they are in the file: less memory, slower on a CPU
	Overrides   map[string]any // metadata to replace: int64, float64, bool or string (at most 127 bytes)

	// Progress is called with the part that is loaded, 0 to 1, about twenty
	// times a second, from a goroutine of its own that ends before Open does.
	Progress func(part float32)
}

// A Model is a loaded GGUF file. It may be shared by any number of sessions
// and goroutines. It must be closed, after its sessions and adapters.
type Model struct {
	handle *C.struct_llama_model
	files  []string
	vocab  *Vocab

	vocabOnly        bool
	learnedPositions bool // there are none beyond Facts.TrainContext: looking one up is an assertion on a thread of ggml

	mu       sync.Mutex
	children int // open sessions and adapters
}

// Open loads the model at path, which may be the first file of a split one
// (name-00001-of-00003.gguf); the others are found by their names. The headers
// are validated before llama.cpp sees them. A done ctx ends the loading; the
// error then wraps context.Cause(ctx).
func Open(ctx context.Context, path string, o ModelOptions) (*Model, error) {
	if err := checkCPU(); err != nil {
		return nil, err
	}
	initialise()
	params, free, err := o.params()
	if err != nil {
		return nil, err
	}
	defer free()
	files, learned, err := checkFiles(path, o.Overrides)
	if err != nil {
		return nil, err
	}

	paths := make([]*C.char, len(files))
	for i, name := range files {
		p, free := cString(name)
		defer free()
		paths[i] = p
	}
	pathArray := cArray(paths)
	defer C.free(unsafe.Pointer(pathArray))

	flag := (*C.srt_flag)(C.calloc(1, C.sizeof_srt_flag))
	defer C.free(unsafe.Pointer(flag))
	defer watch(ctx, flag)()
	defer report(flag, o.Progress)()

	var handle *C.struct_llama_model
	err = withFault("load model "+path, func(f *C.srt_fault) bool {
		handle = C.srt_model_load(pathArray, C.size_t(len(files)), params, flag, f)
		return handle == nil
	})
	if ctx.Err() != nil {
		if handle != nil {
			_ = withFault("", func(f *C.srt_fault) bool { C.srt_model_free(handle, f); return false })
		}
		return nil, fmt.Errorf("llama: load model %s: %w", path, context.Cause(ctx))
	}
	if err != nil {
		return nil, err
	}
	live.Add(1)
	m := &Model{handle: handle, files: files, learnedPositions: learned, vocabOnly: o.VocabOnly}
	m.vocab = newVocab(m)
	return m, nil
}

// checkFiles finds all files of a model and validates what would bring
// llama.cpp down. learned says whether the model looks positions up in a table.
func checkFiles(path string, overrides map[string]any) (files []string, learned bool, err error) {
	if path == "" {
		return nil, false, errors.New("llama: load model: the path is empty")
	}
	files, err = gguf.Splits(path)
	if err != nil {
		return nil, false, fmt.Errorf("llama: load model %s: %w", path, err)
	}
	for i, name := range files {
		f, err := checkFile(name)
		if err == nil && i == 0 && len(overrides) > 0 {
			f.KVs = overridden(f.KVs, overrides)
			err = f.Check()
		}
		if err != nil {
			return nil, false, fmt.Errorf("llama: load model %s: %w", name, err)
		}
		learned = learned || slices.ContainsFunc(f.Tensors, func(t gguf.Tensor) bool { return t.Name == "position_embd.weight" })
	}
	return files, learned, nil
}

// overridden returns the metadata as llama.cpp sees it with these overrides,
// which ModelOptions.params has found to be of the four types.
func overridden(kvs []gguf.KV, overrides map[string]any) []gguf.KV {
	for key, value := range overrides {
		switch v := value.(type) {
		case int64:
			value = uint32(v)
		case float64:
			value = float32(v)
		}
		kvs = slices.DeleteFunc(kvs, func(kv gguf.KV) bool { return kv.Key == key })
		kvs = append(kvs, gguf.NewKV(key, value))
	}
	return kvs
}

func checkFile(name string) (*gguf.File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, errors.Unwrap(err) // the path stands in the caller's message
	}
	if info.IsDir() {
		return nil, errors.New("is a directory, not a GGUF file")
	}
	f, err := gguf.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return f, f.Check()
}

// watch lets a done ctx set flag until the returned function is called. That
// waits for a setter that has started, so that flag may be freed or reused.
func watch(ctx context.Context, flag *C.srt_flag) (stop func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	set := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		C.srt_flag_set(flag)
		close(set)
	})
	return func() {
		if !unhook() {
			<-set
		}
	}
}

// report calls progress with what flag says until the returned function is called.
func report(flag *C.srt_flag, progress func(float32)) (stop func()) {
	if progress == nil {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				progress(float32(C.srt_flag_progress(flag)))
			case <-quit:
				progress(float32(C.srt_flag_progress(flag)))
				return
			}
		}
	}()
	return func() { close(quit); <-done }
}

// params makes llama.cpp's form of the options, and what frees it.
func (o ModelOptions) params() (C.struct_llama_model_params, func(), error) {
	p := C.llama_model_default_params()
	var owned []unsafe.Pointer
	free := func() {
		for _, m := range owned {
			C.free(m)
		}
	}
	fail := func(format string, args ...any) (C.struct_llama_model_params, func(), error) {
		free()
		return p, nil, fmt.Errorf("llama: "+format, args...)
	}

	switch {
	case o.GPULayers < 0:
		return fail("GPU layers %d: want 1 or more, or 0 for all", o.GPULayers)
	case o.CPUOnly && o.GPULayers > 0:
		return fail("GPU layers %d: not together with CPU only", o.GPULayers)
	case o.CPUOnly:
		p.n_gpu_layers = 0
	case o.GPULayers > 0:
		p.n_gpu_layers = C.int32_t(min(o.GPULayers, 1<<20))
	}
	if o.LoadMode < LoadAuto || o.LoadMode > LoadDirectIO {
		return fail("load mode %d: want one of the LoadMode constants", o.LoadMode)
	}
	p.load_mode = C.enum_llama_load_mode(o.LoadMode) - 1 // ours starts at AUTO, which is -1 there
	splits := map[SplitMode]C.enum_llama_split_mode{
		SplitLayers: C.LLAMA_SPLIT_MODE_LAYER, SplitNone: C.LLAMA_SPLIT_MODE_NONE,
		SplitRows: C.LLAMA_SPLIT_MODE_ROW, SplitTensors: C.LLAMA_SPLIT_MODE_TENSOR,
	}
	mode, ok := splits[o.SplitMode]
	if !ok {
		return fail("split mode %d: want one of the SplitMode constants", o.SplitMode)
	}
	p.split_mode = mode
	if o.MainGPU < 0 || o.MainGPU >= int(C.llama_max_devices()) {
		return fail("main GPU %d: want 0 to %d", o.MainGPU, int(C.llama_max_devices())-1)
	}
	p.main_gpu = C.int32_t(o.MainGPU)
	p.vocab_only = C.bool(o.VocabOnly)
	p.check_tensors = C.bool(o.CheckData)
	p.use_extra_bufts = C.bool(!o.NoRepack)

	if n := len(o.TensorSplit); n > 0 {
		most := int(C.llama_max_devices())
		if n > most {
			return fail("tensor split with %d parts: want at most %d", n, most)
		}
		split := make([]C.float, most)
		for i, part := range o.TensorSplit {
			if !(part >= 0 && part <= 1e30) {
				return fail("tensor split part %v: want 0 or more", part)
			}
			split[i] = C.float(part)
		}
		p.tensor_split = cArray(split)
		owned = append(owned, unsafe.Pointer(p.tensor_split))
	}
	if len(o.Devices) > 0 {
		devices := make([]C.ggml_backend_dev_t, 0, len(o.Devices)+1)
		for _, name := range o.Devices {
			dev := deviceByName(name)
			if dev == nil {
				return fail("device %q: want one of %s", name, strings.Join(deviceNames(), ", "))
			}
			devices = append(devices, dev)
		}
		p.devices = cArray(append(devices, nil))
		owned = append(owned, unsafe.Pointer(p.devices))
	}
	if len(o.Overrides) > 0 {
		overrides := make([]C.struct_llama_model_kv_override, 0, len(o.Overrides)+1)
		for key, value := range o.Overrides {
			kv, err := override(key, value)
			if err != nil {
				return fail("%w", err)
			}
			overrides = append(overrides, kv)
		}
		p.kv_overrides = cArray(append(overrides, C.struct_llama_model_kv_override{})) // an empty key ends the list
		owned = append(owned, unsafe.Pointer(p.kv_overrides))
	}
	return p, free, nil
}

func override(key string, value any) (C.struct_llama_model_kv_override, error) {
	var kv C.struct_llama_model_kv_override
	if len(key) == 0 || len(key) >= len(kv.key) || strings.ContainsRune(key, 0) {
		return kv, fmt.Errorf("override of the key %q: want 1 to %d bytes", key, len(kv.key)-1)
	}
	for i := range len(key) {
		kv.key[i] = C.char(key[i])
	}
	// The value is a union of an int64, a double, a bool and a char[128].
	union := (*[128]byte)(unsafe.Pointer(&kv.anon0))
	switch v := value.(type) {
	case int64:
		kv.tag = C.LLAMA_KV_OVERRIDE_TYPE_INT
		*(*int64)(unsafe.Pointer(union)) = v
	case float64:
		kv.tag = C.LLAMA_KV_OVERRIDE_TYPE_FLOAT
		*(*float64)(unsafe.Pointer(union)) = v
	case bool:
		kv.tag = C.LLAMA_KV_OVERRIDE_TYPE_BOOL
		*(*bool)(unsafe.Pointer(union)) = v
	case string:
		kv.tag = C.LLAMA_KV_OVERRIDE_TYPE_STR
		if len(v) >= len(union) || strings.ContainsRune(v, 0) {
			return kv, fmt.Errorf("override of %s with %d bytes of text: want at most %d, none of them zero", key, len(v), len(union)-1)
		}
		copy(union[:], v)
	default:
		return kv, fmt.Errorf("override of %s with a %T: want an int64, float64, bool or string", key, value)
	}
	return kv, nil
}

// cArray copies s to memory of C, which the caller frees.
func cArray[T any](s []T) *T {
	p := C.malloc(C.size_t(max(1, uintptr(len(s))*unsafe.Sizeof(*new(T)))))
	copy(unsafe.Slice((*T)(p), len(s)), s)
	return (*T)(p)
}

func (m *Model) ptr() *C.struct_llama_model {
	if m.handle == nil {
		panic("llama: model is closed")
	}
	return m.handle
}

// retain and release count the sessions and adapters, which need the model.
func (m *Model) retain()  { m.mu.Lock(); defer m.mu.Unlock(); m.ptr(); m.children++ }
func (m *Model) release() { m.mu.Lock(); defer m.mu.Unlock(); m.children-- }

// Close frees the model. It panics while a session or an adapter of it is
// open. A second Close does nothing.
func (m *Model) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.handle == nil {
		return
	}
	if m.children > 0 {
		panic("llama: model closed before its sessions and adapters")
	}
	_ = withFault("free model", func(f *C.srt_fault) bool { C.srt_model_free(m.handle, f); return false })
	m.handle = nil
	live.Add(-1)
}

// Vocab returns the vocabulary, which lives as long as the model.
func (m *Model) Vocab() *Vocab { return m.vocab }

// Files returns the files the model was loaded from, one unless it is split.
func (m *Model) Files() []string { return m.files }

// Facts are the fixed properties of a model.
type Facts struct {
	Description   string // "llama 135M Q4_1"
	Architecture  string // general.architecture
	Parameters    uint64 // weights
	Bytes         uint64 // of all tensors
	TrainContext  int    // tokens it was trained on
	Embedding     int    // width of the hidden state
	Layers        int
	Heads         int
	KVHeads       int
	KeySize       int  // width of the keys of a head
	SlidingWindow int  // tokens, 0 where there is none
	Recurrent     bool // state instead of a KV cache (Mamba, RWKV)
	Hybrid        bool // both
	Encoder       bool // encoder-decoder: not supported by Session
	Decoder       bool // can generate
	Diffusion     bool
	ChatTemplate  string // Jinja, empty where the file has none
}

// Facts returns the fixed properties of the model. With VocabOnly the sizes are
// zero.
func (m *Model) Facts() Facts {
	p := m.ptr()
	arch, _ := m.Meta("general.architecture")
	facts := Facts{
		Description:   readString(func(buf *C.char, n C.size_t) C.int32_t { return C.llama_model_desc(p, buf, n) }),
		Architecture:  arch,
		Parameters:    uint64(C.llama_model_n_params(p)),
		Bytes:         uint64(C.llama_model_size(p)),
		TrainContext:  int(C.llama_model_n_ctx_train(p)),
		Embedding:     int(C.llama_model_n_embd(p)),
		Layers:        int(C.llama_model_n_layer(p)),
		SlidingWindow: int(C.llama_model_n_swa(p)),
		Recurrent:     bool(C.llama_model_is_recurrent(p)),
		Hybrid:        bool(C.llama_model_is_hybrid(p)),
		Encoder:       bool(C.llama_model_has_encoder(p)),
		Decoder:       bool(C.llama_model_has_decoder(p)),
		Diffusion:     bool(C.llama_model_is_diffusion(p)),
		ChatTemplate:  C.GoString(C.llama_model_chat_template(p, nil)),
	}
	if facts.Layers > 0 { // none with the vocabulary only, and llama.cpp asserts
		facts.Heads, facts.KVHeads = int(C.llama_model_n_head(p)), int(C.llama_model_n_head_kv(p))
		facts.KeySize = m.headSize("key_length", facts)
	}
	return facts
}

// Meta returns a scalar of the metadata as text, and whether it is there.
// Arrays are given in an abridged form; package internal/gguf reads them whole.
func (m *Model) Meta(key string) (string, bool) {
	if strings.ContainsRune(key, 0) {
		return "", false
	}
	k, free := cString(key)
	defer free()
	p := m.ptr()
	if C.llama_model_meta_val_str(p, k, nil, 0) < 0 {
		return "", false
	}
	return readString(func(buf *C.char, n C.size_t) C.int32_t { return C.llama_model_meta_val_str(p, k, buf, n) }), true
}

// A KeyValue is one entry of a model's metadata.
type KeyValue struct{ Key, Value string }

// Metadata returns all scalars of the metadata, in the order of llama.cpp.
func (m *Model) Metadata() []KeyValue {
	p := m.ptr()
	all := make([]KeyValue, int(C.llama_model_meta_count(p)))
	for i := range all {
		n := C.int32_t(i)
		all[i].Key = readString(func(buf *C.char, size C.size_t) C.int32_t { return C.llama_model_meta_key_by_index(p, n, buf, size) })
		all[i].Value = readString(func(buf *C.char, size C.size_t) C.int32_t {
			return C.llama_model_meta_val_str_by_index(p, n, buf, size)
		})
	}
	return all
}

// readString calls a snprintf-like function as often as its answer needs.
func readString(read func(buf *C.char, size C.size_t) C.int32_t) string {
	buf := make([]byte, 256)
	for {
		n := int(read((*C.char)(unsafe.Pointer(&buf[0])), C.size_t(len(buf))))
		if n < 0 {
			return ""
		}
		if n < len(buf) {
			return string(buf[:n])
		}
		buf = make([]byte, n+1)
	}
}

// fingerprint tells this model's files from others by their sizes and samples
// of their bytes: enough to refuse a saved state that another model wrote.
func (m *Model) fingerprint() ([sha256.Size]byte, error) {
	return fingerprintFiles(m.files)
}

func fingerprintFiles(files []string) (sum [sha256.Size]byte, err error) {
	const samples, sampleSize = 64, 4096
	h := sha256.New()
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return sum, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return sum, err
		}
		size := info.Size()
		_ = binary.Write(h, binary.LittleEndian, size)
		for i := range int64(samples) {
			at := max(0, size-sampleSize) / (samples - 1) * i
			if _, err := io.Copy(h, io.NewSectionReader(f, at, sampleSize)); err != nil {
				return sum, err
			}
		}
	}
	h.Sum(sum[:0])
	return sum, nil
}
