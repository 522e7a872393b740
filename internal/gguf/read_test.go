package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/gguf"
	"github.com/sortes-llm/sortes/internal/tinymodel"
)

// raw builds a file byte by byte, without the package's writer.
type raw []byte

func (b raw) u8(x uint8) raw   { return append(b, x) }
func (b raw) u32(x uint32) raw { return binary.LittleEndian.AppendUint32(b, x) }
func (b raw) u64(x uint64) raw { return binary.LittleEndian.AppendUint64(b, x) }
func (b raw) str(s string) raw { return append(b.u64(uint64(len(s))), s...) }

// header is the beginning of a file: 24 bytes.
func header(tensors, kvs uint64) raw { return raw("GGUF").u32(3).u64(tensors).u64(kvs) }

func read(b []byte) (*gguf.File, error) {
	return gguf.Read(bytes.NewReader(b), int64(len(b)))
}

// value reads a file with a single entry.
func value(t *testing.T, b raw) gguf.Value {
	t.Helper()
	f, err := read(append(header(0, 1).str("k"), b...))
	require.NoError(t, err)
	require.Len(t, f.KVs, 1)
	assert.Equal(t, int64(24), f.KVs[0].Offset)
	v, ok := f.Lookup("k")
	require.True(t, ok)
	return v
}

func TestScalars(t *testing.T) {
	// Kinds as gguf.h numbers them, bytes little-endian.
	for _, c := range []struct {
		kind  uint32
		bytes []byte
		name  string
		text  string
	}{
		{0, []byte{0xff}, "u8", "255"},
		{1, []byte{0xff}, "i8", "-1"},
		{2, []byte{0x34, 0x12}, "u16", "4660"},
		{3, []byte{0xfe, 0xff}, "i16", "-2"},
		{4, []byte{0, 0, 0, 0x80}, "u32", "2147483648"},
		{5, []byte{0, 0, 0, 0x80}, "i32", "-2147483648"},
		{6, []byte{0, 0, 0xc0, 0x3f}, "f32", "1.5"},
		{7, []byte{2}, "bool", "true"},
		{7, []byte{0}, "bool", "false"},
		{8, raw{}.str("a\x00\xc3\xa9"), "string", `"a\x00é"`},
		{10, bytes.Repeat([]byte{0xff}, 8), "u64", "18446744073709551615"},
		{11, bytes.Repeat([]byte{0xff}, 8), "i64", "-1"},
		{12, []byte{0, 0, 0, 0, 0, 0, 0xf8, 0xbf}, "f64", "-1.5"},
	} {
		v := value(t, append(raw{}.u32(c.kind), c.bytes...))
		assert.Equal(t, c.name, v.Kind.String())
		assert.Equal(t, c.text, v.String())
		assert.Equal(t, 1, v.Len())
	}
}

func TestNumbersOfAnyWidth(t *testing.T) {
	v := value(t, raw{}.u32(11).u64(math.MaxUint64)) // -1 as i64
	_, ok := v.Uint()
	assert.False(t, ok, "a negative number is no unsigned one")
	i, ok := v.Int()
	assert.True(t, ok)
	assert.Equal(t, int64(-1), i)

	v = value(t, raw{}.u32(11).u64(0)) // 0 as i64
	_, ok = v.Uint()
	assert.True(t, ok)

	v = value(t, raw{}.u32(10).u64(1<<63))
	_, ok = v.Int()
	assert.False(t, ok, "2^63 fits no int64")
	u, ok := v.Uint()
	assert.True(t, ok)
	assert.Equal(t, uint64(1<<63), u)

	v = value(t, raw{}.u32(1).u8(0x80)) // -128 as i8
	i, _ = v.Int()
	assert.Equal(t, int64(-128), i)
	_, ok = v.Float()
	assert.False(t, ok)
	_, ok = v.Text()
	assert.False(t, ok)
}

func TestArrays(t *testing.T) {
	v := value(t, raw{}.u32(9).u32(3).u64(3).u8(1).u8(0).u8(0xff).u8(0xff).u8(2).u8(0))
	assert.Equal(t, gguf.KindArray, v.Kind)
	assert.Equal(t, gguf.KindInt16, v.Elem)
	assert.Equal(t, 3, v.Len())
	assert.Equal(t, "[1, -1, 2]", v.String())

	v = value(t, raw{}.u32(9).u32(8).u64(6).str("a").str("").str("b c").str("d").str("e").str("f"))
	assert.Equal(t, `["a", "", "b c", "d", ... 6 in all]`, v.String())
	var all []string
	for e := range v.All() {
		s, ok := e.Text()
		require.True(t, ok)
		all = append(all, s)
	}
	assert.Equal(t, []string{"a", "", "b c", "d", "e", "f"}, all)

	v = value(t, raw{}.u32(9).u32(6).u64(0))
	assert.Equal(t, 0, v.Len())
	assert.Equal(t, "[]", v.String())
}

