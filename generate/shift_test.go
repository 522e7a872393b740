package generate

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
)

// shifting is generation with a context shift, written down: the window is what
// the cache holds and the token behind it.
func shifting(context, keep int, r Request) []int32 {
	tokens, window := slices.Clone(r.Prompt), slices.Clone(r.Prompt)
	row := make([]float32, len(tablemodel.Pieces))
	s, err := sampler.New(r.Sampling)
	if err != nil {
		panic(err)
	}
	for range r.MaxTokens {
		tablemodel.Hashed(0)(row, window)
		id, err := s.Pick(row, tokens, sampler.Draw{Seed: r.Seed, Pos: len(tokens)})
		if err != nil {
			panic(err)
		}
		tokens, window = append(tokens, id), append(window, id)
		if len(window) == context+1 {
			half := (context - keep) / 2
			window = slices.Concat(window[:keep], window[keep+half:])
		}
	}
	return tokens[len(r.Prompt):]
}

// A text goes on past the end of its context, also beside others, with drafts,
// and where another takes its sequence for a while.
func TestContextShift(t *testing.T) {
	var all []Request
	for i := range 4 {
		all = append(all, Request{
			Prompt: prompt(6+i, i), MaxTokens: 60 + i, IgnoreEOG: true, Seed: uint64(i), ContextShift: true, Keep: i * 3,
			Sampling: sampler.Config{Temperature: float64(i) / 3, RepeatPenalty: 1.1, PenaltyLastN: 40},
		})
	}
	for name, c := range map[string]tablemodel.Config{
		"alone": {}, "in company": {Sequences: 4}, "too few cells": {Sequences: 4, Cells: 70},
	} {
		for _, drafted := range []bool{false, true} {
			c.Context = 24
			o := Options{PrefillChunk: 5}
			if drafted {
				o.Drafts = drafts(&oracle{mistakes: 3})
			}
			e := newEngine(t, tablemodel.New(c), o)
			for i, got := range runAll(t, e, all) {
				require.NoError(t, got.err)
				assert.Equal(t, shifting(24, all[i].Keep, all[i]), got.ids(), "%s, drafted %v, request %d", name, drafted, i)
			}
			// What was moved is not taken for what a new text begins with.
			r := all[1]
			r.Prompt, r.MaxTokens = join(r.Prompt, shifting(24, r.Keep, r)[:10]), 5
			got := runRequest(t, t.Context(), e, r)
			assert.Equal(t, shifting(24, r.Keep, r), got.ids())
		}
	}
}

// What a shift has moved is no prefix for another text, though its tokens are
// the same: their keys and values were computed behind tokens that are gone.
func TestContextShiftIsNotReused(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{Context: 24})
	e := newEngine(t, m, Options{})
	r := Request{Prompt: prompt(6, 3), MaxTokens: 30, IgnoreEOG: true, ContextShift: true, Keep: 4}
	require.NoError(t, runRequest(t, t.Context(), e, r).err)
	e.Close() // the model is the test's own again
	held := m.Tokens(0)
	assert.Len(t, held, 4, "what was moved is dropped")
	e = newEngine(t, m, Options{Held: [][]int32{held}})

	// 6 and 19 tokens fill the context and one more: of the 20 behind the 4 that
	// stay 10 go. The window before the last tokens, as a prompt of its own:
	text := join(r.Prompt, shifting(24, 4, r))
	window := join(text[:4], text[14:25])
	o := runRequest(t, t.Context(), e, Request{Prompt: window, MaxTokens: 3, IgnoreEOG: true})
	assert.Equal(t, 4, o.stats.Cached)
}

// Keeping everything leaves room for one token at a time.
func TestContextShiftKeepsAll(t *testing.T) {
	r := Request{Prompt: prompt(10, 3), MaxTokens: 20, IgnoreEOG: true, ContextShift: true, Keep: 1000}
	e := newEngine(t, tablemodel.New(tablemodel.Config{Context: 12}), Options{})
	got := runRequest(t, t.Context(), e, r)
	require.NoError(t, got.err)
	assert.Len(t, got.tokens, 20)
}

func TestContextShiftRefused(t *testing.T) {
	e := newEngine(t, tablemodel.New(tablemodel.Config{NoRollback: true}), Options{})
	o := runRequest(t, t.Context(), e, Request{Prompt: prompt(3, 1), ContextShift: true})
	assert.EqualError(t, o.err, "generate: a context shift is not possible: the memory of this model cannot drop tokens from the middle of a sequence")
	o = runRequest(t, t.Context(), e, Request{Prompt: prompt(3, 1), Keep: -1})
	assert.EqualError(t, o.err, "generate: Keep is -1: it must be at least 0")
	bare, err := New(newInstant(1), tablemodel.Words(), Options{})
	require.NoError(t, err)
	defer bare.Close()
	o = runRequest(t, t.Context(), bare, Request{Prompt: prompt(3, 1), ContextShift: true})
	assert.EqualError(t, o.err, "generate: a context shift needs an evaluator that can drop tokens from the middle of a sequence")
}
