package sampler

import "math"

// A Draw names one draw of a text. Its noise is a function of the fields and
// of the token, and of nothing else.
type Draw struct {
	Seed   uint64
	Pos    int    // the position in the sequence of the token to be drawn
	Stream Stream // what the noise is for
}

// A Stream separates draws at one position that must be independent.
type Stream int

// The streams. Their numbers are part of the noise and never change.
const (
	StreamDraw     Stream = 0 // drawing a token; target and drafter share it
	StreamAccept   Stream = 1 // testing whether a drafted token is accepted
	StreamResidual Stream = 2 // drawing a token in place of a rejected one
	StreamXTC      Stream = 3 // whether xtc acts at a position
	StreamDraft    Stream = 4 // drawing a drafted token that a ratio test will judge
)

// Uniform returns a token's uniform number, strictly between 0 and 1.
func (d Draw) Uniform(token int32) float64 { return d.key().uniform(token) }

// Gumbel returns a token's noise, which follows the standard Gumbel
// distribution: the token with the largest score + noise is a draw from the
// softmax of the scores.
func (d Draw) Gumbel(token int32) float64 { return d.key().gumbel(token) }

// The noise of a token is a counter-based generator in two parts. A key is
// derived from seed, position and stream, each followed by a full mix, so that
// neighbouring values give unrelated keys. The token, as the counter, then goes
// through one more mix with half of the key before it and half within.
// Constants and steps are those of the finaliser of SplitMix64 (Steele, Lea,
// Flood 2014; Stafford's variant 13). The golden test freezes all of it.
type key struct{ a, b uint64 }

const (
	golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	mix1   = 0xbf58476d1ce4e5b9
	mix2   = 0x94d049bb133111eb
)

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * mix1
	z = (z ^ z>>27) * mix2
	return z ^ z>>31
}

func (d Draw) key() key {
	h := mix(d.Seed + golden)
	h = mix(h + uint64(d.Pos))
	h = mix(h + uint64(d.Stream))
	return key{a: h, b: mix(h + golden)}
}

// bits returns the 64 random bits of a token.
func (k key) bits(token int32) uint64 { return k.mix(k.a + uint64(token)*golden) }

// mix takes a + token*golden to the bits of the token.
func (k key) mix(z uint64) uint64 {
	z = (z^z>>30)*mix1 ^ k.b
	z = (z ^ z>>27) * mix2
	return z ^ z>>31
}

func (k key) uniform(token int32) float64 { return uniformOf(k.bits(token)) }

func (k key) gumbel(token int32) float64 { return gumbelOf(k.uniform(token)) }

// uniformOf makes an odd multiple of 2^-53 from random bits. Each is exact, and
// 0 and 1 are impossible; adding a half to a 53-bit integer instead would round
// up to 1.
func uniformOf(bits uint64) float64 { return float64(bits>>11|1) * 0x1p-53 }

// gumbelOf takes a uniform number to one of the standard Gumbel distribution.
func gumbelOf(uniform float64) float64 { return -math.Log(-math.Log(uniform)) }