func TestTensors(t *testing.T) {
	b := header(3, 1).
		str("general.alignment").u32(4).u32(64). // 24+8+17+4+4 = 57
		str("a").u32(1).u64(5).u32(0).u64(0).    // 8+1+4+8+4+8 = 33: 90
		str("bb").u32(3).u64(32).u64(2).u64(3).u32(8).u64(64).
		str("c").u32(0).u32(1).u64(300)
	// bb takes 8+2+4+24+4+8 = 50 and c 8+1+4+4+8 = 25 bytes: 165, the data begin at 192
	require.Len(t, b, 165)
	f, err := read(b)
	require.NoError(t, err)
	assert.Equal(t, uint32(3), f.Version)
	two, err := read(append(raw("GGUF").u32(2), b[8:]...)) // the same layout
	require.NoError(t, err)
	assert.Equal(t, f.Tensors, two.Tensors)
	assert.Equal(t, int64(64), f.Alignment)
	assert.Equal(t, int64(192), f.DataOffset)
	require.Len(t, f.Tensors, 3)
	assert.Equal(t, []int64{5}, f.Tensors[0].Shape)
	assert.Equal(t, int64(20), f.Tensors[0].Size) // 5 times 4 bytes
	assert.Equal(t, "bb", f.Tensors[1].Name)
	assert.Equal(t, []int64{32, 2, 3}, f.Tensors[1].Shape)
	assert.Equal(t, "Q8_0", f.Tensors[1].Type.String())
	assert.Equal(t, int64(192), f.Tensors[1].Elements())
	assert.Equal(t, int64(6*34), f.Tensors[1].Size)
	assert.Equal(t, int64(64), f.Tensors[1].Offset)
	assert.Equal(t, int64(2), f.Tensors[2].Size) // a scalar F16
}

// The sizes that ggml_blck_size and ggml_type_size give in llama.cpp v0.5.0.
func TestTypes(t *testing.T) {
	const ggml = `0 F32 1 4, 1 F16 1 2, 2 Q4_0 32 18, 3 Q4_1 32 20, 6 Q5_0 32 22, 7 Q5_1 32 24, 8 Q8_0 32 34, 9 Q8_1 32 36,
		10 Q2_K 256 84, 11 Q3_K 256 110, 12 Q4_K 256 144, 13 Q5_K 256 176, 14 Q6_K 256 210, 15 Q8_K 256 292,
		16 IQ2_XXS 256 66, 17 IQ2_XS 256 74, 18 IQ3_XXS 256 98, 19 IQ1_S 256 50, 20 IQ4_NL 32 18, 21 IQ3_S 256 110,
		22 IQ2_S 256 82, 23 IQ4_XS 256 136, 24 I8 1 1, 25 I16 1 2, 26 I32 1 4, 27 I64 1 8, 28 F64 1 8, 29 IQ1_M 256 56,
		30 BF16 1 2, 34 TQ1_0 256 54, 35 TQ2_0 256 66, 39 MXFP4 32 17, 40 NVFP4 64 36, 41 Q1_0 128 18, 42 Q2_0 64 18`
	want := map[gguf.Type]string{}
	for line := range strings.SplitSeq(ggml, ",") {
		f := strings.Fields(line)
		want[gguf.Type(atoi(t, f[0]))] = f[1]
		elements, bytes := gguf.Type(atoi(t, f[0])).Block()
		assert.Equal(t, atoi(t, f[2]), elements, f[1])
		assert.Equal(t, atoi(t, f[3]), bytes, f[1])
	}
	for i := range gguf.Type(100) {
		if name, ok := want[i]; ok {
			assert.Equal(t, name, i.String())
			continue
		}
		elements, bytes := i.Block()
		assert.Zero(t, elements+bytes, i)
	}
	assert.Equal(t, "type 4", gguf.Type(4).String())
}

func atoi(t *testing.T, s string) int64 {
	t.Helper()
	var n int64
	for _, c := range s {
		require.True(t, c >= '0' && c <= '9', s)
		n = n*10 + int64(c-'0')
	}
	return n
}

