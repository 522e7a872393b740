package speculative

import "github.com/sortes-llm/sortes/sampler"

// A key names one random number of a round: the n-th of a draw.
//
// The number of a drafted token and that of its test belong to the round, which
// is known by the position where it starts. By their own position alone they
// would serve again in the next round, whose start depends on them: block and
// tree rules look at all of a draft to decide how much of it stands. What is
// drawn for good, a residual, belongs to its position.
type key struct {
	at sampler.Draw
	n  int32
}

// draftKey is for the draw of the i-th drafted token, counted from 0, of a
// round that starts at a position.
func draftKey(seed uint64, start, i int) key {
	return key{sampler.Draw{Seed: seed, Pos: start, Stream: sampler.StreamDraft}, int32(i)}
}

// testKey is for the test whether the first n drafted tokens of the round stand.
func testKey(seed uint64, start, n int) key {
	return key{sampler.Draw{Seed: seed, Pos: start, Stream: sampler.StreamAccept}, int32(n)}
}

// residualKey is for the draw of the token at a position in place of a rejected
// one.
func residualKey(seed uint64, pos int) key {
	return key{sampler.Draw{Seed: seed, Pos: pos, Stream: sampler.StreamResidual}, 0}
}

// A chance makes the random decisions of a rule: noise, or in tests all of them
// in turn. Every key stands for a number that is uniform between 0 and 1.
type chance interface {
	// below reports whether the number is below p.
	below(k key, p float64) bool
	// choose returns the index at which the sum of the weights reaches the
	// number times their total, which is above 0.
	choose(k key, weights []float64, total float64) int
}

// noise is the numbers of package sampler.
type noise struct{}

func (noise) below(k key, p float64) bool { return k.at.Uniform(k.n) < p }

func (noise) choose(k key, weights []float64, total float64) int {
	mass, sum, last := k.at.Uniform(k.n)*total, 0.0, 0
	for i, w := range weights {
		if w == 0 {
			continue
		}
		if sum += w; sum >= mass {
			return i
		}
		last = i
	}
	return last // rounding has left the sum short
}
