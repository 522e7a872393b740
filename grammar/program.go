package grammar

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// A program is a grammar as a graph of nodes over bytes: a recursive transition
// network (Woods 1970). A text is matched by walking from the root's start and
// remembering, for each call of a rule, where to go on.
type program struct {
	nodes   []node
	starts  []int32 // the first node of each rule
	classes [256]uint8
	kinds   int // number of classes of bytes that the grammar tells apart
}

type op uint8

const (
	opEnd   op = iota // the end of a rule
	opSplit           // goes on at any of alts
	opCall            // a rule, then next
	opBytes           // one byte of an edge
	opToken           // one whole token, then next
)

type node struct {
	op    op
	not   bool
	rule  int32
	token int32
	next  int32
	alts  []int32
	edges []edge
}

type edge struct {
	lo, hi byte
	next   int32
}

// end is the node at which every rule ends.
const end = 0

// compile makes the program of a grammar. token finds a token by its text.
func compile(g *Grammar, token func(text string) (int32, error)) (*program, error) {
	c := &compiler{g: g, p: &program{nodes: []node{{op: opEnd}}}, token: token, ends: g.productive()}
	c.p.starts = make([]int32, len(g.rules))
	for i, r := range g.rules {
		c.p.starts[i] = c.alternatives(r.body, end)
		if c.err != nil {
			return nil, c.err
		}
	}
	c.p.classify()
	return c.p, nil
}

type compiler struct {
	g     *Grammar
	p     *program
	ends  []bool // rules that some text matches; others are dead ends
	token func(text string) (int32, error)
	err   error
}

func (c *compiler) add(n node) int32 {
	if len(c.p.nodes) >= maxNodes {
		if c.err == nil {
			c.err = fmt.Errorf("grammar: the grammar is too large: with its repetitions written out it has more than %d nodes", maxNodes)
		}
		return end
	}
	c.p.nodes = append(c.p.nodes, n)
	return int32(len(c.p.nodes) - 1)
}

// alternatives returns the node from which a text matches one of the
// sequences and then goes on at next.
func (c *compiler) alternatives(body []sequence, next int32) int32 {
	var alts []int32
	for _, s := range body {
		if c.err != nil {
			return end
		}
		if c.canEnd(s) {
			alts = append(alts, c.sequence(s, next))
		}
	}
	if len(alts) == 1 {
		return alts[0]
	}
	return c.add(node{op: opSplit, alts: alts})
}

// canEnd reports whether some text matches a sequence. One that none does is
// left out: its beginning would lead nowhere.
func (c *compiler) canEnd(s sequence) bool {
	return !slices.ContainsFunc(s, func(x item) bool { return x.min > 0 && !c.productive(x) })
}

func (c *compiler) productive(x item) bool {
	switch x.kind {
	case kindRule:
		return c.ends[x.rule]
	case kindGroup:
		return slices.ContainsFunc(x.group, c.canEnd)
	}
	return true
}

func (c *compiler) sequence(s sequence, next int32) int32 {
	for _, x := range slices.Backward(s) {
		next = c.item(x, next)
	}
	return next
}

// item writes repetitions out: as many copies as there must be, then either a
// loop or copies that may each be left out with all that follow.
func (c *compiler) item(x item, next int32) int32 {
	if !c.productive(x) { // it need not be there
		return next
	}
	once := func(next int32) int32 { return c.element(x.element, next) }
	if max(x.min, x.max) > 1 && x.kind != kindRule {
		// A rule of its own, so that a copy is one node.
		rule := int32(len(c.p.starts))
		c.p.starts = append(c.p.starts, 0)
		c.ends = append(c.ends, true)
		c.p.starts[rule] = c.element(x.element, end)
		once = func(next int32) int32 { return c.add(node{op: opCall, rule: rule, next: next}) }
	}
	at := next
	if x.max < 0 {
		at = c.add(node{op: opSplit})
		body := once(at)
		c.p.nodes[at].alts = []int32{body, next}
	}
	for range x.max - x.min {
		if c.err != nil {
			return end
		}
		at = c.add(node{op: opSplit, alts: []int32{once(at), next}})
	}
	for range x.min {
		if c.err != nil {
			return end
		}
		at = once(at)
	}
	return at
}

