package grammar

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrAmbiguous: there are too many ways to go on in a grammar to follow
// them all. It is wrapped.
var ErrAmbiguous = errors.New("the grammar is too ambiguous")

// Bounds of the work on one state and in one call, and of the memory of the
// cache. Grammars that are not made to break things stay far below them.
const (
	maxPlaces = 1 << 15 // to go on from
	maxWork   = 1 << 21 // steps of settle in one call
	maxCache  = 64 << 20
)

// A stack says where to go on when the rule under way has ended, in each of the
// ways in which it was called: all of them at once, so that texts that can be
// read in exponentially many ways do not take as many stacks (Tomita's
// graph-structured stack, 1985). Stacks are shared: two that are equal are one.
type stack struct {
	id     uint64
	frames []frame
	bottom bool // one of the ways is that it is the root's own
}

// A frame is one call: the node behind it, and the stack of the rule that it
// stands in.
type frame struct {
	ret   int32
	below *stack
}

// A config is a node that takes the next byte or token, and the calls it is in.
type config struct {
	node  int32
	stack *stack
}

// A call is a frame in the making: while a state is settled, more ways to reach
// it may be found.
type call struct {
	ret    int32
	below  []calls
	ended  bool // the rule that was called can end without a byte
	frozen *stack
}

// calls are what a node is in: a stack, or a call in the making on top of some.
type calls struct {
	stack *stack
	call  *call
}

// A place is a node with one of the ways to be there.
type place struct {
	node int32
	in   calls
}

// A state is all ways to read a text, a config for each node, and remembers where each
// class of bytes leads.
type state struct {
	configs  []config
	complete bool     // the text may end here
	tokens   bool     // some config waits for a token
	next     []*state // by class of bytes; nil where not known yet
	mask     []uint64 // the tokens that may come, once known
}

// A machine runs the program of a grammar over a vocabulary. States and where
// they lead are found once and shared by all its matchers.
type machine struct {
	program *program
	vocab   *Vocabulary

	mu     sync.Mutex
	states map[string]*state
	stacks map[string]*stack
	ids    uint64
	size   int // of the cache, bytes or so
	work   int // left in this call
	key    []byte
	path   []*state

	// Scratch of settle.
	pending []place
	seen    map[place]struct{}
	open    map[int32]*call
	waiting map[int32][]calls // by node that takes the next byte or token
}

// dead is where no way is left.
var dead = &state{}

func newMachine(p *program, v *Vocabulary) *machine {
	m := &machine{program: p, vocab: v, seen: map[place]struct{}{}, open: map[int32]*call{}, waiting: map[int32][]calls{}}
	m.forget()
	return m
}

// forget empties the cache. States in use go on, and are found anew.
func (m *machine) forget() {
	for _, s := range m.states {
		clear(s.next)
		s.mask = nil
	}
	m.states, m.stacks, m.size = map[string]*state{}, map[string]*stack{}, 0
}

// begin opens a call: it gets its share of work, and a full cache is emptied.
func (m *machine) begin() {
	m.work = maxWork
	if m.size > maxCache {
		m.forget()
	}
}

// settle returns the state of the places in m.pending, followed through calls,
// splits and ends to where a byte or a token is wanted.
func (m *machine) settle() (*state, error) {
	clear(m.seen)
	clear(m.open)
	clear(m.waiting)
	s := &state{}
	for len(m.pending) > 0 {
		at := m.pending[len(m.pending)-1]
		m.pending = m.pending[:len(m.pending)-1]
		if _, ok := m.seen[at]; ok {
			continue
		}
		m.seen[at] = struct{}{}
		m.work--
		if len(m.seen) > maxPlaces || m.work < 0 {
			m.pending = m.pending[:0]
			return nil, fmt.Errorf("grammar: %w: there are more than %d ways to go on", ErrAmbiguous, maxPlaces)
		}
		switch n := &m.program.nodes[at.node]; n.op {
		case opEnd:
			s.complete = m.leave(at.in) || s.complete
		case opSplit:
			for _, to := range n.alts {
				m.pending = append(m.pending, place{to, at.in})
			}
		case opCall:
			in := at.in
			if n.next != end { // else what called us goes on
				in = calls{call: m.enter(n.next, at.in)}
			}
			m.pending = append(m.pending, place{m.program.starts[n.rule], in})
		default:
			s.tokens = s.tokens || n.op == opToken
			m.waiting[at.node] = append(m.waiting[at.node], at.in)
		}
	}
	for node, in := range m.waiting {
		s.configs = append(s.configs, config{node, m.freeze(in)})
	}
	return m.intern(s), nil
}

// enter returns the call whose rule goes on at ret, reached in one more way.
func (m *machine) enter(ret int32, in calls) *call {
	c := m.open[ret]
	if c == nil {
		c = &call{ret: ret}
		m.open[ret] = c
	}
	c.below = append(c.below, in)
	if c.ended {
		m.pending = append(m.pending, place{ret, in})
	}
	return c
}

// leave goes on behind a call, and reports whether the text may end.
func (m *machine) leave(in calls) (complete bool) {
	if c := in.call; c != nil {
		c.ended = true
		for _, below := range c.below {
			m.pending = append(m.pending, place{c.ret, below})
		}
		return false
	}
	for _, f := range in.stack.frames {
		m.pending = append(m.pending, place{f.ret, calls{stack: f.below}})
	}
	return in.stack.bottom
}

