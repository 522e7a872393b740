package gguf

import (
	"math"
	"math/bits"
	"strconv"
)

// A Type is the way a tensor's elements are stored, numbered as in ggml.
type Type uint32

const (
	F32     Type = 0
	F16     Type = 1
	Q4_0    Type = 2
	Q4_1    Type = 3
	Q5_0    Type = 6
	Q5_1    Type = 7
	Q8_0    Type = 8
	Q8_1    Type = 9
	Q2_K    Type = 10
	Q3_K    Type = 11
	Q4_K    Type = 12
	Q5_K    Type = 13
	Q6_K    Type = 14
	Q8_K    Type = 15
	IQ2_XXS Type = 16
	IQ2_XS  Type = 17
	IQ3_XXS Type = 18
	IQ1_S   Type = 19
	IQ4_NL  Type = 20
	IQ3_S   Type = 21
	IQ2_S   Type = 22
	IQ4_XS  Type = 23
	I8      Type = 24
	I16     Type = 25
	I32     Type = 26
	I64     Type = 27
	F64     Type = 28
	IQ1_M   Type = 29
	BF16    Type = 30
	TQ1_0   Type = 34
	TQ2_0   Type = 35
	MXFP4   Type = 39
	NVFP4   Type = 40
	Q1_0    Type = 41
	Q2_0    Type = 42
)

// The use that a model can make of a type.
type use int

const (
	unknown use = iota
	weight      // it can be multiplied with
	index       // whole numbers and F64: only in tables that are looked up
	inner       // only ever computed, never stored
)

// types mirrors type_traits in ggml.c. The gaps are types that were withdrawn.
var types = [...]struct {
	name  string
	block int64 // elements stored together
	size  int64 // bytes of a block
	use   use
}{
	F32:     {"F32", 1, 4, weight},
	F16:     {"F16", 1, 2, weight},
	Q4_0:    {"Q4_0", 32, 18, weight},
	Q4_1:    {"Q4_1", 32, 20, weight},
	Q5_0:    {"Q5_0", 32, 22, weight},
	Q5_1:    {"Q5_1", 32, 24, weight},
	Q8_0:    {"Q8_0", 32, 34, weight},
	Q8_1:    {"Q8_1", 32, 36, inner},
	Q2_K:    {"Q2_K", 256, 84, weight},
	Q3_K:    {"Q3_K", 256, 110, weight},
	Q4_K:    {"Q4_K", 256, 144, weight},
	Q5_K:    {"Q5_K", 256, 176, weight},
	Q6_K:    {"Q6_K", 256, 210, weight},
	Q8_K:    {"Q8_K", 256, 292, inner},
	IQ2_XXS: {"IQ2_XXS", 256, 66, weight},
	IQ2_XS:  {"IQ2_XS", 256, 74, weight},
	IQ3_XXS: {"IQ3_XXS", 256, 98, weight},
	IQ1_S:   {"IQ1_S", 256, 50, weight},
	IQ4_NL:  {"IQ4_NL", 32, 18, weight},
	IQ3_S:   {"IQ3_S", 256, 110, weight},
	IQ2_S:   {"IQ2_S", 256, 82, weight},
	IQ4_XS:  {"IQ4_XS", 256, 136, weight},
	I8:      {"I8", 1, 1, index},
	I16:     {"I16", 1, 2, index},
	I32:     {"I32", 1, 4, index},
	I64:     {"I64", 1, 8, index},
	F64:     {"F64", 1, 8, index},
	IQ1_M:   {"IQ1_M", 256, 56, weight},
	BF16:    {"BF16", 1, 2, weight},
	TQ1_0:   {"TQ1_0", 256, 54, weight},
	TQ2_0:   {"TQ2_0", 256, 66, weight},
	MXFP4:   {"MXFP4", 32, 17, weight},
	NVFP4:   {"NVFP4", 64, 36, weight},
	Q1_0:    {"Q1_0", 128, 18, weight},
	Q2_0:    {"Q2_0", 64, 18, weight},
}

func (t Type) use() use {
	if int(t) < len(types) {
		return types[t].use
	}
	return unknown
}

// String returns the name that ggml gives the type, in capitals.
func (t Type) String() string {
	if t.use() == unknown {
		return "type " + strconv.FormatUint(uint64(t), 10)
	}
	return types[t].name
}

// Block returns how many elements are stored together and in how many bytes,
// or zeros for a type that ggml does not have.
func (t Type) Block() (elements, bytes int64) {
	if t.use() == unknown {
		return 0, 0
	}
	return types[t].block, types[t].size
}

// A Tensor describes one tensor of a file.
type Tensor struct {
	Name   string
	Shape  []int64 // the row length first, 0 to 4 dimensions
	Type   Type
	Offset int64 // of its data, counted from File.DataOffset
	Size   int64 // bytes of its data; -1 where type and shape give none

	at int64 // where its description begins in the file
}

// Elements returns the number of elements, or -1 where the shape has a negative
// dimension or the number does not fit an int64.
func (t Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		if n = product(n, d); n < 0 {
			return -1
		}
	}
	return n
}

// size returns the bytes of the data, or -1 for an unknown type, a row that
// does not end with a block, or a number that does not fit an int64.
func (t Tensor) size() int64 {
	block, bytes := t.Type.Block()
	n := t.Elements()
	if block == 0 || n < 0 || len(t.Shape) > 0 && t.Shape[0]%block != 0 || len(t.Shape) == 0 && block > 1 {
		return -1
	}
	return product(n/block, bytes)
}

// product returns a*b, or -1 where a factor is negative or the product does not
// fit an int64.
func product(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if a < 0 || b < 0 || hi != 0 || lo > math.MaxInt64 {
		return -1
	}
	return int64(lo)
}
