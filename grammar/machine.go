package grammar

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrAmbiguous: the grammar can be read in too many ways at once to be
// followed. It is wrapped.
var ErrAmbiguous = errors.New("the grammar is too ambiguous")

// Bounds of the work on one state and in one call, and of the memory of the
// cache. Grammars that are not made to break things stay far below them.
const (
	maxConfigs = 1 << 13 // ways to read the text so far
	maxWork    = 1 << 21 // steps of closure in one call
	maxCache   = 64 << 20
)

// A stack says where to go on when the rule under way has ended. Stacks are
// shared: two that are equal are one.
type stack struct {
	id     uint64
	ret    int32
	parent *stack
}

type stackKey struct {
	ret    int32
	parent *stack
}

// A config is one way to read the text so far: the node that takes the next
// byte or token, and the calls it is in.
type config struct {
	node  int32
	stack *stack
}

// A state is the set of all ways to read a text, and remembers where each
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

	mu      sync.Mutex
	states  map[string]*state
	stacks  map[stackKey]*stack
	ids     uint64
	size    int // of the cache, bytes or so
	work    int // left in this call
	pending []config
	seen    map[config]struct{}
	key     []byte
	path    []*state
}

// dead is where no way is left.
var dead = &state{}

func newMachine(p *program, v *Vocabulary) *machine {
	m := &machine{program: p, vocab: v, seen: map[config]struct{}{}}
	m.forget()
	return m
}

// forget empties the cache. States in use go on, and are found anew.
func (m *machine) forget() {
	for _, s := range m.states {
		clear(s.next)
		s.mask = nil
	}
	m.states, m.stacks, m.size = map[string]*state{}, map[stackKey]*stack{}, 0
}

// begin opens a call: it gets its share of work, and a full cache is emptied.
func (m *machine) begin() {
	m.work = maxWork
	if m.size > maxCache {
		m.forget()
	}
}

func (m *machine) push(ret int32, parent *stack) *stack {
	k := stackKey{ret, parent}
	s, ok := m.stacks[k]
	if !ok {
		m.ids++
		s = &stack{m.ids, ret, parent}
		m.stacks[k] = s
		m.size += 64
	}
	return s
}

// settle returns the state of the configs in m.pending, followed through calls,
// splits and ends to where a byte or a token is wanted.
func (m *machine) settle() (*state, error) {
	clear(m.seen)
	s := &state{}
	nodes := m.program.nodes
	for len(m.pending) > 0 {
		c := m.pending[len(m.pending)-1]
		m.pending = m.pending[:len(m.pending)-1]
		if _, ok := m.seen[c]; ok {
			continue
		}
		m.seen[c] = struct{}{}
		m.work--
		if len(m.seen) > 4*maxConfigs || len(s.configs) > maxConfigs || m.work < 0 {
			m.pending = m.pending[:0]
			return nil, fmt.Errorf("grammar: %w: here it can be read in more than %d ways", ErrAmbiguous, maxConfigs)
		}
		switch n := &nodes[c.node]; n.op {
		case opEnd:
			if c.stack == nil {
				s.complete = true
			} else {
				m.pending = append(m.pending, config{c.stack.ret, c.stack.parent})
			}
		case opSplit:
			for _, to := range n.alts {
				m.pending = append(m.pending, config{to, c.stack})
			}
		case opCall:
			if n.next != end { // else what calls us goes on
				c.stack = m.push(n.next, c.stack)
			}
			m.pending = append(m.pending, config{m.program.starts[n.rule], c.stack})
		case opToken:
			s.tokens = true
			s.configs = append(s.configs, c)
		default:
			s.configs = append(s.configs, c)
		}
	}
	return m.intern(s), nil
}

// intern returns the state that the cache has for one, which it may become.
func (m *machine) intern(s *state) *state {
	if len(s.configs) == 0 && !s.complete {
		return dead
	}
	id := func(c config) uint64 {
		if c.stack == nil {
			return 0
		}
		return c.stack.id
	}
	slices.SortFunc(s.configs, func(a, b config) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(id(a), id(b)))
	})
	m.key = m.key[:0]
	for _, c := range s.configs {
		m.key = binary.AppendUvarint(m.key, uint64(c.node))
		m.key = binary.AppendUvarint(m.key, id(c))
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
	m.pending = append(m.pending[:0], config{m.program.starts[root], nil})
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
				m.pending = append(m.pending, config{e.next, c.stack})
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
			m.pending = append(m.pending, config{n.next, c.stack})
		}
	}
	if len(m.pending) == 0 {
		return to, nil
	}
	m.pending = append(m.pending, to.configs...)
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