func (c *compiler) element(e element, next int32) int32 {
	switch e.kind {
	case kindText:
		for i := len(e.text) - 1; i >= 0; i-- {
			next = c.add(node{op: opBytes, edges: []edge{{e.text[i], e.text[i], next}}})
		}
		return next
	case kindClass:
		return c.class(e.class, next)
	case kindRule:
		return c.add(node{op: opCall, rule: int32(e.rule), next: next})
	case kindGroup:
		return c.alternatives(e.group, next)
	}
	id := e.token.id
	if e.token.text != "" {
		var err error
		if id, err = c.token(e.token.text); err != nil && c.err == nil {
			c.err = fmt.Errorf("grammar: %w", err)
		}
	}
	return c.add(node{op: opToken, token: id, not: e.token.not, next: next})
}

// class returns the node of one character, byte by byte in UTF-8.
func (c *compiler) class(set []runeRange, next int32) int32 {
	var tails [4]int32 // the nodes of so many continuation bytes of any value
	var edges []edge
	for _, r := range set {
		for _, s := range utf8Ranges(r) {
			to, full := next, true
			for i := len(s) - 1; i > 0; i-- {
				n := len(s) - i
				full = full && s[i] == anyContinuation
				if full && tails[n] != 0 {
					to = tails[n]
					continue
				}
				to = c.add(node{op: opBytes, edges: []edge{{s[i].lo, s[i].hi, to}}})
				if full {
					tails[n] = to
				}
			}
			edges = append(edges, edge{s[0].lo, s[0].hi, to})
		}
	}
	return c.add(node{op: opBytes, edges: edges})
}

type byteRange struct{ lo, hi byte }

var anyContinuation = byteRange{0x80, 0xbf}

// utf8Ranges spells a range of characters as sequences of ranges of bytes: the
// range is cut where the number of bytes changes, and then until in each part
// all bytes behind the first one that varies vary over all they can (as in
// Thompson's and RE2's compilation of UTF-8).
func utf8Ranges(r runeRange) [][]byteRange {
	for _, limit := range []rune{0x7f, 0x7ff, 0xffff} {
		if r.lo <= limit && r.hi > limit {
			return append(utf8Ranges(runeRange{r.lo, limit}), utf8Ranges(runeRange{limit + 1, r.hi})...)
		}
	}
	for bits := 6; bits < 6*utf8.RuneLen(r.lo); bits += 6 {
		m := rune(1)<<bits - 1
		if r.lo&^m == r.hi&^m {
			break
		}
		if r.lo&m != 0 {
			return append(utf8Ranges(runeRange{r.lo, r.lo | m}), utf8Ranges(runeRange{(r.lo | m) + 1, r.hi})...)
		}
		if r.hi&m != m {
			return append(utf8Ranges(runeRange{r.lo, r.hi&^m - 1}), utf8Ranges(runeRange{r.hi &^ m, r.hi})...)
		}
	}
	lo, hi := string(r.lo), string(r.hi)
	s := make([]byteRange, len(lo))
	for i := range s {
		s[i] = byteRange{lo[i], hi[i]}
	}
	return [][]byteRange{s}
}

// classify numbers the classes of bytes that no edge tells apart.
func (p *program) classify() {
	var starts [257]bool // a class begins here
	for _, n := range p.nodes {
		for _, e := range n.edges {
			starts[e.lo], starts[int(e.hi)+1] = true, true
		}
	}
	k := 0
	for b := range p.classes {
		if b > 0 && starts[b] {
			k++
		}
		p.classes[b] = uint8(k)
	}
	p.kinds = k + 1
}
