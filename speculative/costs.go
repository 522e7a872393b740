package speculative

import "slices"

// costs estimates how long an evaluation takes by its size in rows. It is a
// table, because measured times have steps that no formula foresees. Sizes not
// measured yet are interpolated; beyond the largest the line goes on with a slope
// given.
//
// What is measured slows down as a text grows. The entries are therefore kept
// in parts of a level that follows the latest measurements of any size.
type costs struct {
	entries []measured // by size
	level   float64    // seconds
}

const (
	recent      = 15   // measurements of one size
	trusted     = 3    // measurements after which they are believed
	settled     = 5    // measurements of a size after which it moves the level
	levelRate   = 0.3  // of a deviation that the level follows
	levelStep   = 0.1  // largest deviation that it sees
	surprise    = 1.5  // times what is foretold that few measurements count as
	outlier     = 1.75 // medians from which a measurement is left out
	largestSize = 1 << 12
)

// measured holds the latest measurements of one size, in parts of the level.
type measured struct {
	ring  [recent]float64
	n     int
	usual float64 // the mean but for outliers
	least float64
}

// observe takes in a measurement in seconds. Those that can not be, zero or
// below, and sizes out of all bounds are left out.
func (c *costs) observe(size int, seconds float64) {
	if size < 1 || size > largestSize || !(seconds > 0) {
		return
	}
	if c.level == 0 {
		c.level = seconds
	}
	for len(c.entries) <= size {
		c.entries = append(c.entries, measured{})
	}
	e := &c.entries[size]
	if e.n >= settled {
		deviation := seconds/(c.level*e.usual) - 1
		c.level *= 1 + levelRate*max(-levelStep, min(levelStep, deviation))
	}
	e.add(seconds / c.level)
}

func (e *measured) add(x float64) {
	e.ring[e.n%recent] = x
	e.n++
	sorted := e.ring
	s := sorted[:min(e.n, recent)]
	slices.Sort(s)
	e.least = s[0]
	sum, n := 0.0, 0
	for n < len(s) && s[n] <= outlier*s[len(s)/2] {
		sum += s[n]
		n++
	}
	e.usual = sum / float64(n)
}

// count returns how often a size was measured.
func (c *costs) count(size int) int {
	if size >= len(c.entries) {
		return 0
	}
	return c.entries[size].n
}

// most returns the largest size measured, 0 if there is none.
func (c *costs) most() int { return max(0, len(c.entries)-1) }

// known reports whether anything was measured.
func (c *costs) known() bool { return c.level > 0 }

// at returns the estimate for a size in seconds, which is 0 while nothing is
// known. slope is the growth for each unit beyond the largest size measured, in
// seconds.
//
// One or two measurements are believed only so far: the least of them counts,
// and that no more than so much above what the others foretell. An outlier, which
// is always slow, would else close a size for good.
func (c *costs) at(size int, slope float64) float64 {
	n := c.count(size)
	if n >= trusted {
		return c.seen(size)
	}
	foretold := c.foretell(size, slope)
	switch {
	case n == 0:
		return foretold
	case foretold == 0:
		return c.seen(size)
	}
	return min(c.seen(size), surprise*foretold)
}

// seen returns what was measured for a size: the least of few times, the mean of
// many.
func (c *costs) seen(size int) float64 {
	if e := &c.entries[size]; e.n < trusted {
		return c.level * e.least
	}
	return c.level * c.entries[size].usual
}

// foretell is the estimate for a size from all others. Between two sizes there
// may be a step: the estimate is the lower of the line between them and what
// goes on from the smaller one, so that it will be measured if it can pay.
func (c *costs) foretell(size int, slope float64) float64 {
	below, above := min(size, len(c.entries))-1, size+1
	for below > 0 && c.entries[below].n == 0 {
		below--
	}
	for above < len(c.entries) && c.entries[above].n == 0 {
		above++
	}
	isBelow, isAbove := below > 0, above < len(c.entries)
	switch {
	case isBelow && isAbove:
		a, b := c.seen(below), c.seen(above)
		line := a + (b-a)*float64(size-below)/float64(above-below)
		return min(line, a+slope*float64(size-below))
	case isBelow:
		return c.seen(below) + slope*float64(size-below)
	case isAbove:
		return max(c.seen(above)-slope*float64(above-size), c.seen(above)*float64(size)/float64(above))
	}
	return 0
}

// draftCosts estimates how long a drafter takes: so much for each token, and so
// much for what it has to catch up on (catchingUp). It is a least-squares fit in
// which old drafts fade.
type draftCosts struct {
	nn, nf, ff, ny, fy float64 // sums of products of tokens n, catching up f, seconds y
}

const (
	catchUp     = 0.6  // of a token's time is the first guess for catching up
	catchWeight = 2.0  // drafts that it counts for
	catchMore   = 0.25 // of catching up on a second token is what each more takes
	draftFade   = 0.97 // of the weight of earlier drafts, each draft
	draftSpike  = 2.25 // estimates that a measurement counts as at most
)

// observe takes in a draft of n tokens. token is what one is taken to cost while
// nothing is known.
func (c *draftCosts) observe(n int, f, seconds, token float64) {
	if n < 1 || !(seconds >= 0) {
		return
	}
	y := min(seconds, draftSpike*c.at(n, f, token))
	for _, s := range []struct {
		sum *float64
		add float64
	}{
		{&c.nn, float64(n * n)}, {&c.nf, float64(n) * f}, {&c.ff, f * f}, {&c.ny, float64(n) * y}, {&c.fy, f * y},
	} {
		*s.sum = draftFade**s.sum + s.add
	}
}

// catchingUp returns how much a drafter has to catch up on where it has not read
// so many tokens of the text. The last token is part of every draft. A second, as
// after a draft that stood in full, counts 1. More of them, as after plain
// rounds, are read in one evaluation.
func catchingUp(lag int) float64 {
	if lag < 2 {
		return 0
	}
	return 1 + catchMore*float64(lag-2)
}

// at returns the estimate in seconds for n tokens and what there is to catch up
// on, or its expectation.
func (c *draftCosts) at(n int, behind, token float64) float64 {
	again := catchUp * token
	if c.nn > 0 {
		a, b, d := c.nn+catchWeight*catchUp*catchUp, c.nf-catchWeight*catchUp, c.ff+catchWeight
		det := a*d - b*b // above 0: n and f are not proportional with the guess in it
		token = max(0, (c.ny*d-b*c.fy)/det)
		again = max(0, (a*c.fy-b*c.ny)/det)
	}
	return token*float64(n) + again*behind
}
