package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/sortes-llm/sortes/generate"
	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/speculative"
)

// A comparison has the models that strategies run on: opened once, for one text
// at a time.
type comparison struct {
	*models
	o   *compareOptions
	log *slog.Logger

	keep bool    // a text starts from what the one before has left in the target's cache
	held []int32 // what that is

	// What texts leave for later ones to draft from, by strategy; nil while
	// nothing is kept.
	stores map[string]*speculative.Index
}

// A generation is one text that a strategy has generated.
type generation struct {
	stats  generate.Stats
	tokens []generate.Token
}

func (g *generation) ids() []int32 {
	var ids []int32
	for _, t := range g.tokens {
		ids = append(ids, t.ID)
	}
	return ids
}

func (g *generation) text() string {
	var text strings.Builder
	for _, t := range g.tokens {
		text.WriteString(t.Text)
	}
	return text.String()
}

// run generates a text, and hands each token to see. An error of see ends it.
func (c *comparison) run(ctx context.Context, s strategy, request generate.Request, see func(generate.Token) error) (g generation, err error) {
	request.Stats = &g.stats
	if err := c.reset(); err != nil {
		return g, err
	}
	o := *c.o.options
	o.speculation.types, o.speculation.rule = s.types(), s.rule
	if !s.tree {
		o.speculation.widths = nil
	}
	if o.speculation.drafts(drafterNGram) {
		if c.lookup, err = c.store(s); err != nil {
			return g, err
		}
	}
	engine, err := c.engine(&o, c.target.Vocab(), c.held, c.log)
	if err != nil {
		return g, err
	}
	for token, streamErr := range engine.Stream(ctx, request) {
		if err = streamErr; err != nil {
			break
		}
		g.tokens = append(g.tokens, token)
		if err = see(token); err != nil {
			break
		}
	}
	engine.Close()
	// What the sequence holds is a beginning of the text.
	text := append(slices.Clone(request.Prompt), g.ids()...)
	c.held = text[:min(c.session.Len(0), len(text))]
	return g, err
}

// reset empties the caches, so that each text has the same to do.
func (c *comparison) reset() error {
	if !c.keep || c.session.Len(0) != len(c.held) {
		if err := c.forget(); err != nil {
			return err
		}
	}
	others := c.followers
	if c.drafting != nil {
		others = append(slices.Clone(others), c.drafting)
	}
	for _, s := range others {
		if err := empty(s); err != nil {
			return err
		}
	}
	return nil
}

// forget empties the target's cache.
func (c *comparison) forget() error {
	c.held = nil
	return empty(c.session)
}

func empty(s *llama.Session) error {
	for seq := range s.Limits().Sequences {
		if err := s.Truncate(seq, 0); err != nil {
			return err
		}
	}
	return nil
}

// store returns the n-grams that a text of a strategy may draft from besides its
// own: those of -lcs, and of earlier texts where these are kept. It is nil where
// there are none. No strategy sees what another has generated.
func (c *comparison) store(s strategy) (*speculative.Index, error) {
	if store := c.stores[s.name]; store != nil {
		return store, nil
	}
	o := &c.o.speculation
	store, err := o.loadLookupCache(c.target.Vocab().Size())
	if err == nil && store == nil && c.stores != nil {
		store, err = speculative.NewIndex(speculative.IndexOptions{MinContext: o.shortest, MaxContext: o.longest})
	}
	if err == nil && c.stores != nil {
		c.stores[s.name] = store
	}
	return store, err
}
