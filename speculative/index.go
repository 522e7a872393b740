package speculative

import (
	"fmt"
	"slices"
)

// Limits of an Index.
const (
	maxContext = 32      // tokens of context at most, and what Match.Length goes up to
	maxWindow  = 1 << 28 // tokens remembered at most
	maxVotes   = 64
	probes     = 32  // places of a table that one lookup looks at
	startSize  = 256 // tokens that an Index has room for at first
)

// IndexOptions are the settings of an [Index]. The zero value means the
// defaults.
type IndexOptions struct {
	// Contexts of MinContext to MaxContext tokens are looked up, the longest
	// first: 1 to 8 by default, up to 32. With both the same there is one
	// level of storage and no back-off.
	MinContext, MaxContext int

	// Window is the number of tokens remembered, the latest ones: 32,768 by
	// default. With the default contexts an Index takes 164 bytes for each,
	// rounded up to the next power of two, and as far as it has been filled:
	// 5 MB when full.
	Window int

	// Votes is the number of occurrences of a context, the latest ones, that
	// have a say in how it goes on: 8 by default, up to 64. With 1 it goes on
	// as it did the last time.
	Votes int

	// Vocab is the size of the vocabulary, where it is known: it goes into a
	// saved file, and tokens are checked against it when one is loaded.
	Vocab int
}

func (o IndexOptions) withDefaults() (IndexOptions, error) {
	for _, f := range []struct {
		name    string
		value   *int
		standin int
		largest int
	}{
		{"MinContext", &o.MinContext, 1, maxContext},
		{"MaxContext", &o.MaxContext, max(8, o.MinContext), maxContext},
		{"Window", &o.Window, 1 << 15, maxWindow},
		{"Votes", &o.Votes, 8, maxVotes},
		{"Vocab", &o.Vocab, 0, 1<<31 - 1},
	} {
		if *f.value < 0 || *f.value > f.largest {
			return o, fmt.Errorf("speculative: %s is %d: it must be in [1, %d], or 0 for the default", f.name, *f.value, f.largest)
		}
		if *f.value == 0 {
			*f.value = f.standin
		}
	}
	if o.MinContext > o.MaxContext {
		return o, fmt.Errorf("speculative: MinContext is %d: it must be at most MaxContext, which is %d", o.MinContext, o.MaxContext)
	}
	return o, nil
}

// An Index remembers token sequences and finds where the end of a text stood
// in them before. Adding a token and looking one up take constant time and, once
// the window is filled, no allocation. One goroutine at a time may use it.
//
// For each length of context there is a hash table from a context to the place
// where it stood last, and from each place a link to the one before. A hit is
// compared token by token, so that different contexts are never confused.
type Index struct {
	options  IndexOptions
	tokens   []int32  // a ring: token number p is at p & (len-1)
	n        uint32   // tokens added so far, as a number that wraps around
	held     int      // of them, those in the window
	run      int      // tokens since the last break
	tail     []int32  // the last of them, maxContext at most
	contexts []places // by length, from MinContext
	hashes   [maxContext + 1]uint64
}

// places knows where the contexts of one length stood. A place is the number
// of the token that followed.
type places struct {
	last []place  // open addressing
	back []uint32 // by place, as the ring: distance to the place before, 0 for none
}

type place struct {
	tag uint32 // bits of the context's hash, never 0 where the entry is in use
	at  uint32
}

// separator stands between two texts.
const separator int32 = -1

// NewIndex returns an empty index.
func NewIndex(o IndexOptions) (*Index, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	x := &Index{options: o, contexts: make([]places, o.MaxContext-o.MinContext+1), tail: make([]int32, 0, 2*maxContext)}
	x.allocate(startSize)
	return x, nil
}

// Len returns the number of tokens remembered, ends of texts included.
func (x *Index) Len() int { return x.held }

// Reset forgets everything, and keeps the memory.
func (x *Index) Reset() {
	x.n, x.held, x.run, x.tail = 0, 0, 0, x.tail[:0]
	for i := range x.contexts {
		clear(x.contexts[i].last)
	}
}

// Add adds the next token, 0 or more, of the text under way.
func (x *Index) Add(token int32) {
	if token < 0 {
		panic("speculative: token below 0 added to an Index")
	}
	x.push(token)
	x.link()
	x.run++
	if len(x.tail) == cap(x.tail) {
		x.tail = append(x.tail[:0], x.tail[maxContext+1:]...)
	}
	x.tail = append(x.tail, token)
}

// EndText ends the text under way: what comes next does not follow from it.
func (x *Index) EndText() {
	if x.run > 0 {
		x.push(separator)
		x.run, x.tail = 0, x.tail[:0]
	}
}

// push puts a token into the ring, which grows up to the window.
func (x *Index) push(token int32) {
	if x.held == len(x.tokens) && x.held < x.options.Window {
		x.grow()
	}
	x.tokens[x.slot(x.n)] = token
	x.n++
	x.held = min(x.held+1, x.options.Window)
}

// link enters the token pushed last as what follows the contexts before it.
func (x *Index) link() {
	longest := min(x.run, x.options.MaxContext)
	x.hash(x.tail, longest)
	at := x.n - 1
	for m := x.options.MinContext; m <= longest; m++ {
		c := &x.contexts[m-x.options.MinContext]
		e, found := x.lookup(m, x.tail)
		gap := uint32(0)
		if found {
			gap = at - e.at
		}
		c.back[x.slot(at)] = gap
		*e = place{tag(x.hashes[m]), at}
	}
}

