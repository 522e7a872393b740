package grammar

import (
	"errors"
	"fmt"
)

// ErrRejected: a token that the grammar does not allow was accepted. It is
// wrapped.
var ErrRejected = errors.New("the grammar does not allow this token")

// A Matcher follows a text token by token and says which may come next. It
// belongs to one text and one goroutine at a time; its clones may be used by
// others. It fits sampler.Config's Constraint.
//
// Tokens count by the bytes that they add to the text. A token that adds none,
// such as a control token, is allowed only where the grammar names it. A token
// that ends a text is allowed where the text so far is complete, and nowhere
// else; nothing is allowed behind it.
type Matcher struct {
	m     *machine
	state *state
	ended bool
	err   error
}

// Matcher returns the matcher of the empty text. What one matcher of a grammar
// finds out the next ones know only if they are its clones: keep one, and clone
// it for each text. Tokens that the grammar names must exist.
func (g *Grammar) Matcher(v *Vocabulary) (*Matcher, error) {
	p, err := compile(g, v.token)
	if err != nil {
		return nil, err
	}
	for _, n := range p.nodes {
		switch {
		case n.op != opToken:
		case !v.has(n.token):
			return nil, fmt.Errorf("grammar: <[%d]> is no token of this vocabulary, which has %d", n.token, v.size())
		case !n.not && v.isEnd(n.token):
			return nil, fmt.Errorf("grammar: <[%d]> ends a text: it comes by itself where the grammar is complete, and cannot be named", n.token)
		}
	}
	m := newMachine(p, v)
	m.begin()
	s, err := m.start(g.root)
	if err != nil {
		return nil, err
	}
	return &Matcher{m: m, state: s}, nil
}

// Clone returns a *Matcher at the same place, which goes its own way. It costs
// next to nothing.
func (t *Matcher) Clone() any {
	n := *t
	return &n
}

// Complete reports whether the text may end here.
func (t *Matcher) Complete() bool { return t.err == nil && !t.ended && t.state.complete }

// Allow appends to dst those of the tokens, in their order, that may come next.
// A token outside the vocabulary may not. The error wraps [ErrAmbiguous], or is
// that of an earlier [Matcher.Accept].
func (t *Matcher) Allow(dst, tokens []int32) ([]int32, error) {
	if t.err != nil || t.ended {
		return dst, t.err
	}
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	t.m.begin()
	if len(tokens) > t.m.vocab.size()/8 {
		if err := t.m.fill(t.state); err != nil {
			return dst, err
		}
	}
	for _, id := range tokens {
		if !t.m.vocab.has(id) {
			continue
		}
		ok, err := t.m.allows(t.state, id)
		if err != nil {
			return dst, err
		}
		if ok {
			dst = append(dst, id)
		}
	}
	return dst, nil
}

// Accept goes on by one token. One that is not allowed is an error that wraps
// [ErrRejected]; the matcher then refuses everything with that error.
func (t *Matcher) Accept(token int32) error {
	if t.err != nil {
		return t.err
	}
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	t.m.begin()
	switch {
	case t.ended || !t.m.vocab.has(token):
		t.err = fmt.Errorf("grammar: token %d: %w", token, ErrRejected)
	case t.m.vocab.isEnd(token):
		if t.ended = t.state.complete; !t.ended {
			t.err = fmt.Errorf("grammar: token %d, which ends the text before it is complete: %w", token, ErrRejected)
		}
	default:
		to, err := t.m.stepToken(t.state, token)
		if err == nil && to == dead {
			err = fmt.Errorf("grammar: token %d, %q: %w", token, t.m.vocab.piece(token), ErrRejected)
		}
		t.state, t.err = to, err
	}
	return t.err
}