// freeze returns the stack of all these ways. No rule begins with itself, so
// that no call is below itself.
func (m *machine) freeze(all []calls) *stack {
	if len(all) == 1 && all[0].stack != nil {
		return all[0].stack
	}
	s := &stack{}
	for _, in := range all {
		c := in.call
		if c == nil {
			s.frames = append(s.frames, in.stack.frames...)
			s.bottom = s.bottom || in.stack.bottom
			continue
		}
		if c.frozen == nil {
			c.frozen = m.freeze(c.below)
		}
		s.frames = append(s.frames, frame{c.ret, c.frozen})
	}
	slices.SortFunc(s.frames, func(a, b frame) int {
		return cmp.Or(cmp.Compare(a.ret, b.ret), cmp.Compare(a.below.id, b.below.id))
	})
	s.frames = slices.Compact(s.frames)
	m.key = m.key[:0]
	for _, f := range s.frames {
		m.key = binary.AppendUvarint(m.key, uint64(f.ret))
		m.key = binary.AppendUvarint(m.key, f.below.id)
	}
	if s.bottom {
		m.key = append(m.key, 0)
	}
	if known, ok := m.stacks[string(m.key)]; ok {
		return known
	}
	m.ids++
	s.id = m.ids
	m.stacks[string(m.key)] = s
	m.size += 150 + 16*len(s.frames) + len(m.key)
	return s
}

// intern returns the state that the cache has for one, which it may become.
func (m *machine) intern(s *state) *state {
	if len(s.configs) == 0 && !s.complete {
		return dead
	}
	slices.SortFunc(s.configs, func(a, b config) int { return cmp.Compare(a.node, b.node) })
	m.key = m.key[:0]
	for _, c := range s.configs {
		m.key = binary.AppendUvarint(m.key, uint64(c.node))
		m.key = binary.AppendUvarint(m.key, c.stack.id)
	}
	if s.complete {
		m.key = append(m.key, 0)
	}
	if known, ok := m.states[string(m.key)]; ok {
		return known
	}
	s.configs = slices.Clip(s.configs)
	s.next = make([]*state, m.program.kinds)
	m.states[string(m.key)] = s
	m.size += 200 + 16*len(s.configs) + 8*len(s.next) + len(m.key)
	return s
}

// start returns the state of the empty text.
func (m *machine) start(root int) (*state, error) {
	bottom := m.freeze([]calls{{stack: &stack{bottom: true}}, {stack: &stack{bottom: true}}})
	m.pending = append(m.pending[:0], place{m.program.starts[root], calls{stack: bottom}})
	return m.settle()
}

// step returns the state after one more byte.
func (m *machine) step(s *state, b byte) (*state, error) {
	if s == dead {
		return dead, nil
	}
	class := m.program.classes[b]
	if to := s.next[class]; to != nil {
		return to, nil
	}
	for _, c := range s.configs {
		for _, e := range m.program.nodes[c.node].edges {
			if e.lo <= b && b <= e.hi {
				m.pending = append(m.pending, place{e.next, calls{stack: c.stack}})
			}
		}
	}
	to, err := m.settle()
	if err == nil {
		s.next[class] = to
	}
	return to, err
}

// stepToken returns the state after one more token: as its bytes, and as a
// whole where a config waits for it. A token that adds no bytes can only come
// as a whole.
func (m *machine) stepToken(s *state, id int32) (*state, error) {
	to := dead
	if piece := m.vocab.piece(id); len(piece) > 0 {
		to = s
		for _, b := range piece {
			var err error
			if to, err = m.step(to, b); err != nil {
				return nil, err
			}
		}
	}
	if !s.tokens {
		return to, nil
	}
	for _, c := range s.configs {
		if n := &m.program.nodes[c.node]; n.op == opToken && (n.token == id) != n.not {
			m.pending = append(m.pending, place{n.next, calls{stack: c.stack}})
		}
	}
	if len(m.pending) == 0 {
		return to, nil
	}
	for _, c := range to.configs {
		m.pending = append(m.pending, place{c.node, calls{stack: c.stack}})
	}
	whole := to.complete
	to, err := m.settle()
	if err == nil && whole && !to.complete {
		to = m.intern(&state{configs: to.configs, tokens: to.tokens, complete: true})
	}
	return to, err
}

// allows reports whether a token may come in a state.
func (m *machine) allows(s *state, id int32) (bool, error) {
	switch {
	case m.vocab.isEnd(id):
		return s.complete, nil
	case s.mask != nil:
		return s.mask[id>>6]>>(id&63)&1 != 0, nil
	}
	to, err := m.stepToken(s, id)
	return to != dead, err
}

// fill finds out for all tokens whether they may come. They are visited in the
// order of their bytes, so that a common beginning is walked once.
func (m *machine) fill(s *state) error {
	if s.mask != nil || s == dead {
		return nil
	}
	mask := make([]uint64, (m.vocab.size()+63)/64)
	path := append(m.path[:0], s) // path[n] is the state after n bytes of the token
	order, common := m.vocab.order()
	for i, id := range order {
		shared := int(common[i])
		if shared >= len(path) {
			continue // the beginning that it shares with the last led nowhere
		}
		path = path[:shared+1]
		to := path[shared]
		for _, b := range m.vocab.piece(id)[shared:] {
			var err error
			if to, err = m.step(to, b); err != nil {
				return err
			}
			if to == dead {
				break
			}
			path = append(path, to)
		}
		if to != dead {
			mask[id>>6] |= 1 << (id & 63)
		}
	}
	m.path = path
	if s.tokens {
		for id := range int32(m.vocab.size()) {
			to, err := m.stepToken(s, id)
			if err != nil {
				return err
			}
			if to != dead {
				mask[id>>6] |= 1 << (id & 63)
			}
		}
	}
	s.mask = mask
	m.size += 8 * len(mask)
	return nil
}
