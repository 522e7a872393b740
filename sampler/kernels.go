package sampler

import "math"

// The loops over a whole row. Each is a function of its arguments alone, so
// that another implementation can take its place.

// nextAbove returns the first index from i on whose logit is greater than
// floor or NaN, or len(row).
func nextAbove(row []float32, i int, floor float32) int {
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

// nextContender returns the first index from i on whose token may win the
// draw, or whose logit is NaN or +Inf, or len(row).
func nextContender(row []float32, i int, f fence, k key) int {
	counter := k.a + uint64(i)*golden
	for ; i < len(row); i++ {
		rest := float64(int64(^k.mix(counter)>>11 | 1)) // (1 - uniform) * 2^53
		if !(float64(int64(math.Float64bits(rest))) > float64(row[i])*f.slope+f.height) {
			return i
		}
		counter += golden
	}
	return i
}

// depths is a histogram over the distance from the highest logit: entry d
// holds the probability mass, relative to that of the highest logit, of the
// tokens about d/depthsPerBit powers of two below it.
type depths [64 * depthsPerBit]float64

const (
	depthsPerBit = 2
	expBits      = 10
	expSteps     = 1 << expBits // table entries per power of two
	depthSteps   = expSteps / depthsPerBit
)

// expTable[i] has the bits of 2^(i/expSteps).
var expTable = func() (t [expSteps]uint64) {
	for i := range t {
		t[i] = math.Float64bits(math.Exp2(float64(i) / expSteps))
	}
	return t
}()

// step is the logarithm of the ratio of two neighbours of expTable.
const step = math.Ln2 / expSteps

// expStep returns exp(x*step) for an x of 0 or below, and the whole number
// nearest to x.
func expStep(x float64) (e float64, k int) {
	k = int(x - 0.5)
	r := x - float64(k)
	p := 1 + r*(step+r*(step*step/2)) // exp(r*step)
	return math.Float64frombits(expTable[k&(expSteps-1)]+uint64(k>>expBits)<<52) * p, k
}

// massByDepth adds exp((logit-top)*inv) of every token to the histogram, with
// a relative error of 1e-11. No logit is above top or NaN. Tokens below the
// reach of the histogram are left out: a million of them have a mass of 1e-13.
func massByDepth(row []float32, top float32, inv float64, mass *depths) {
	scale := inv / step
	for _, v := range row {
		x := (float64(v) - float64(top)) * scale // steps of the table, 0 or below
		if !(x > 1-depthSteps*float64(len(mass))) {
			continue
		}
		e, k := expStep(x)
		mass[uint(-k)/depthSteps%uint(len(mass))] += e
	}
}

func (m *depths) total() float64 {
	sum := 0.0
	for _, w := range m {
		sum += w
	}
	return sum
}

// spreadOf measures the tokens of a row that are not banned, with the accuracy
// and the reach of massByDepth. No logit is above top or NaN.
func spreadOf(row []float32, top float32, inv float64) spread {
	s := spread{top: float64(top), inv: inv}
	scale := inv / step
	for _, v := range row {
		if v == negInf {
			continue
		}
		s.n++
		depth := s.top - float64(v)
		x := -depth * scale
		if !(x > 1-depthSteps*float64(len(depths{}))) {
			continue
		}
		e, _ := expStep(x)
		s.mass += e
		s.depth += e * depth
	}
	s.depth /= s.mass
	return s
}
