package speculative

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scripted is a drafter that proposes the same each time.
type scripted struct {
	tokens []int32
	err    error
	calls  int
	ended  []int
}

func (s *scripted) Draft(_ context.Context, _ Text, n int) (Draft, error) {
	s.calls++
	return Draft{Tokens: s.tokens[:min(n, len(s.tokens))]}, s.err
}

func (s *scripted) End(slot int) { s.ended = append(s.ended, slot) }

// sure is one that says how likely its tokens are.
type sure struct {
	scripted
	confidence []float64
	learnt     int
}

func (s *sure) Confidence() []float64         { return s.confidence }
func (s *sure) Learn(int, []int32, []float32) { s.learnt++ }

var (
	_ Estimator = (*NGram)(nil)
	_ Learner   = (*NGram)(nil)
	_ Learner   = (*Lookahead)(nil)
	_ Drafter   = (*Lookahead)(nil)
)

func TestCascadeInOrder(t *testing.T) {
	first := &sure{scripted: scripted{tokens: []int32{1, 2}}, confidence: []float64{.1, .1}}
	second := &scripted{tokens: []int32{7, 8, 9}}
	c, err := NewCascade(ControllerOptions{Fixed: true, Max: 3}, first, second)
	require.NoError(t, err)
	clock := time.Unix(0, 0)
	c.now = func() time.Time { clock = clock.Add(time.Second); return clock }
	text := Text{Slot: 4, History: []int32{1}}
	b := Batch{Texts: 1, Room: 9}

	d, r, err := c.Draft(t.Context(), text, b)
	require.NoError(t, err)
	assert.Equal(t, []int32{1, 2}, d.Tokens)
	assert.Equal(t, Round{Slot: 4, Drafter: 0, Asked: 2, Drafted: 2, Offered: true, Draft: time.Second}, r)
	assert.Zero(t, second.calls)

	first.tokens, first.confidence = nil, nil
	d, r, err = c.Draft(t.Context(), text, b)
	require.NoError(t, err)
	assert.Equal(t, []int32{7, 8, 9}, d.Tokens)
	assert.Equal(t, Round{Slot: 4, Drafter: 1, Asked: 3, Drafted: 3, Draft: time.Second}, r)

	calls := first.calls
	d, _, err = c.Draft(t.Context(), text, Batch{Texts: 1})
	require.NoError(t, err)
	assert.Empty(t, d.Tokens)
	assert.Equal(t, calls, first.calls, "no room, nothing asked")

	assert.True(t, c.Learns())
	c.Learn(4, []int32{1}, []float32{1})
	assert.Equal(t, 1, first.learnt)
	c.End(4)
	assert.Equal(t, []int{4}, first.ended)
	assert.Equal(t, []int{4}, second.ended)
}

// A drafter that fails is left out for the text, not for the next one.
func TestCascadeGoesOnAfterAFailure(t *testing.T) {
	broken := errors.New("broken")
	first := &sure{scripted: scripted{err: broken}}
	second := &scripted{tokens: []int32{7}, err: broken}
	third := &scripted{tokens: []int32{8}}
	c, err := NewCascade(ControllerOptions{Fixed: true, Max: 3}, first, second, third)
	require.NoError(t, err)
	draft := func() ([]int32, error) {
		d, r, err := c.Draft(t.Context(), Text{History: []int32{1}}, Batch{Texts: 1, Room: 9})
		c.Controller().Observe(r)
		return d.Tokens, err
	}
	for range 2 {
		tokens, err := draft()
		assert.ErrorIs(t, err, broken)
		assert.EqualError(t, err, "speculative: drafter 0: broken")
		assert.Empty(t, tokens)
		_, err = draft()
		assert.EqualError(t, err, "speculative: drafter 1: broken")
		tokens, err = draft()
		require.NoError(t, err)
		assert.Equal(t, []int32{8}, tokens)
		c.End(0)
	}
}

func TestCascadeNeedsDrafters(t *testing.T) {
	_, err := NewCascade(ControllerOptions{})
	assert.EqualError(t, err, "speculative: 0 drafters: there must be at least 1")
	_, err = NewCascade(ControllerOptions{}, nil)
	assert.EqualError(t, err, "speculative: drafter 0 is nil")
}

// Two rounds, worked by hand.
func TestStats(t *testing.T) {
	var s Stats
	s.Count(Round{Drafter: 1, Drafted: 3, Accepted: 1, Draft: 1, Verify: 2, Sampling: 3, Rest: 4})
	s.Count(Round{Verify: 10})
	s.Plain = 30
	want := Stats{
		Rounds: 2, Drafts: 1, Tokens: 3,
		ByRank:  []RankStats{{1, 1, 1}, {1, 1, 0}, {1, 0, 0}},
		Drafter: []DrafterStats{{}, {1, 3, 1}},
		Draft:   1, Verify: 12, Sampling: 3, Rest: 4, Plain: 30,
	}
	assert.Equal(t, want, s)
	assert.Equal(t, 1.5, s.TokensPerRound())
	assert.Equal(t, .5, s.Acceptance(), "the third draft was not tested")
	assert.Equal(t, 1.5, s.Speedup())

	var merged Stats
	merged.Merge(s)
	merged.Merge(s)
	assert.Equal(t, Stats{
		Rounds: 4, Drafts: 2, Tokens: 6,
		ByRank:  []RankStats{{2, 2, 2}, {2, 2, 0}, {2, 0, 0}},
		Drafter: []DrafterStats{{}, {2, 6, 2}},
		Draft:   2, Verify: 24, Sampling: 6, Rest: 8, Plain: 60,
	}, merged)
	var none Stats
	assert.Zero(t, none.TokensPerRound()+none.Acceptance()+none.Speedup())
}

// What the target says behind guesses that fell are the next guesses; n-grams
// that passed by are drafted when their beginning comes up.
func TestLookahead(t *testing.T) {
	l, err := NewLookahead(LookaheadOptions{Window: 3, N: 3})
	require.NoError(t, err)
	says := func(token int32) []float32 {
		row := make([]float32, 20)
		row[token] = 1
		return row
	}
	draft := func(history ...int32) []int32 {
		d, err := l.Draft(t.Context(), Text{History: history}, 8)
		require.NoError(t, err)
		return d.Tokens
	}
	assert.Equal(t, []int32{1, 1, 1}, draft(1), "nothing is known: the last token again")
	// The target: 5 after the text, so the first guess falls; 6, 7, 8 behind.
	l.Learn(0, []int32{1}, says(5))
	l.Learn(0, []int32{1, 1}, says(6))
	l.Learn(0, []int32{1, 1, 1}, says(7))
	l.Learn(0, []int32{1, 1, 1, 1}, says(8))
	assert.Equal(t, []int32{6, 7, 8}, draft(1, 5))
	// The n-gram 1 1 7, and later 1 1 8, passed by.
	l.End(0)
	draft(1, 1)
	l.Learn(0, []int32{2, 3}, says(4))
	assert.Equal(t, []int32{4, 4, 4}, draft(9, 2, 3))
	l.End(0)
	l.End(5)
	assert.Equal(t, []int32{3, 3, 3}, draft(9, 2, 3), "another text")
	l.Learn(7, []int32{1}, says(1))

	_, err = NewLookahead(LookaheadOptions{Window: 17})
	assert.EqualError(t, err, "speculative: Window is 17: it must be in [1, 16], or 0 for 4")
	_, err = NewLookahead(LookaheadOptions{N: 1})
	assert.EqualError(t, err, "speculative: N is 1: it must be in [2, 8], or 0 for 3")
}
