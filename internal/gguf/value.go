package gguf

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
)

// A Kind is the type of a metadata value, as the file numbers it.
type Kind uint32

const (
	KindUint8 Kind = iota
	KindInt8
	KindUint16
	KindInt16
	KindUint32
	KindInt32
	KindFloat32
	KindBool
	KindString
	KindArray
	KindUint64
	KindInt64
	KindFloat64
)

var kinds = [...]struct {
	name string
	size int // bytes of one value; 0 where it varies
}{
	KindUint8:   {"u8", 1},
	KindInt8:    {"i8", 1},
	KindUint16:  {"u16", 2},
	KindInt16:   {"i16", 2},
	KindUint32:  {"u32", 4},
	KindInt32:   {"i32", 4},
	KindFloat32: {"f32", 4},
	KindBool:    {"bool", 1},
	KindString:  {"string", 0},
	KindArray:   {"array", 0},
	KindUint64:  {"u64", 8},
	KindInt64:   {"i64", 8},
	KindFloat64: {"f64", 8},
}

// String returns a short name: u8, i32, string, array.
func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k].name
	}
	return "kind " + strconv.FormatUint(uint64(k), 10)
}

// size returns the bytes of one value, and whether every value has that size.
func (k Kind) size() (int, bool) {
	if int(k) < len(kinds) && kinds[k].size > 0 {
		return kinds[k].size, true
	}
	return 0, false
}

// A KV is one entry of a file's metadata.
type KV struct {
	Key    string
	Value  Value
	Offset int64 // where the entry begins in the file
}

// A Value is one metadata value. Arrays are kept as the file has them, and
// decoded when they are looked at.
type Value struct {
	Kind Kind // KindArray for an array
	Elem Kind // the kind of the array's elements; Kind itself otherwise
	n    int
	data []byte // little-endian; strings each preceded by their length
}

// Len returns the number of elements of an array, and 1 for anything else.
func (v Value) Len() int { return v.n }

// All yields the elements of an array in order, or the value itself.
func (v Value) All() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if v.Kind != KindArray {
			yield(v)
			return
		}
		rest := v.data
		for range v.n {
			size, fixed := v.Elem.size()
			if !fixed {
				size = 8 + int(binary.LittleEndian.Uint64(rest))
			}
			if !yield(Value{Kind: v.Elem, Elem: v.Elem, n: 1, data: rest[:size]}) {
				return
			}
			rest = rest[size:]
		}
	}
}

// Text returns a string value.
func (v Value) Text() (string, bool) {
	if v.Kind != KindString {
		return "", false
	}
	return string(v.data[8:]), true
}

// Bool returns a boolean value. Any byte but zero is true.
func (v Value) Bool() (value, ok bool) {
	if v.Kind != KindBool {
		return false, false
	}
	return v.data[0] != 0, true
}

// Uint returns an integer value of any width that is not negative.
func (v Value) Uint() (uint64, bool) {
	switch v.Kind {
	case KindUint8:
		return uint64(v.data[0]), true
	case KindUint16:
		return uint64(binary.LittleEndian.Uint16(v.data)), true
	case KindUint32:
		return uint64(binary.LittleEndian.Uint32(v.data)), true
	case KindUint64:
		return binary.LittleEndian.Uint64(v.data), true
	}
	i, ok := v.Int()
	return uint64(i), ok && i >= 0
}

// Int returns an integer value of any width that fits an int64.
func (v Value) Int() (int64, bool) {
	switch v.Kind {
	case KindInt8:
		return int64(int8(v.data[0])), true
	case KindInt16:
		return int64(int16(binary.LittleEndian.Uint16(v.data))), true
	case KindInt32:
		return int64(int32(binary.LittleEndian.Uint32(v.data))), true
	case KindInt64:
		return int64(binary.LittleEndian.Uint64(v.data)), true
	case KindUint8, KindUint16, KindUint32, KindUint64:
		u, _ := v.Uint()
		return int64(u), u <= math.MaxInt64
	}
	return 0, false
}

// Float returns a floating-point value.
func (v Value) Float() (float64, bool) {
	switch v.Kind {
	case KindFloat32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(v.data))), true
	case KindFloat64:
		return math.Float64frombits(binary.LittleEndian.Uint64(v.data)), true
	}
	return 0, false
}

// shown is how many elements of an array String writes.
const shown = 4

// String writes the value for a reader: numbers and booleans plainly, strings
// quoted, of arrays the first few elements and the count.
func (v Value) String() string {
	if v.Kind != KindArray {
		return v.scalar()
	}
	var b strings.Builder
	b.WriteByte('[')
	i := 0
	for e := range v.All() {
		if i > 0 {
			b.WriteString(", ")
		}
		if i == shown {
			fmt.Fprintf(&b, "... %d in all", v.n)
			break
		}
		b.WriteString(e.scalar())
		i++
	}
	b.WriteByte(']')
	return b.String()
}

func (v Value) scalar() string {
	if s, ok := v.Text(); ok {
		return strconv.Quote(s)
	}
	if b, ok := v.Bool(); ok {
		return strconv.FormatBool(b)
	}
	if f, ok := v.Float(); ok {
		bits := 64
		if v.Kind == KindFloat32 {
			bits = 32
		}
		return strconv.FormatFloat(f, 'g', -1, bits)
	}
	if i, ok := v.Int(); ok {
		return strconv.FormatInt(i, 10)
	}
	u, _ := v.Uint()
	return strconv.FormatUint(u, 10)
}
