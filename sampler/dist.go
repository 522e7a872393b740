package sampler

import "slices"

// A Dist is a distribution over the tokens that survived a chain, the most
// likely first, of equals the lower id. Its probabilities sum to 1; tokens it
// does not list have none. The zero Dist is empty. [Sampler.Dist] fills it and
// uses its memory again; a copy of the struct shares that memory.
type Dist struct {
	ids    []int32
	probs  []float64
	scores []float64 // logit / temperature: what the draw adds noise to
}

// Len returns the number of tokens.
func (d *Dist) Len() int { return len(d.ids) }

// Token returns the i-th most likely token.
func (d *Dist) Token(i int) int32 { return d.ids[i] }

// Prob returns the probability of the i-th most likely token.
func (d *Dist) Prob(i int) float64 { return d.probs[i] }

// ProbOf returns the probability of a token: 0 if it is not listed. It looks
// at the entries one by one.
func (d *Dist) ProbOf(token int32) float64 {
	if i := slices.Index(d.ids, token); i >= 0 {
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
	best, top := d.ids[0], d.scores[0]+k.gumbel(d.ids[0])
	for i, id := range d.ids[1:] {
		if s := d.scores[i+1] + k.gumbel(id); s > top || s == top && id < best {
			best, top = id, s
		}
	}
	return best
}

// DrawInverse returns the token at which the sum of the probabilities, the most
// likely first, reaches u, a number from 0 to 1. It panics if d is empty.
func (d *Dist) DrawInverse(u float64) int32 {
	if len(d.ids) == 0 {
		panic("sampler: draw from an empty Dist")
	}
	return d.ids[max(0, prefix(d.probs, u)-1)]
}

func (d *Dist) reset() {
	d.ids, d.probs, d.scores = d.ids[:0], d.probs[:0], d.scores[:0]
}

// fill takes over the sorted list of candidates.
func (d *Dist) fill(c *Candidates) {
	total := c.weigh()
	for i, x := range c.list {
		d.ids = append(d.ids, x.ID)
		d.probs = append(d.probs, c.weights[i]/total)
		d.scores = append(d.scores, c.score(x.Logit))
	}
}
