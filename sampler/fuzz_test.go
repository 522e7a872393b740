package sampler

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

// FuzzPick samples from rows of arbitrary bits with arbitrary settings. It must
// not panic; an error must be one of the package's own; a token must be one
// that the distribution lists, and the one it draws; the row must stay.
func FuzzPick(f *testing.F) {
	f.Add([]byte{0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 128, 255}, 1.0, 2, .9, .1, 0, 1.1, .5, uint64(1), 0.0, 0.0)
	f.Add([]byte{0, 0, 192, 255, 1, 2, 3, 4}, 0.0, 0, 0.0, 0.0, 0, 0.0, 0.0, uint64(0), .5, .1)
	f.Add([]byte{255, 255, 127, 127, 255, 255, 127, 255}, 1e-5, 1, 1e-300, 1.0, 9, 3.0, -1e30, uint64(math.MaxUint64), 1e-300, .999)
	f.Add(make([]byte, 4000), 1e300, 7, .3, 0.0, 3, 0.0, 0.0, uint64(5), .9, .9)
	f.Fuzz(func(t *testing.T, data []byte, temp float64, k int, p, minP float64, keep int, repeat, frequency float64, seed uint64, x, y float64) {
		row := make([]float32, len(data)/4)
		for i := range row {
			row[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
		before := bitsOf(row)
		c := Config{
			Temperature: temp, TopK: k, TopP: p, MinP: minP, MinKeep: keep,
			RepeatPenalty: repeat, FrequencyPenalty: frequency, PenaltyLastN: 5,
		}
		for i, set := range []func(){ // by the bits of the seed
			func() { c.DynTempRange, c.DynTempExponent = x, y },
			func() { c.TypicalP = x },
			func() { c.TopNSigma = y },
			func() { c.Epsilon = y },
			func() { c.Eta = x },
			func() { c.TailFreeZ = x },
			func() { c.TopA, c.TopAPower = x, y },
			func() { c.XTCProbability, c.XTCThreshold = x, y },
			func() { c.DRYMultiplier, c.DRYBase, c.DRYLastN, c.DRYAllowedLength = x, 1+y, 5, keep },
			func() { c.NoRepeatNGram = keep },
			func() { c.Mirostat, c.MirostatTau, c.MirostatEta = 1+k&1, x, y },
			func() { c.AdaptiveTarget, c.AdaptiveDecay = x, y },
		} {
			if seed>>i&1 == 1 {
				set()
			}
		}
		s, err := New(c)
		if err != nil {
			return
		}
		history := []int32{0, 1, 0, int32(seed), 2}
		at := Draw{Seed: seed, Pos: k}
		var d Dist
		errDist := s.DistAt(&d, row, history, at)
		id, errPick := s.Pick(row, history, at)
		for i, u := range bitsOf(row) {
			if u != before[i] {
				t.Fatalf("token %d: the logit was %#x and is %#x", i, before[i], u)
			}
		}
		if (errDist == nil) != (errPick == nil) {
			t.Fatalf("Dist: %v, Pick: %v", errDist, errPick)
		}
		if errPick != nil {
			if !errors.Is(errPick, ErrNaN) && !errors.Is(errPick, ErrInf) && !errors.Is(errPick, ErrNoCandidates) {
				t.Fatal(errPick)
			}
			return
		}
		if want := d.Draw(at); id != want {
			t.Fatalf("Pick gives %d, Dist.Draw %d", id, want)
		}
		sum := 0.0
		for i := range d.Len() {
			sum += d.Prob(i)
			if i > 0 && d.Prob(i) > d.Prob(i-1) {
				t.Fatalf("entry %d is out of order", i)
			}
		}
		if !(math.Abs(sum-1) < 1e-9) {
			t.Fatalf("the probabilities sum to %v", sum)
		}
	})
}
