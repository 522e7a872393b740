package gguf_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/gguf"
)

func TestWrite(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, gguf.Write(&b, []gguf.KV{
		gguf.NewKV("general.alignment", uint32(16)),
		gguf.NewKV("s", []string{"ab", ""}),
		gguf.NewKV("b", []bool{true, false}),
	}, []gguf.Data{
		{Name: "x", Shape: []int64{5}, Type: gguf.F16, Bytes: []byte("0123456789")},
		{Name: "y", Type: gguf.F32, Bytes: []byte("ABCD")},
	}))
	want := header(2, 3).
		str("general.alignment").u32(4).u32(16).
		str("s").u32(9).u32(8).u64(2).str("ab").str("").
		str("b").u32(9).u32(7).u64(2).u8(1).u8(0).
		str("x").u32(1).u64(5).u32(1).u64(0).
		str("y").u32(0).u32(0).u64(16)
	// 24 + 33 + 43 + 27 + 33 + 25 = 185 bytes, 7 to the next multiple of 16
	require.Len(t, want, 185)
	want = append(want, "\x00\x00\x00\x00\x00\x00\x00"+
		"0123456789\x00\x00\x00\x00\x00\x00"+
		"ABCD\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	assert.Equal(t, []byte(want), b.Bytes())
}

func TestWriteFails(t *testing.T) {
	var b bytes.Buffer
	err := gguf.Write(&b, nil, []gguf.Data{{Name: "x", Shape: []int64{33}, Type: gguf.Q8_0, Bytes: make([]byte, 34)}})
	assert.EqualError(t, err, `gguf: tensor "x" has 34 bytes of data, its shape and type take -1`)
	err = gguf.Write(&b, nil, []gguf.Data{{Name: "x", Shape: []int64{64}, Type: gguf.Q8_0, Bytes: make([]byte, 34)}})
	assert.EqualError(t, err, `gguf: tensor "x" has 34 bytes of data, its shape and type take 68`)
	full := errors.New("disk full")
	for n := range 4 { // header, data and padding are written separately
		w := &failAfter{n, full}
		err = gguf.Write(w, nil, []gguf.Data{{Name: "x", Shape: []int64{1}, Bytes: make([]byte, 4)}})
		if n < 3 {
			assert.ErrorIs(t, err, full, n)
		} else {
			assert.NoError(t, err)
		}
	}
	assert.PanicsWithValue(t, "gguf: a value of this type has no place in the metadata", func() { gguf.NewKV("k", 1) })
	assert.PanicsWithValue(t, "gguf: a value of this type has no place in the metadata", func() { gguf.NewKV("k", [][]uint8{}) })
}

type failAfter struct {
	n   int
	err error
}

func (w *failAfter) Write(p []byte) (int, error) {
	if w.n--; w.n < 0 {
		return 0, w.err
	}
	return len(p), nil
}
