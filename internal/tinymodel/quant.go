package tinymodel

import (
	"encoding/binary"
	"math"

	"github.com/sortes-llm/sortes/internal/gguf"
)

// store writes values the way a type keeps them, as the reference code of ggml
// does (quantize_row_q8_0_ref, quantize_row_q4_0_ref). It panics on a type that
// Options does not name.
func store(t gguf.Type, values []float32) []byte {
	var out []byte
	switch t {
	case gguf.F32:
		for _, x := range values {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
		}
	case gguf.F16:
		for _, x := range values {
			out = binary.LittleEndian.AppendUint16(out, half(x))
		}
	case gguf.Q8_0:
		for i := 0; i < len(values); i += 32 {
			out = appendQ8(out, values[i:i+32])
		}
	case gguf.Q4_0:
		for i := 0; i < len(values); i += 32 {
			out = appendQ4(out, values[i:i+32])
		}
	default:
		panic("tinymodel: type must be F32, F16, Q8_0 or Q4_0")
	}
	return out
}

// appendQ8 appends a block of Q8_0: a scale and 32 signed bytes.
func appendQ8(out []byte, block []float32) []byte {
	scale := extreme(block) / 127
	if scale < 0 {
		scale = -scale
	}
	out = binary.LittleEndian.AppendUint16(out, half(scale))
	for _, x := range block {
		out = append(out, byte(int8(math.Round(over(x, scale)))))
	}
	return out
}

// appendQ4 appends a block of Q4_0: a scale and 16 bytes, each with an element
// of the first half in its low and one of the second in its high four bits,
// counted from -8.
func appendQ4(out []byte, block []float32) []byte {
	scale := extreme(block) / -8
	out = binary.LittleEndian.AppendUint16(out, half(scale))
	for i := range 16 {
		out = append(out, nibble(over(block[i], scale))|nibble(over(block[i+16], scale))<<4)
	}
	return out
}

func nibble(x float64) byte { return byte(min(15, int(x+8.5))) }

// extreme returns the element with the largest absolute value.
func extreme(block []float32) float32 {
	var m float32
	for _, x := range block {
		if math.Abs(float64(x)) > math.Abs(float64(m)) {
			m = x
		}
	}
	return m
}

func over(x, scale float32) float64 {
	if scale == 0 {
		return 0
	}
	return float64(x) / float64(scale)
}

// half converts to an IEEE 754 half, rounding to nearest, ties to even. What is
// too large becomes infinite.
func half(x float32) uint16 {
	bits := math.Float32bits(x)
	sign := uint16(bits >> 16 & 0x8000)
	abs := math.Abs(float64(x))
	switch {
	case abs >= 65520:
		return sign | 0x7c00
	case abs < 1.0/(1<<14): // subnormal: multiples of 2^-24
		return sign | uint16(math.RoundToEven(abs*(1<<24)))
	}
	frac, exp := math.Frexp(abs) // abs = frac * 2^exp, frac in [0.5, 1)
	mantissa := int(math.RoundToEven(frac * (1 << 11)))
	return sign | uint16((exp+14-1)<<10+mantissa)
}