// A Match says how the end of a text went on where it stood before.
type Match struct {
	Next   int32 // what followed most often; of equals, what followed last
	Length int   // tokens of the text that stood before Next too, the last time it followed: up to 32
	Seen   int   // occurrences of the context that were looked at, at most IndexOptions.Votes
	Votes  int   // of them, those that Next followed
}

// Find looks for the longest end of the text, of MinContext to MaxContext
// tokens, that the index knows with a continuation. It reports whether there
// is one.
func (x *Index) Find(text []int32) (Match, bool) {
	longest := min(len(text), x.options.MaxContext)
	x.hash(text, longest)
	for m := longest; m >= x.options.MinContext; m-- {
		if e, found := x.lookup(m, text); found {
			return x.count(m, e.at, text), true
		}
	}
	return Match{}, false
}

// count takes the votes of the occurrences of a context of m tokens, of which
// the last is at the place given.
func (x *Index) count(m int, at uint32, text []int32) Match {
	var seen [maxVotes]struct {
		next  int32
		votes int
		at    uint32
	}
	kinds, total := 0, 0
	c := &x.contexts[m-x.options.MinContext]
	for total < x.options.Votes {
		next := x.tokens[x.slot(at)]
		i := 0
		for i < kinds && seen[i].next != next {
			i++
		}
		if i == kinds {
			seen[i].next, seen[i].at = next, at
			kinds++
		}
		seen[i].votes++
		total++
		gap := c.back[x.slot(at)]
		if at -= gap; gap == 0 || !x.live(at, m) {
			break
		}
	}
	best := 0
	for i := range kinds {
		if seen[i].votes > seen[best].votes {
			best = i
		}
	}
	w := seen[best]
	return Match{Next: w.next, Length: x.extend(m, w.at, text), Seen: total, Votes: w.votes}
}

// extend returns how many tokens before a place are the end of the text, of
// which m are known to be.
func (x *Index) extend(m int, at uint32, text []int32) int {
	for m < min(len(text), maxContext) && x.live(at, m+1) && x.tokens[x.slot(at-uint32(m)-1)] == text[len(text)-1-m] {
		m++
	}
	return m
}

// lookup returns the entry for the context that the last m tokens of the text
// are, whose hash has been computed, and whether it is there; where it is not,
// the entry is the one to use for it.
func (x *Index) lookup(m int, text []int32) (e *place, found bool) {
	table := x.contexts[m-x.options.MinContext].last
	h := x.hashes[m]
	var free *place
	for i := range uint64(probes) {
		e := &table[(h+i)&uint64(len(table)-1)]
		switch {
		case e.tag == 0:
			if free == nil {
				free = e
			}
			return free, false
		case !x.live(e.at, m):
			if free == nil {
				free = e
			}
		case e.tag == tag(h) && x.follows(e.at, text[len(text)-m:]):
			return e, true
		}
	}
	if free == nil { // crowded: the first one is forgotten
		free = &table[h&uint64(len(table)-1)]
	}
	return free, false
}

// live reports whether the window holds a place and the m tokens before it.
func (x *Index) live(at uint32, m int) bool {
	distance := int(x.n - at)
	return distance >= 1 && distance+m <= x.held
}

// follows reports whether a place comes right after a context.
func (x *Index) follows(at uint32, context []int32) bool {
	for i := range context {
		if x.tokens[x.slot(at-uint32(i)-1)] != context[len(context)-1-i] {
			return false
		}
	}
	return true
}

// hash computes the hashes of the last 1 to longest tokens of a text, each from
// the one before. The steps are those of a 64-bit finaliser, so that
// neighbouring and swapped tokens give unrelated values.
func (x *Index) hash(text []int32, longest int) {
	h := uint64(0x9e3779b97f4a7c15)
	for m := 1; m <= longest; m++ {
		h = (h ^ uint64(uint32(text[len(text)-m]))) * 0xbf58476d1ce4e5b9
		h ^= h >> 29
		x.hashes[m] = h
	}
}

func tag(hash uint64) uint32 { return uint32(hash>>32) | 1 }

func (x *Index) slot(at uint32) int { return int(at) & (len(x.tokens) - 1) }

// grow doubles the memory.
func (x *Index) grow() {
	old := slices.Clone(x.tokens)
	first := x.n - uint32(x.held)
	held := x.held
	x.allocate(2 * len(old))
	x.n, x.held, x.run, x.tail = first, 0, 0, x.tail[:0]
	for i := range held {
		if t := old[int(first+uint32(i))&(len(old)-1)]; t == separator {
			x.EndText()
		} else {
			x.Add(t)
		}
	}
}

func (x *Index) allocate(size int) {
	x.tokens = make([]int32, size)
	for i := range x.contexts {
		x.contexts[i] = places{last: make([]place, 2*size), back: make([]uint32, size)}
	}
}

// each calls yield with each token remembered, the oldest first, and -1 between
// two texts.
func (x *Index) each(yield func(int32)) {
	for p := x.n - uint32(x.held); p != x.n; p++ {
		yield(x.tokens[x.slot(p)])
	}
}
