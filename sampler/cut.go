package sampler

import (
	"math"
	"sort"
)

// Top-p and typical keep the tokens whose logits are nearest to a centre, the
// highest logit or the mean, until these reach a mass. A flat row keeps nearly
// all of 128k tokens, and to put those in order takes milliseconds. So the row
// is cut without: a sample says about how far from the centre the cut lies;
// what is clearly nearer is summed by a kernel, and of the few percent in doubt
// a histogram finds the handful of tokens that decide and are put in order.

const (
	sampleSize = 4096
	beyond     = 32 // of the sample, so many mark where the most likely tokens end
)

// sampleRow fills c.ranks from about sampleSize tokens all over the row. It
// reports false if the row is too short for that to be worth it.
func (c *Candidates) sampleRow() bool {
	each := len(c.row) / sampleSize
	if each < 8 {
		return false
	}
	c.ranks = c.ranks[:0]
	for i := 0; i < len(c.row); i += each {
		c.ranks = append(c.ranks, rankOf(Candidate{int32(i), c.row[i]}))
	}
	return true
}

// listFew lists some of the most likely tokens of the row and reports whether
// they reach the mass together: then they are in order. If not, they are still
// in c.list, with their weights, but the row is the candidates as before;
// c.ranks is then a sample of it, of which those up to rest are listed, too.
func (c *Candidates) listFew(mass float64) (enough bool, few float64, rest rank) {
	if !c.sampleRow() {
		return false, 0, 0
	}
	selectTop(c.ranks, beyond)
	rest = c.ranks[0]
	for _, r := range c.ranks[:beyond] {
		rest = max(rest, r)
	}
	c.listBetween(rest.candidate().Logit, float32(math.Inf(1)))
	if c.err != nil {
		return true, 0, 0
	}
	if len(c.list) > 0 {
		few = c.weigh()
	}
	if few > mass*(1+1e-12) {
		c.Sort()
		return true, few, 0
	}
	c.listed = false
	return false, few, rest
}

// A zone is what a row is cut to: the tokens nearest to a centre that reach a
// mass together, or exceed it.
type zone struct {
	spread
	centre float64 // a logit
	mass   float64 // on the scale of spread.mass
	exceed bool
}

func (z zone) distance(logit float32) float64 { return math.Abs(float64(logit) - z.centre) }

func (z zone) weight(logit float32) float64 { return expOf((float64(logit) - z.top) * z.inv) }

func (z zone) full(sum float64) bool { return sum > z.mass || sum == z.mass && !z.exceed }

// cutTo leaves of the row the tokens of a zone, after listFew. It reports false,
// and the row is as before, if the sample misleads or the cut is among equals.
func (c *Candidates) cutTo(z zone, few float64, rest rank) bool {
	near, far := c.bracket(z, few, rest)
	// From here on only whether the tokens in doubt hold the cut matters: which
	// tokens those are exactly does not.
	floor, ceiling := float32(z.centre-near), float32(z.centre+near)
	inside := 0.0
	if near > 0 {
		inside, _ = expSum(c.row, float32(z.top), z.inv, floor)
		if float64(ceiling) < z.top {
			above, _ := expSum(c.row, float32(z.top), z.inv, ceiling)
			inside -= above
		}
	}
	c.list = c.appendBetween(c.list[:0], float32(z.centre-far), floor)
	if float64(ceiling) < z.top {
		c.list = c.appendBetween(c.list, ceiling, float32(z.centre+far))
	}
	const bins = 512
	scale := bins / (far - near)
	bin := func(logit float32) int { return min(max(int((z.distance(logit)-near)*scale), 0), bins-1) }
	var masses [bins]float64
	for _, x := range c.list {
		masses[bin(x.Logit)] += z.weight(x.Logit)
	}
	last, sum := 0, inside // bin of the cut; mass of what is nearer
	for last < bins && !z.full(sum+masses[last]) {
		sum += masses[last]
		last++
	}
	if last == 0 || last >= bins-1 || z.full(inside) {
		return false
	}
	n := 0
	for _, x := range c.list {
		if bin(x.Logit) == last {
			c.list[n] = x
			n++
		}
	}
	c.list, c.listed, c.sorted = c.list[:n], true, false
	c.Sort()
	c.listed = false
	lo, hi, ok := c.nearest(z, sum, 1, 0)
	switch {
	case !ok,
		lo > 0 && c.list[lo-1].Logit == c.list[lo].Logit,
		hi < n && c.list[hi-1].Logit == c.list[hi].Logit:
		return false
	}
	kept := func(logit float32) bool { return bin(logit) <= last }
	c.cut, c.ceiling = true, float32(math.Inf(1))
	if hi < n {
		c.floor = c.list[hi].Logit
	} else {
		_, c.floor = edge(float32(z.centre), float32(z.centre-far), kept)
	}
	if lo > 0 {
		c.ceiling = math.Nextafter32(c.list[lo-1].Logit, negInf)
	} else if float64(ceiling) < z.top {
		c.ceiling, _ = edge(float32(z.centre), float32(z.centre+far), kept)
	}
	if c.countSample(c.floor, c.ceiling) <= countSampleSize/8 {
		c.settle() // a short list is drawn from sooner than a row
	}
	return true
}