// python.gguf was written by GGUFWriter of the Python package gguf 0.19.0; what
// is expected of it is what that package's GGUFReader says.
func TestPythonFile(t *testing.T) {
	f, err := gguf.ReadFile("testdata/python.gguf")
	require.NoError(t, err)
	var got []string
	for _, kv := range f.KVs {
		got = append(got, kv.Key+" "+kv.Value.Kind.String()+" "+kv.Value.String())
	}
	assert.Equal(t, []string{
		`general.architecture string "llama"`,
		"t.u8 u8 200", "t.i8 i8 -100", "t.u16 u16 60000", "t.i16 i16 -30000", "t.u32 u32 4000000000", "t.i32 i32 -2000000000",
		"t.f32 f32 0.1", "t.true bool true", "t.false bool false", `t.string string "grüße\x00x"`,
		"t.u64 u64 18446744073709551615", "t.i64 i64 -9223372036854775808", "t.f64 f64 0.1",
		`t.strings array ["", "a", "Ġthe", "<0x0A>", ... 5 in all]`, "t.ints array [1, -2, 3]",
		"t.floats array [0.5, -0.25]", "t.bools array [true, false, true]", "general.alignment u32 64",
	}, got)
	type tensor struct {
		name     string
		shape    []int64
		typ      gguf.Type
		size, at int64
	}
	var tensors []tensor
	for _, x := range f.Tensors {
		tensors = append(tensors, tensor{x.Name, x.Shape, x.Type, x.Size, f.DataOffset + x.Offset})
	}
	assert.Equal(t, []tensor{
		{"token_embd.weight", []int64{4, 3}, gguf.F32, 48, 832},
		{"blk.0.attn_norm.weight", []int64{5}, gguf.F16, 10, 896},
		{"blk.0.ffn_down.weight", []int64{32, 2, 2}, gguf.Q8_0, 136, 960},
		{"d2t", []int64{3}, gguf.I32, 12, 1152},
	}, tensors)
}

// Every kind of lie in a header, and where the reader says it is.
func TestReadLies(t *testing.T) {
	key := func() raw { return header(0, 1).str("k") } // 24+9 = 33 bytes
	array := func() raw { return key().u32(9) }
	tensor := func() raw { return header(1, 0).str("t") } // 33 bytes
	for name, c := range map[string]struct {
		file raw
		want string
	}{
		"empty":            {nil, "gguf: byte 0: the magic takes 4 bytes, but the file ends after 0"},
		"three bytes":      {raw("GGU"), "gguf: byte 0: the magic takes 4 bytes, but the file ends after 3"},
		"another file":     {raw("PK\x03\x04"), `gguf: byte 0: not a GGUF file: it begins with "PK\x03\x04", not with "GGUF"`},
		"version 1":        {raw("GGUF").u32(1), "gguf: byte 4: version 1: only versions 2 to 3 can be read"},
		"version 0":        {raw("GGUF").u32(0), "gguf: byte 4: version 0: only versions 2 to 3 can be read"},
		"version 4":        {raw("GGUF").u32(4), "gguf: byte 4: version 4: only versions 2 to 3 can be read"},
		"big-endian":       {raw("GGUF").u32(3 << 24), "gguf: byte 4: the file is big-endian: only little-endian files can be read"},
		"no counts":        {raw("GGUF").u32(3), "gguf: byte 8: the number of tensors takes 8 bytes, but the file ends after 0"},
		"tensors":          {header(1<<63, 0), "gguf: byte 8: the number of tensors is 9223372036854775808: at most 65536 are allowed"},
		"most tensors":     {header(1<<16, 0), `gguf: byte 24: the name of a tensor takes 8 bytes, but the file ends after 0 (tensor 1 of 65536, "")`},
		"entries":          {header(0, 1<<63), "gguf: byte 16: the number of metadata entries is 9223372036854775808: at most 65536 are allowed"},
		"missing entry":    {header(0, 1), `gguf: byte 24: a key takes 8 bytes, but the file ends after 0 (metadata entry 1 of 1, "")`},
		"long key":         {header(0, 1).u64(1 << 63), `gguf: byte 32: a key takes 9223372036854775808 bytes, but the file ends after 0 (metadata entry 1 of 1, "")`},
		"key to the end":   {header(0, 1).u64(2).u8('k'), `gguf: byte 32: a key takes 2 bytes, but the file ends after 1 (metadata entry 1 of 1, "")`},
		"unknown kind":     {key().u32(13), `gguf: byte 33: values of kind 13 cannot be read (metadata entry 1 of 1, "k")`},
		"array of arrays":  {array().u32(9).u64(1), `gguf: byte 37: values of array cannot be read (metadata entry 1 of 1, "k")`},
		"cut value":        {key().u32(10).u32(0), `gguf: byte 37: a value takes 8 bytes, but the file ends after 4 (metadata entry 1 of 1, "k")`},
		"long string":      {key().u32(8).u64(math.MaxUint64), `gguf: byte 45: a string takes 18446744073709551615 bytes, but the file ends after 0 (metadata entry 1 of 1, "k")`},
		"2^63 strings":     {array().u32(8).u64(1 << 63), `gguf: byte 49: an array of 9223372036854775808 values does not fit: the file ends after 0 bytes (metadata entry 1 of 1, "k")`},
		"2^59 strings":     {array().u32(8).u64(1 << 59), `gguf: byte 49: an array of 576460752303423488 values does not fit: the file ends after 0 bytes (metadata entry 1 of 1, "k")`},
		"2^61 u64":         {array().u32(10).u64(1 << 61), `gguf: byte 49: an array of 2305843009213693952 values does not fit: the file ends after 0 bytes (metadata entry 1 of 1, "k")`},
		"two strings, one": {array().u32(8).u64(2).str("aaaaaaaa"), `gguf: byte 65: a string takes 8 bytes, but the file ends after 0 (metadata entry 1 of 1, "k")`},
		"bytes":            {array().u32(0).u64(3).u8(1), `gguf: byte 49: an array of 3 values does not fit: the file ends after 1 bytes (metadata entry 1 of 1, "k")`},
		"five dimensions":  {tensor().u32(5), `gguf: byte 33: a tensor of 5 dimensions: at most 4 are allowed (tensor 1 of 1, "t")`},
		"2^32-1 dimension": {tensor().u32(math.MaxUint32), `gguf: byte 33: a tensor of 4294967295 dimensions: at most 4 are allowed (tensor 1 of 1, "t")`},
		"cut tensor":       {tensor().u32(1).u64(1).u32(0), `gguf: byte 49: the offset of a tensor takes 8 bytes, but the file ends after 0 (tensor 1 of 1, "t")`},
	} {
		f, err := read(c.file)
		require.NotNil(t, f, name)
		assert.EqualError(t, err, c.want, name)
		assert.Equal(t, err, f.Check(), name)
	}
}

