package sampler

import "math"

// The loops over a whole row. Each is a function of its arguments alone, and on
// amd64 has twins in assembly, for AVX2 and AVX-512 (kernels_amd64.s, written
// by scripts/kernels). These give the same results to the last bit: what is
// drawn must not depend on the machine. For the same reason a product is
// converted before it is added to, which keeps compilers from fusing the two,
// and where fusing is wanted it is written out.

//go:generate go -C ../scripts/kernels run . -out ../../sampler/kernels_amd64.s -stubs ../../sampler/kernels_amd64.go -pkg sampler

// A kernelSet is a set of instructions that the loops may use.
type kernelSet int

const (
	kernelsGo kernelSet = iota
	kernelsAVX2
	kernelsAVX512
)

// kernels is what this machine has.
var kernels = bestKernels()

// Kernels names what the loops over a row of logits are made of on this
// machine: "Go", "AVX2" or "AVX-512". Results do not depend on it.
func Kernels() string { return [...]string{"Go", "AVX2", "AVX-512"}[kernels] }

// nextAbove returns the first index from i on whose logit is greater than
// floor or NaN, or len(row).
func nextAbove(row []float32, i int, floor float32) int {
	i = skipBelow(row, i, floor)
	for ; i+8 <= len(row); i += 8 {
		b := (*[8]float32)(row[i:])
		switch {
		case !(b[0] <= floor):
			return i
		case !(b[1] <= floor):
			return i + 1
		case !(b[2] <= floor):
			return i + 2
		case !(b[3] <= floor):
			return i + 3
		case !(b[4] <= floor):
			return i + 4
		case !(b[5] <= floor):
			return i + 5
		case !(b[6] <= floor):
			return i + 6
		case !(b[7] <= floor):
			return i + 7
		}
	}
	for ; i < len(row); i++ {
		if !(row[i] <= floor) {
			return i
		}
	}
	return i
}

// collectBetween appends to dst the indices from i on whose logit is greater
// than floor and not greater than ceiling, or NaN, as many as there is room
// for. It returns dst and the index to go on from, which is len(row) at the end.
func collectBetween(dst []int32, row []float32, i int, floor, ceiling float32) ([]int32, int) {
	n, i := collectBlocks(dst[len(dst):cap(dst)], row, i, floor, ceiling)
	dst = dst[:len(dst)+n]
	for ; i < len(row) && len(dst) < cap(dst); i++ {
		if !(row[i] <= floor) && !(row[i] > ceiling) {
			dst = append(dst, int32(i))
		}
	}
	return dst, i
}

// A fence tells tokens that may win a draw from those that cannot, without
// their noise. With u the uniform number of a token, its noise -ln(-ln u) is
// at most -ln(1-u); so it can reach the best score so far only if
//
//	log2(1-u) <= (score - best) * log2(e)
//
// and the logarithm is bounded from below by reading the bits of a float64 as
// an integer: exponent and mantissa then make log2 with straight lines between
// the powers of two, in units of 2^-52. What passes is nearly always a real
// contender; what does not pass is none.
type fence struct {
	slope  float64 // of the right side over the logit, in those units
	height float64 // the rest of the right side
}

const fenceUnit = 0x1p52 * math.Log2E

func newFence(temp float64) fence {
	return fence{slope: 1 / temp * fenceUnit, height: math.Inf(1)}
}

// raise lets pass only tokens that may exceed best. The slack is far more than
// rounding and far less than what would let many pass.
func (f *fence) raise(best float64) {
	const (
		bias  = (1023 + 53) * 0x1p52 // exponent bias, and 1-u as an integer over 2^53
		slack = 1e-6 * 0x1p52
	)
	f.height = bias + slack + -best*fenceUnit + math.Abs(best*fenceUnit)*1e-12
}

// admits reports whether a token with these random bits may win, or has a
// logit of NaN.
func (f *fence) admits(logit float32, bits uint64) bool {
	rest := float64(int64(^bits>>11 | 1)) // (1 - uniform) * 2^53
	return !(float64(int64(math.Float64bits(rest))) > float64(float64(logit)*f.slope)+f.height)
}

// nextContender returns the first index from i on whose token may win the
// draw, or whose logit is NaN or +Inf, or len(row).
func nextContender(row []float32, i int, f fence, k key) int {
	i = skipLosers(row, i, f, k)
	counter := k.a + uint64(i)*golden
	for ; i < len(row); i++ {
		if f.admits(row[i], k.mix(counter)) {
			return i
		}
		counter += golden
	}
	return i
}

// Exponentials are powers of two in steps of a sixteenth. The power is a whole
// number of steps, looked up, times a polynomial for the rest, with a relative
// error of at most 3e-13. They are written here, and not taken from math, since
// math.Exp rounds otherwise on other machines.
const (
	stepsPerBit = 16
	step        = math.Ln2 / stepsPerBit // the logarithm of one step
	expReach    = 64 * math.Ln2          // in nats: what is deeper is left out of sums over a row
)

