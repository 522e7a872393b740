package gguf_test

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sortes-llm/sortes/internal/gguf"
	"github.com/sortes-llm/sortes/internal/tinymodel"
)

// FuzzRead reads and checks anything. Whatever the bytes claim, nothing
// panics, memory stays proportional to the file, and what was read can be
// looked at and written again.
func FuzzRead(f *testing.F) {
	python, err := os.ReadFile("testdata/python.gguf")
	if err != nil {
		f.Fatal(err)
	}
	o := tinymodel.Options{Type: gguf.Q4_0, Layers: 1}
	for _, m := range [][]byte{python, small(f, tinymodel.Llama(o)), small(f, tinymodel.Recurrent(o)), small(f, tinymodel.Adapter(o))} {
		f.Add(m)
		f.Add(m[:len(m)/2])
	}
	f.Add([]byte(header(1<<63, 1<<63)))
	f.Add([]byte(header(0, 1).str("k").u32(9).u32(8).u64(1 << 63)))
	f.Add([]byte(header(1, 0).str("t").u32(4).u64(1 << 62).u64(2).u64(2).u64(2).u32(30).u64(0)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		file, err := read(b)
		runtime.ReadMemStats(&after)
		if got, most := after.TotalAlloc-before.TotalAlloc, uint64(64*len(b)+1<<20); got > most {
			t.Errorf("reading %d bytes took %d bytes of memory", len(b), got)
		}
		checked := file.Check()
		if err != nil && checked != err {
			t.Errorf("read: %v, check: %v", err, checked)
		}
		for _, kv := range file.KVs {
			n := 0
			for e := range kv.Value.All() {
				_ = e.String()
				n++
			}
			if n != kv.Value.Len() {
				t.Errorf("%q has %d values and yields %d", kv.Key, kv.Value.Len(), n)
			}
			_ = kv.Value.String()
		}
		for _, x := range file.Tensors {
			if checked == nil && (x.Size <= 0 || file.DataOffset+x.Offset+x.Size > file.Size) {
				t.Errorf("checked, but %q is not in the file", x.Name)
			}
			_ = x.Type.String()
		}
		if file.Alignment > 1<<16 {
			return // Write would fill as much with zeros
		}
		var again bytes.Buffer
		if err := gguf.Write(&again, file.KVs, nil); err != nil {
			t.Fatal(err)
		}
		f2, err := read(again.Bytes())
		if err != nil || len(f2.KVs) != len(file.KVs) {
			t.Fatalf("written again: %v", err)
		}
		for i := range f2.KVs {
			if f2.KVs[i].Key != file.KVs[i].Key || f2.KVs[i].Value.String() != file.KVs[i].Value.String() {
				t.Errorf("%q became %q", file.KVs[i].Key, f2.KVs[i].Key)
			}
		}
	})
}

// small takes away most of a model: the fuzzer works better on short inputs.
func small(f *testing.F, model []byte) []byte {
	file, err := read(model)
	if err != nil {
		f.Fatal(err)
	}
	kvs := slices.DeleteFunc(file.KVs, func(kv gguf.KV) bool { return strings.HasPrefix(kv.Key, "tokenizer.") })
	kvs = append(kvs,
		gguf.NewKV("tokenizer.ggml.model", "rwkv"), gguf.NewKV("tokenizer.ggml.tokens", []string{"a", `\n`, ""}), gguf.NewKV("split.no", uint16(0)),
		gguf.NewKV("u8", []uint8{1}), gguf.NewKV("i8", []int8{1}), gguf.NewKV("u16", []uint16{1}), gguf.NewKV("i16", []int16{1}),
		gguf.NewKV("u64", []uint64{1}), gguf.NewKV("i64", []int64{1}), gguf.NewKV("f64", []float64{1}), gguf.NewKV("bool", []bool{true}))
	tensors := []gguf.Data{
		{Name: "a.norm", Shape: []int64{4}, Type: gguf.F32, Bytes: make([]byte, 16)},
		{Name: "b.weight", Shape: []int64{32, 2}, Type: gguf.Q8_0, Bytes: make([]byte, 68)},
	}
	var b bytes.Buffer
	if err := gguf.Write(&b, kvs, tensors); err != nil {
		f.Fatal(err)
	}
	return b.Bytes()
}