// edge returns the last number on the way to another that is kept, and the
// first that is not.
func edge(from, to float32, kept func(float32) bool) (last, next float32) {
	at := func(logit float32) int { return int(rankOf(Candidate{0, logit}) >> 32) }
	start, sign := at(from), 1
	if to > from {
		sign = -1
	}
	number := func(i int) float32 { return rank(uint64(start+sign*i) << 32).candidate().Logit }
	i := sort.Search(sign*(at(to)-start), func(i int) bool { return !kept(number(i)) })
	return number(i - 1), number(i)
}

const countSampleSize = 512

// countSample returns how many of about countSampleSize tokens all over the row
// have a logit above floor and not above ceiling.
func (c *Candidates) countSample(floor, ceiling float32) int {
	n := 0
	for i := 0; i < len(c.row); i += max(8, len(c.row)/countSampleSize) {
		if v := c.row[i]; v > floor && v <= ceiling {
			n++
		}
	}
	return n
}

// bracket returns two distances from the centre of a zone, on the scale of
// logits, between which its edge should lie, by the most likely tokens and, for
// the others, by the sample. Of the mass, 4096 tokens leave an error of
// 0.5 % where logits are normal.
func (c *Candidates) bracket(z zone, few float64, rest rank) (near, far float64) {
	const (
		slack   = 0.015
		perNat  = 64
		reached = 32 // nats; what is farther counts as that far
	)
	var listed, sampled [perNat*reached + 1]float64
	at := func(logit float32) int { return int(min(z.distance(logit)*z.inv*perNat, perNat*reached)) }
	for i, x := range c.list {
		listed[at(x.Logit)] += c.weights[i]
	}
	total := 0.0
	edge := rest.candidate().Logit
	for _, r := range c.ranks {
		if x := r.candidate().Logit; x <= edge && x > negInf {
			w := z.weight(x)
			sampled[at(x)] += w
			total += w
		}
	}
	far = math.Inf(1)
	sum, sampledMass := 0.0, z.spread.mass-few
	for i, w := range listed {
		if sum < z.mass-slack*sampledMass {
			near = float64(i)
		}
		sum += w
		if total > 0 {
			sum += sampled[i] / total * sampledMass
		}
		if sum > z.mass+slack*sampledMass {
			far = float64(i + 1)
			break
		}
	}
	far = min(far, perNat*reached)
	return near / perNat / z.inv, far / perNat / z.inv
}

// nearest moves the tokens of a zone to one place in the sorted list, and
// returns that place; whether they fill it is ok. Sum is the mass of tokens that
// are in the zone already, as n of at least least. The farther down the list,
// the lower the logit, so the nearest tokens are those around one place: from
// there the walk goes up and down by turns.
func (c *Candidates) nearest(z zone, sum float64, n, least int) (lo, hi int, ok bool) {
	list := c.list
	for hi < len(list) && float64(list[hi].Logit) > z.centre {
		hi++
	}
	lo = hi // list[lo:hi] is kept
	for !ok && (lo > 0 || hi < len(list)) {
		if lo == 0 || hi < len(list) && z.distance(list[hi].Logit) < z.distance(list[lo-1].Logit) {
			sum += z.weight(list[hi].Logit)
			hi++
			n++
			ok = z.full(sum) && n >= least
			continue
		}
		// Of equal logits the first come first, though the walk goes up.
		first := lo - 1
		for first > 0 && list[first-1].Logit == list[first].Logit {
			first--
		}
		i := first
		for ; i < lo && !ok; i++ {
			sum += z.weight(list[i].Logit)
			n++
			ok = z.full(sum) && n >= least
		}
		copy(list[first+lo-i:], list[first:i]) // next to what is kept below
		lo = first + lo - i
	}
	return lo, hi, ok
}
