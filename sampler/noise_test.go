package sampler

import (
	"fmt"
	"math"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestGoldenNoise freezes the noise. THESE VALUES MUST NEVER CHANGE: the text
// for a seed depends on them, and users keep seeds. They were computed by
// another program from the description in noise.go.
func TestGoldenNoise(t *testing.T) {
	for _, golden := range []struct {
		at      Draw
		token   int32
		bits    uint64
		uniform float64
		gumbel  float64
	}{
		{Draw{0, 0, StreamDraw}, 0, 0xa4f31b5cab5b276e, 0.6443345166438631, 0.822032805596},
		{Draw{0, 0, StreamDraw}, 1, 0x64b581c46af2c55b, 0.39339457555156365, 0.069412071744},
		{Draw{0, 0, StreamDraw}, 262143, 0xc0968de7d3484ef7, 0.7522972765903272, 1.256587256905},
		{Draw{0, 1, StreamDraw}, 0, 0x19d003f7607c5a9, 0.0063018946584910696, -1.622730167951},
		{Draw{1, 0, StreamDraw}, 0, 0x2a21987599964b2b, 0.16457512732594026, -0.590221538170},
		{Draw{2, 0, StreamDraw}, 0, 0xd9ca3e7ee73aca2a, 0.8507422504255643, 1.822346057496},
		{Draw{0, 0, StreamAccept}, 0, 0x56d9bfd03c76eaf6, 0.3392600901974806, -0.077875657977},
		{Draw{0, 0, StreamResidual}, 0, 0xb8573af1d0ccf2f7, 0.7200810280199227, 1.113548680093},
		{Draw{42, 1000, StreamDraw}, 31999, 0xe8865722b4ae1076, 0.9082998714190399, 2.341526564762},
		{Draw{0, 0, StreamXTC}, 0, 0x4fe15b7571695822, 0.3120324289060695, -0.152419030908},
		{Draw{0, 0, StreamDraft}, 0, 0x77b8ddf169d4e470, 0.4676645960224338, 0.274431694183},
		{Draw{0, 0, StreamDraft}, 3, 0x2102e90cac3de5d, 0.00805941615068606, -1.572963570446},
		{Draw{math.MaxUint64, 131071, StreamResidual}, 128255, 0xff134f816a4f429f, 0.9963884058909659, 5.621797502279},
	} {
		assert.Equal(t, golden.bits, golden.at.key().bits(golden.token), "%v", golden.at)
		assert.Equal(t, golden.uniform, golden.at.Uniform(golden.token), "%v", golden.at)
		assert.InDelta(t, golden.gumbel, golden.at.Gumbel(golden.token), 1e-11, "%v", golden.at)
	}
}

// The draw is by the textbook: -ln(-ln u) added to the logits of rowA, with
// uniform numbers given.
func TestGumbelVector(t *testing.T) {
	want := []float64{-.834032, .366513, 2.250367, -.185627, 4.600149, -.475885}
	for i, u := range []float64{.1, .5, .9, .3, .99, .2} {
		assert.InDelta(t, want[i], gumbelOf(u), 1e-6)
	}
}

// Uniform numbers are inside (0, 1) whatever the bits are, and their noise is
// finite.
func TestUniformIsOpen(t *testing.T) {
	for _, x := range []uint64{0, 1, 1<<11 - 1, 1 << 11, math.MaxUint64, math.MaxUint64 - 1<<11, math.MaxUint64 &^ (1 << 11), 1 << 63, 1<<63 - 1} {
		u := uniformOf(x)
		assert.Greater(t, u, 0.0, "%#x", x)
		assert.Less(t, u, 1.0, "%#x", x)
		assert.True(t, finite(gumbelOf(u)), "%#x", x)
		assert.Equal(t, 1-u, uniformOf(^x), "%#x", x)
	}
}

// walks are the ways through the noise that neighbouring draws take.
var walks = map[string]func(i int) uint64{
	"tokens":    func(i int) uint64 { return Draw{Seed: 7, Pos: 3}.key().bits(int32(i)) },
	"positions": func(i int) uint64 { return Draw{Seed: 7, Pos: i}.key().bits(11) },
	"seeds":     func(i int) uint64 { return Draw{Seed: uint64(i), Pos: 3}.key().bits(11) },
	"high bits of seeds": func(i int) uint64 {
		return Draw{Seed: bits.Reverse64(uint64(i)), Pos: 3}.key().bits(11)
	},
	"streams":             func(i int) uint64 { return Draw{Seed: 7, Pos: i / 3, Stream: Stream(i % 3)}.key().bits(11) },
	"tokens by position":  func(i int) uint64 { return Draw{Seed: 7, Pos: i >> 4}.key().bits(int32(i & 15)) },
	"positions by seed":   func(i int) uint64 { return Draw{Seed: uint64(i & 3), Pos: i >> 2}.key().bits(0) },
	"every 4096th token":  func(i int) uint64 { return Draw{}.key().bits(int32(i << 10 & math.MaxInt32)) },
	"position equal seed": func(i int) uint64 { return Draw{Seed: uint64(i), Pos: i}.key().bits(int32(i)) },
}

func draws(n int) int {
	if raceDetector {
		return n / 10
	}
	return n
}

// chiSquaredZ turns counts into a number that is about standard normal if
// they come from equal chances (Wilson and Hilferty 1931).
func chiSquaredZ(counts []int, expected func(i int) float64) float64 {
	x2 := 0.0
	for i, n := range counts {
		d := float64(n) - expected(i)
		x2 += d * d / expected(i)
	}
	df := float64(len(counts) - 1)
	return (math.Cbrt(x2/df) - (1 - 2/(9*df))) / math.Sqrt(2/(9*df))
}

// Along every walk the numbers are uniform, in their high, middle and low
// bits, and neighbours, also at a distance, are independent.
func TestNoiseAlongWalks(t *testing.T) {
	t.Parallel()
	n := draws(1 << 18)
	for name, at := range walks {
		x := make([]uint64, n)
		for i := range x {
			x[i] = at(i)
		}
		for _, shift := range []int{54, 32, 11, 0} {
			counts := make([]int, 1024)
			for _, v := range x {
				counts[v>>shift&1023]++
			}
			z := chiSquaredZ(counts, func(int) float64 { return float64(n) / 1024 })
			assert.Less(t, math.Abs(z), 4.5, "%s, bits %d to %d", name, shift, shift+9)
		}
		for _, lag := range []int{1, 2, 3, 4, 16, 64, 1024} {
			pairs, flips := make([]int, 1024), make([]int, 64)
			for i, v := range x[lag:] {
				pairs[v>>59<<5|x[i]>>59]++
				for d := v ^ x[i]; d != 0; d &= d - 1 {
					flips[bits.TrailingZeros64(d)]++
				}
			}
			m := float64(n - lag)
			z := chiSquaredZ(pairs, func(int) float64 { return m / 1024 })
			assert.Less(t, math.Abs(z), 4.5, "%s, pairs %d apart", name, lag)
			for b, f := range flips {
				z := (float64(f) - m/2) / math.Sqrt(m/4)
				assert.Less(t, math.Abs(z), 5.5, "%s, bit %d at lag %d", name, b, lag)
			}
		}
	}
}

// Changing one bit of an input changes each bit of the output with chance 1/2.
func TestAvalanche(t *testing.T) {
	type input struct {
		at    Draw
		token int32
	}
	flip := map[string]func(in input, bit int) input{
		"seed":     func(in input, b int) input { in.at.Seed ^= 1 << b; return in },
		"position": func(in input, b int) input { in.at.Pos ^= 1 << b; return in },
		"stream":   func(in input, b int) input { in.at.Stream ^= 1 << b; return in },
		"token":    func(in input, b int) input { in.token ^= 1 << b; return in },
	}
	n := draws(10000)
	for name, width := range map[string]int{"seed": 64, "position": 32, "stream": 2, "token": 20} {
		for b := range width {
			changed := make([]int, 64)
			for i := range n {
				in := input{Draw{Seed: uint64(i % 100), Pos: i / 100}, int32(i * 13 & 0xfffff)}
				out := flip[name](in, b)
				d := in.at.key().bits(in.token) ^ out.at.key().bits(out.token)
				for ; d != 0; d &= d - 1 {
					changed[bits.TrailingZeros64(d)]++
				}
			}
			for o, c := range changed {
				z := (float64(c) - float64(n)/2) / math.Sqrt(float64(n)/4)
				assert.Less(t, math.Abs(z), 6.0, "%s bit %d, output bit %d", name, b, o)
			}
		}
	}
}

// What is drawn for neighbouring seeds, positions and streams is independent:
// every pair of winners among equal tokens comes equally often.
func TestWinnersAreIndependent(t *testing.T) {
	t.Parallel()
	const k = 8
	s := mustNew(t, Config{Temperature: 1})
	row := make([]float32, k)
	n := draws(200000)
	for name, next := range map[string]func(at Draw) Draw{
		"seeds 0 and 1":       func(at Draw) Draw { at.Seed = 1; return at },
		"seeds 0 and 2":       func(at Draw) Draw { at.Seed = 2; return at },
		"position and next":   func(at Draw) Draw { at.Pos++; return at },
		"stream and accept":   func(at Draw) Draw { at.Stream = StreamAccept; return at },
		"stream and residual": func(at Draw) Draw { at.Stream = StreamResidual; return at },
	} {
		counts := make([]int, k*k)
		for pos := range n {
			a, _ := s.Pick(row, nil, Draw{Pos: pos})
			b, _ := s.Pick(row, nil, next(Draw{Pos: pos}))
			counts[a*k+b]++
		}
		z := chiSquaredZ(counts, func(int) float64 { return float64(n) / k / k })
		assert.Less(t, math.Abs(z), 4.0, name)
	}
}

// chances are the distribution of the statistical tests: a few likely tokens
// and a tail of tokens with a chance of 1e-6 each.
func chances(tail int) (probs []float64, row []float32) {
	probs = []float64{.5, .25, .15, .05, .02, .01, .005, .001}
	rest := 1.0
	for _, p := range probs {
		rest -= p
	}
	probs = append(probs, rest-float64(tail)*1e-6)
	for range tail {
		probs = append(probs, 1e-6)
	}
	return probs, logs(probs...)
}

// TestDrawFollowsTheDistribution draws a million times on every path. The tail
// of hundreds of tokens with a chance of 1e-6 each has to come as often as it
// should, too.
func TestDrawFollowsTheDistribution(t *testing.T) {
	t.Parallel()
	n := draws(1000000)
	check := func(name string, probs []float64, counts []int) {
		t.Helper()
		const likely = 9
		pooled := append(counts[:likely:likely], 0)
		tail := 1.0
		for i, p := range probs[:likely] {
			tail -= p
			z := (float64(counts[i]) - p*float64(n)) / math.Sqrt(p*(1-p)*float64(n))
			assert.Less(t, math.Abs(z), 4.0, "%s, token %d", name, i)
		}
		for _, c := range counts[likely:] {
			pooled[likely] += c
		}
		z := (float64(pooled[likely]) - tail*float64(n)) / math.Sqrt(tail*float64(n))
		assert.Less(t, math.Abs(z), 4.0, "%s, tail of %d", name, pooled[likely])
		z = chiSquaredZ(pooled, func(i int) float64 {
			if i == likely {
				return tail * float64(n)
			}
			return probs[i] * float64(n)
		})
		assert.Less(t, z, 4.0, name)
	}

	probs, row := chances(400)
	s := mustNew(t, Config{Temperature: 1})
	counts := make([]int, len(probs))
	for i := range n {
		id, err := s.Pick(row, nil, Draw{Seed: 5, Pos: i})
		if err != nil {
			t.Fatal(err)
		}
		counts[id]++
	}
	check("row, over positions", probs, counts)

	// The list has 20 of the tail; seeds vary instead of positions.
	probs, row = chances(20)
	s = mustNew(t, listed(Config{Temperature: 1}))
	clear(counts)
	counts = counts[:len(probs)]
	for i := range n {
		id, err := s.Pick(row, nil, Draw{Seed: uint64(i), Pos: 5})
		if err != nil {
			t.Fatal(err)
		}
		counts[id]++
	}
	check("list, over seeds", probs, counts)

	for _, method := range []DrawMethod{DrawInverse, DrawMT19937} {
		s = mustNew(t, listed(Config{Temperature: 1, DrawMethod: method}))
		clear(counts)
		for i := range n {
			id, err := s.Pick(row, nil, Draw{Seed: 5, Pos: i})
			if err != nil {
				t.Fatal(err)
			}
			counts[id]++
		}
		check(fmt.Sprint("method ", method), probs, counts)
	}

	// A temperature, which takes the logits to powers, through Dist.
	sharp := []float64{.6, .3, .1}
	sum := 0.0
	for i, p := range sharp {
		sharp[i] = math.Pow(p, 1/.7)
		sum += sharp[i]
	}
	var d Dist
	if err := mustNew(t, Config{Temperature: .7}).Dist(&d, logs(.6, .3, .1), nil); err != nil {
		t.Fatal(err)
	}
	three := make([]int, 3)
	for i := range n {
		three[d.Draw(Draw{Seed: 9, Pos: i, Stream: StreamResidual})]++
	}
	z := chiSquaredZ(three, func(i int) float64 { return sharp[i] / sum * float64(n) })
	assert.Less(t, math.Abs(z), 4.0, "temperature .7: %v", three)
}

// Where logits are so large that the noise is lost in them, equal ones tie, and
// the lower id wins on every path.
func TestDrawTies(t *testing.T) {
	row := []float32{1, 1e36, 1e36, 1e36}
	list := []Candidate{{2, 1e36}, {0, 1}, {1, 1e36}, {3, 1e36}}
	d := Dist{ids: []int32{0, 1, 2, 3}, logits: row, temp: 1}
	for pos := range 20 {
		at := Draw{Seed: 4, Pos: pos}
		id, err := mustNew(t, Config{Temperature: 1}).Pick(row, nil, at)
		assert.NoError(t, err)
		assert.Equal(t, int32(1), id)
		c := Candidates{list: list, temp: 1}
		assert.Equal(t, int32(1), c.drawList(at.key()))
		assert.Equal(t, int32(1), d.Draw(at))
	}
}

// The uniform numbers of the accept test have the right chance of being below
// any bound.
func TestUniformBelow(t *testing.T) {
	n := draws(1000000)
	for _, p := range []float64{1e-3, .1, .5, .9} {
		below := 0
		for i := range n {
			if (Draw{Seed: 3, Pos: i, Stream: StreamAccept}).Uniform(0) < p {
				below++
			}
		}
		z := (float64(below) - p*float64(n)) / math.Sqrt(p*(1-p)*float64(n))
		assert.Less(t, math.Abs(z), 4.0, "p %v", p)
	}
}

// A draw depends on its own arguments only: not on the draws before it, not on
// which of a sampler and its clone makes it, not on other goroutines.
func TestDrawIsAFunction(t *testing.T) {
	row := make([]float32, 5000)
	for i := range row {
		row[i] = float32(i*7919%1000) / 100
	}
	s := mustNew(t, Default())
	want := make([]int32, 50)
	for pos := range want {
		want[pos], _ = s.Pick(row, nil, Draw{Seed: 1, Pos: pos})
	}
	for pos := len(want) - 1; pos >= 0; pos-- {
		id, _ := s.Pick(row, nil, Draw{Seed: 1, Pos: pos})
		assert.Equal(t, want[pos], id)
	}
	for g := range 4 {
		t.Run(fmt.Sprint("goroutine ", g), func(t *testing.T) {
			t.Parallel()
			clone, own := s.Clone(), append([]float32(nil), row...)
			for pos := range want {
				id, err := clone.Pick(own, nil, Draw{Seed: 1, Pos: pos})
				assert.NoError(t, err)
				assert.Equal(t, want[pos], id)
			}
		})
	}
}