// expBits has what the kernels need: 2^(i/16) for i from 0 to 15, step^i/i!
// for i from 0 to 5, the float64 1.5*2^52, whose addition rounds to a whole
// number that then stands in the lowest bits, and a mask for the place in the
// table. Numbers are bits of a float64.
var expBits = [24]uint64{
	0x3ff0000000000000, 0x3ff0b5586cf9890f, 0x3ff172b83c7d517b, 0x3ff2387a6e756238,
	0x3ff306fe0a31b715, 0x3ff3dea64c123422, 0x3ff4bfdad5362a27, 0x3ff5ab07dd485429,
	0x3ff6a09e667f3bcd, 0x3ff7a11473eb0187, 0x3ff8ace5422aa0db, 0x3ff9c49182a3f090,
	0x3ffae89f995ad3ad, 0x3ffc199bdd85529c, 0x3ffd5818dcfba487, 0x3ffea4afa2a490da,
	0x3ff0000000000000, 0x3fa62e42fefa39ef, 0x3f4ebfbdff82c58f, 0x3eec6b08d704a0c0, 0x3e83b2ab6fba4e77, 0x3e15d87fe78a6731,
	0x4338000000000000, 15,
}

// expSteps returns exp(x*step) for x from -16000 to 16000.
func expSteps(x float64) float64 {
	magic := math.Float64frombits(expBits[22])
	t := x + magic
	r := x - (t - magic)
	p := math.Float64frombits(expBits[21])
	p = math.FMA(p, r, math.Float64frombits(expBits[20]))
	p = math.FMA(p, r, math.Float64frombits(expBits[19]))
	p = math.FMA(p, r, math.Float64frombits(expBits[18]))
	p = math.FMA(p, r, math.Float64frombits(expBits[17]))
	p = math.FMA(p, r, math.Float64frombits(expBits[16]))
	b := math.Float64bits(t)
	return math.Float64frombits(expBits[b&15]+b&^15<<48) * p
}

// expOf returns exp(x) for an x of 0 or below; of less than -690 it makes 0.
func expOf(x float64) float64 {
	if !(x > -690) {
		return 0
	}
	return expSteps(x / step)
}

// expSum returns the sum of exp((logit-top)*inv) over the tokens whose logit is
// above floor, and the sum of the same times (logit-top)*inv. No logit is above
// top or NaN. Tokens deeper than expReach are left out: a million of them have
// a mass of 1e-13.
//
// Token i is added to sum i modulo 16, and these in pairs at the end.
func expSum(row []float32, top float32, inv float64, floor float32) (mass, moment float64) {
	deepest := float32(float64(top) - expReach/inv)
	floor = max(floor, min(deepest, math.Nextafter32(top, negInf))) // the highest itself counts however far apart logits are
	var sums [32]float64
	whole := len(row) &^ 15
	sumBlocks(row[:whole], float64(top), inv/step, floor, &sums)
	if whole < len(row) {
		var rest [16]float32
		for i := copy(rest[:], row[whole:]); i < len(rest); i++ {
			rest[i] = negInf
		}
		sumBlocks(rest[:], float64(top), inv/step, floor, &sums)
	}
	for n := 8; n > 0; n /= 2 {
		for i := range n {
			sums[i] += sums[i+n]
			sums[16+i] += sums[16+i+n]
		}
	}
	return sums[0], sums[16] * step
}

// sumBlocksGo adds to the sums of expSum; scale takes logits to steps.
func sumBlocksGo(row []float32, top, scale float64, floor float32, sums *[32]float64) {
	for ; len(row) >= 16; row = row[16:] {
		for j, v := range (*[16]float32)(row) {
			if !(v > floor) {
				continue
			}
			x := (float64(v) - top) * scale
			e := expSteps(x)
			sums[j] += e
			sums[16+j] = math.FMA(x, e, sums[16+j])
		}
	}
}

// depths is a histogram over the distance from the highest logit: entry d
// holds the probability mass, relative to that of the highest logit, of the
// tokens about d/depthsPerBit powers of two below it.
type depths [64 * depthsPerBit]float64

const (
	depthsPerBit = 2
	depthSteps   = stepsPerBit / depthsPerBit
)

// massByDepth adds exp((logit-top)*inv) of every token to the histogram. No
// logit is above top or NaN. Tokens below the reach of the histogram are left
// out, as in expSum.
func massByDepth(row []float32, top float32, inv float64, mass *depths) {
	scale := inv / step
	for _, v := range row {
		x := (float64(v) - float64(top)) * scale // 0 or below
		if !(x > 1-depthSteps*float64(len(mass))) {
			continue
		}
		mass[uint(-int(x-0.5))/depthSteps%uint(len(mass))] += expSteps(x)
	}
}

func (m *depths) total() float64 {
	sum := 0.0
	for _, w := range m {
		sum += w
	}
	return sum
}
