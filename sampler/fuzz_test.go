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
	f.Add([]byte{0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 128, 255}, 1.0, 2, .9, .1, 0, 1.1, .5, uint64(1))
	f.Add([]byte{0, 0, 192, 255, 1, 2, 3, 4}, 0.0, 0, 0.0, 0.0, 0, 0.0, 0.0, uint64(0))
	f.Add([]byte{255, 255, 127, 127, 255, 255, 127, 255}, 1e-5, 1, 1e-300, 1.0, 9, 3.0, -1e30, uint64(math.MaxUint64))
	f.Add(make([]byte, 4000), 1e300, 7, .3, 0.0, 3, 0.0, 0.0, uint64(5))
	f.Fuzz(func(t *testing.T, data []byte, temp float64, k int, p, minP float64, keep int, repeat, frequency float64, seed uint64) {
		row := make([]float32, len(data)/4)
		for i := range row {
			row[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
		before := bitsOf(row)
		s, err := New(Config{
			Temperature: temp, TopK: k, TopP: p, MinP: minP, MinKeep: keep,
			RepeatPenalty: repeat, FrequencyPenalty: frequency, PenaltyLastN: 5,
		})
		if err != nil {
			return
		}
		history := []int32{0, 1, 0, int32(seed), 2}
		at := Draw{Seed: seed, Pos: k}
		var d Dist
		errDist := s.Dist(&d, row, history)
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
