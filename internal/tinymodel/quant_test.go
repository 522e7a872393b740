package tinymodel

import (
	"encoding/hex"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/sortes-llm/sortes/internal/gguf"
)

// Two blocks, the second a hundredth of the size and with a zero; the bytes are
// those of quantize_row_q8_0_ref and quantize_row_q4_0_ref in ggml.
func TestStore(t *testing.T) {
	x := make([]float32, 64)
	for i := range x {
		x[i] = float32((i*37)%64-31) / 8
		if i >= 32 {
			x[i] /= 100
		}
	}
	x[40] = 0
	assert.Equal(t, "08288518ad40d467fc9124b94be073089d30c457ec7f14a93cd063f88d20b547dc6f"+
		"000d04952dbe56e77f100039cb62f4851dae46d76f009129ba52e37b0c9e35c75ef0", hex.EncodeToString(store(gguf.Q8_0, x)))
	assert.Equal(t, "00b8cf379d047be248bf269df36ad148ae15"+
		"f69c48bf158cf35ac037a8047be259cf269d", hex.EncodeToString(store(gguf.Q4_0, x)))
	assert.Equal(t, make([]byte, 34), store(gguf.Q8_0, make([]float32, 32)), "a block of zeros")
	assert.Equal(t, "0000803f000000c0", hex.EncodeToString(store(gguf.F32, []float32{1, -2})))
	assert.Equal(t, "003c00c0", hex.EncodeToString(store(gguf.F16, []float32{1, -2})))
	assert.PanicsWithValue(t, "tinymodel: type must be F32, F16, Q8_0 or Q4_0", func() { store(gguf.Q4_K, x) })
}

// What ggml_fp32_to_fp16 gives.
func TestHalf(t *testing.T) {
	for x, want := range map[float32]uint16{
		0: 0, 1: 0x3c00, -2: 0xc000, 0.1: 0x2e66, 65504: 0x7bff, 65519.9: 0x7bff, 65520: 0x7c00,
		1e-8: 0, 6e-8: 1, 3e-5: 0x01f7, 6.1035e-5: 0x0400, 6.1036e-5: 0x0400,
		1.00048828125: 0x3c00, 1.00146484375: 0x3c02, -3.14159: 0xc248,
	} {
		assert.Equal(t, want, half(x), x)
	}
	assert.Equal(t, uint16(0x8000), half(float32(math.Copysign(0, -1))))
}

// The sum of twelve uniform numbers has mean 0, variance 1 and stays within 6.
func TestNormal(t *testing.T) {
	b := &builder{}
	var sum, squares float64
	const n = 100_000
	for range n {
		x := b.normal()
		assert.LessOrEqual(t, math.Abs(x), 6.)
		sum += x
		squares += x * x
	}
	assert.InDelta(t, 0, sum/n, 4/math.Sqrt(n))
	assert.InDelta(t, 1, squares/n, 4*math.Sqrt(2./n))
}
