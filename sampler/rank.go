package sampler

import (
	"math"
	"math/bits"
	"slices"
)

// A rank is a candidate as one integer, the smaller the earlier it comes: by
// the higher logit, then by the lower id. The upper half is made of the bits
// of the logit so that integers compare like the numbers, turned round; the
// lower half is the id. No two candidates of a row have one rank.
type rank uint64

func rankOf(x Candidate) rank {
	u := math.Float32bits(x.Logit + 0) // adding 0 makes one of both zeros
	u ^= uint32(int32(u)>>31) | 1<<31  // ascending as an unsigned integer
	return rank(^u)<<32 | rank(uint32(x.ID))
}

func (r rank) candidate() Candidate {
	u := ^uint32(r >> 32)
	u ^= ^uint32(int32(u)>>31) | 1<<31
	return Candidate{ID: int32(uint32(r)), Logit: math.Float32frombits(u)}
}

// selectTop moves the n smallest ranks, in any order, to the front. It is
// quickselect (Hoare 1961); the partition has no branch to predict.
func selectTop(ranks []rank, n int) {
	for rounds := 0; len(ranks) > n; rounds++ {
		if len(ranks) <= 16 || rounds == 64 { // few, or the pivots are bad
			slices.Sort(ranks)
			return
		}
		// Neither the smallest nor the largest of three distinct ranks.
		a, b, c := ranks[0], ranks[len(ranks)/2], ranks[len(ranks)-1]
		pivot := max(min(a, b), min(max(a, b), c))
		less := 0
		for i, r := range ranks {
			ranks[i] = ranks[less]
			ranks[less] = r
			_, below := bits.Sub64(uint64(r), uint64(pivot), 0)
			less += int(below)
		}
		if less > n {
			ranks = ranks[:less]
		} else {
			ranks, n = ranks[less:], n-less
		}
		if n == 0 {
			return
		}
	}
}

// radixMin is the length from which sorting byte by byte is the faster way.
const radixMin = 512

// sortRanks sorts ascending. Spare is scratch memory; it is returned, grown
// where it was too small.
func sortRanks(ranks, spare []rank) []rank {
	if len(ranks) < radixMin {
		slices.Sort(ranks)
		return spare
	}
	spare = slices.Grow(spare[:0], cap(ranks))[:len(ranks)]
	var counts [4][256]int32 // of the four bytes of the logit
	for _, r := range ranks {
		counts[0][byte(r>>32)]++
		counts[1][byte(r>>40)]++
		counts[2][byte(r>>48)]++
		counts[3][byte(r>>56)]++
	}
	from, to := ranks, spare
	for b := range counts {
		next, at := &counts[b], int32(0)
		for i, n := range next {
			next[i] = at
			at += n
		}
		for _, r := range from {
			k := byte(r >> (32 + 8*b))
			to[next[k]] = r
			next[k]++
		}
		from, to = to, from
	}
	// An even number of passes has brought all back. Equal logits are still
	// in the order they came in, which is nearly always that of their ids.
	for i := 0; i < len(ranks); {
		j, inOrder := i+1, true
		for j < len(ranks) && ranks[j]>>32 == ranks[i]>>32 {
			inOrder = inOrder && ranks[j-1] < ranks[j]
			j++
		}
		if !inOrder {
			slices.Sort(ranks[i:j])
		}
		i = j
	}
	return spare
}
