package sampler

import (
	"cmp"
	"slices"
)

// A Dist is a distribution over the tokens that survived a chain. Its
// probabilities sum to 1; tokens it does not list have none. The zero Dist is
// empty. [Sampler.Dist] fills it and uses its memory again; a copy of the
// struct shares that memory. One goroutine at a time may use it.
//
// The tokens can be read in two orders. That of the ids, [Dist.ByID], is how
// they are kept. The most likely first, of equals the lower id, as [Dist.Token]
// and [Dist.Prob] number them, is put together when it is first asked for: over
// a whole vocabulary that takes longer than all the rest.
type Dist struct {
	ids    []int32 // ascending, as the others go with them
	probs  []float64
	logits []float32
	temp   float64

	order []rank // of indices; empty until asked for
	spare []rank // scratch
}

// Len returns the number of tokens.
func (d *Dist) Len() int { return len(d.ids) }

// ByID returns the token with the i-th lowest id, and its probability.
func (d *Dist) ByID(i int) (token int32, prob float64) { return d.ids[i], d.probs[i] }

// Token returns the i-th most likely token.
func (d *Dist) Token(i int) int32 { return d.ids[d.ranked(i)] }

// Prob returns the probability of the i-th most likely token.
func (d *Dist) Prob(i int) float64 { return d.probs[d.ranked(i)] }

// ranked returns the index of the i-th most likely token.
func (d *Dist) ranked(i int) int32 {
	if len(d.order) == 0 {
		for j, logit := range d.logits {
			d.order = append(d.order, rankOf(Candidate{int32(j), logit}))
		}
		d.spare = sortRanks(d.order, d.spare)
	}
	return d.order[i].candidate().ID
}

// Index returns which number a token has for ByID, -1 if it is not listed.
func (d *Dist) Index(token int32) int {
	if i, ok := slices.BinarySearch(d.ids, token); ok {
		return i
	}
	return -1
}

// ProbOf returns the probability of a token: 0 if it is not listed.
func (d *Dist) ProbOf(token int32) float64 {
	if i := d.Index(token); i >= 0 {
		return d.probs[i]
	}
	return 0
}

// Draw draws a token. It panics if d is empty.
func (d *Dist) Draw(at Draw) int32 {
	if len(d.ids) == 0 {
		panic("sampler: draw from an empty Dist")
	}
	k := at.key()
	best, top := d.ids[0], d.score(0)+k.gumbel(d.ids[0])
	for i, id := range d.ids[1:] {
		if s := d.score(i+1) + k.gumbel(id); s > top {
			best, top = id, s
		}
	}
	return best
}

// score is what the draw adds noise to.
func (d *Dist) score(i int) float64 { return float64(d.logits[i]) / d.temp }

// DrawInverse returns the token at which the sum of the probabilities, the most
// likely first, reaches u, a number from 0 to 1. It panics if d is empty.
func (d *Dist) DrawInverse(u float64) int32 {
	if len(d.ids) == 0 {
		panic("sampler: draw from an empty Dist")
	}
	i := 0
	for sum := d.Prob(0); sum < u && i < len(d.ids)-1; {
		i++
		sum += d.Prob(i)
	}
	return d.Token(i)
}

// DrawByID is DrawInverse in the order of the ids, which is there already.
func (d *Dist) DrawByID(u float64) int32 {
	if len(d.ids) == 0 {
		panic("sampler: draw from an empty Dist")
	}
	return d.ids[max(0, prefix(d.probs, u)-1)]
}

func (d *Dist) reset() {
	d.ids, d.probs, d.logits, d.order = d.ids[:0], d.probs[:0], d.logits[:0], d.order[:0]
}

// fill takes over the list of candidates.
func (d *Dist) fill(c *Candidates) {
	c.sortByID()
	total := c.weigh()
	for i, x := range c.list {
		d.ids = append(d.ids, x.ID)
		d.probs = append(d.probs, c.weights[i]/total)
		d.logits = append(d.logits, x.Logit)
	}
	d.temp = c.temp
}

// sortByID puts the list in the order of the ids, in which a list made of a row
// already is.
func (c *Candidates) sortByID() {
	byID := func(a, b Candidate) int { return cmp.Compare(a.ID, b.ID) }
	if slices.IsSortedFunc(c.list, byID) {
		return
	}
	slices.SortFunc(c.list, byID)
	c.sorted = false
}