// What stands before the fault is returned.
func TestReadAsFarAsPossible(t *testing.T) {
	b := header(2, 2).str("a").u32(4).u32(7).str("b").u32(7).u8(1).
		str("t").u32(1).u64(8).u32(0).u64(0).
		str("u").u32(9)
	f, err := read(b)
	assert.ErrorContains(t, err, `(tensor 2 of 2, "u")`)
	require.Len(t, f.KVs, 2)
	assert.Equal(t, "7", f.KVs[0].Value.String())
	require.Len(t, f.Tensors, 1)
	assert.Equal(t, int64(32), f.Tensors[0].Size)
}

// A file may be cut anywhere: reading says so, and reading nothing but the
// header does not.
func TestCutAnywhere(t *testing.T) {
	model := tinymodel.Llama(tinymodel.Options{})
	whole, err := read(model)
	require.NoError(t, err)
	require.NoError(t, whole.Check())
	for n := range len(model) {
		if n > 100 && n%7 != 0 || int64(n) > whole.DataOffset && n%997 != 0 {
			continue // enough of them
		}
		f, err := read(model[:n])
		assert.Error(t, f.Check(), n)
		last := whole.Tensors[len(whole.Tensors)-1]
		if int64(n) < bytesBefore(model, last.Name)+int64(len(last.Name))+4+16+4+8 {
			assert.Error(t, err, n)
		} else {
			assert.NoError(t, err, n)
			assert.Len(t, f.Tensors, len(whole.Tensors))
		}
		assert.LessOrEqual(t, len(f.KVs), len(whole.KVs))
	}
}

// bytesBefore returns where a name begins in a file.
func bytesBefore(model []byte, name string) int64 { return int64(bytes.LastIndex(model, []byte(name))) }

type brokenReader struct{ err error }

func (r brokenReader) ReadAt([]byte, int64) (int, error) { return 0, r.err }

func TestReaderFails(t *testing.T) {
	disk := errors.New("disk on fire")
	_, err := gguf.Read(brokenReader{disk}, 1000)
	assert.ErrorIs(t, err, disk)
	_, err = gguf.Read(brokenReader{io.EOF}, 1000) // shorter than its size says
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestReadFile(t *testing.T) {
	_, err := gguf.ReadFile("testdata/none.gguf")
	assert.ErrorContains(t, err, "no such file")
	_, err = gguf.ReadFile("testdata")
	assert.EqualError(t, err, "gguf: not a regular file")
}

// A vocabulary of a quarter of a million tokens takes little more memory than
// it has in the file.
func TestLargeVocabulary(t *testing.T) {
	b := header(0, 1).str("tokenizer.ggml.tokens").u32(9).u32(8).u64(1 << 18)
	for range 1 << 18 {
		b = b.str("token")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err := read(b)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	assert.Equal(t, 1<<18, f.KVs[0].Value.Len())
	assert.Equal(t, `["token", "token", "token", "token", ... 262144 in all]`, f.KVs[0].Value.String())
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4*len(b)+1<<20))
	assert.Less(t, after.Mallocs-before.Mallocs, uint64(1000))
}
