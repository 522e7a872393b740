package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/generate"
	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/sampler"
	"github.com/sortes-llm/sortes/speculative"
)

const contextSize = 2048

// ours is sortes with its models open: target and drafts share one pool of
// threads.
type ours struct {
	pool     *llama.Pool
	models   []*llama.Model
	sessions []*llama.Session
	target   *llama.Session
	wide     *llama.Session // the target with branches, for trees; nil before there are any
	widths   []int          // of trees
	vocab    *llama.Vocab
	exact    bool
	tokens   int // of a text at most

	drafts map[string]*speculative.Model // by file, rule and whether they are trees
	read   []int32                       // the prompt that the sessions have read
}

func openOurs(ctx context.Context, path string, threads, tokens int, exact bool, widths []int) (*ours, error) {
	pool, err := llama.NewPool(threads)
	if err != nil {
		return nil, err
	}
	o := &ours{pool: pool, exact: exact, tokens: tokens, widths: widths, drafts: map[string]*speculative.Model{}}
	model, err := o.open(ctx, path)
	if err == nil {
		o.target, err = o.session(model, llama.SessionOptions{Exact: exact})
	}
	if err != nil {
		o.close()
		return nil, err
	}
	o.vocab = model.Vocab()
	return o, nil
}

// open opens a model.
func (o *ours) open(ctx context.Context, path string) (*llama.Model, error) {
	model, err := llama.Open(ctx, path, llama.ModelOptions{})
	if err == nil {
		o.models = append(o.models, model)
	}
	return model, err
}

func (o *ours) session(model *llama.Model, options llama.SessionOptions) (*llama.Session, error) {
	options.Context, options.Pool, options.Outputs = contextSize, o.pool, 65
	session, err := model.NewSession(options)
	if err != nil {
		return nil, err
	}
	o.sessions = append(o.sessions, session)
	return session, nil
}

// openWide opens the session for trees. The others have one without branches,
// as if there were no trees.
func (o *ours) openWide() (err error) {
	branches := speculative.ModelOptions{Widths: o.widths}.Branches()
	o.wide, err = o.session(o.models[0], llama.SessionOptions{Unified: true, Branches: branches})
	return err
}

// targetOf returns the session that judges the drafts of a side.
func (o *ours) targetOf(s *side) *llama.Session {
	if s.tree {
		return o.wide
	}
	return o.target
}

func (o *ours) close() {
	for _, s := range slices.Backward(o.sessions) {
		s.Close()
	}
	for _, m := range slices.Backward(o.models) {
		m.Close()
	}
	o.pool.Close()
}

// draft returns the drafter that a model file is under a rule, with widths for
// trees.
func (o *ours) draft(ctx context.Context, path string, rule speculative.Rule, widths []int) (*speculative.Model, error) {
	key := fmt.Sprint(rule, widths, path)
	if d := o.drafts[key]; d != nil {
		return d, nil
	}
	model, err := o.open(ctx, path)
	if err != nil {
		return nil, err
	}
	if err := speculative.CheckVocab(o.vocab, model.Vocab()); err != nil {
		return nil, err
	}
	session, err := o.session(model, llama.SessionOptions{KeyType: model.DraftKeyType()})
	if err != nil {
		return nil, err
	}
	d, err := speculative.NewModel(session, speculative.ModelOptions{Rule: rule, Widths: widths, IsEnd: o.vocab.IsEOG})
	if err != nil {
		return nil, err
	}
	o.drafts[key] = d
	return d, nil
}

// A side is a way to generate.
type side struct {
	name    string
	rule    speculative.Rule
	models  []string // files of draft models
	ngram   bool     // before them
	look    bool     // lookahead
	tree    bool     // drafts are trees
	fixed   bool     // without the controller
	cold    bool     // everything learnt is forgotten before each text
	extra   bool     // measured only where it is asked for
	lengths []int    // lengths that the best is looked for among, of a fixed one

	cascade *speculative.Cascade
}

func (s *side) plain() bool { return !s.ngram && !s.look && len(s.models) == 0 }

// makeCascade makes the side's drafters and their controller. n bounds a draft.
func (s *side) makeCascade(ctx context.Context, o *ours, n int) error {
	var drafters []speculative.Drafter
	if s.ngram {
		d, err := speculative.NewNGram(speculative.NGramOptions{IsEnd: o.vocab.IsEOG})
		if err != nil {
			return err
		}
		drafters = append(drafters, d)
	}
	if s.look {
		d, err := speculative.NewLookahead(speculative.LookaheadOptions{})
		if err != nil {
			return err
		}
		drafters = append(drafters, d)
	}
	var widths []int
	if s.tree {
		widths = o.widths
	}
	for _, path := range s.models {
		d, err := o.draft(ctx, path, s.rule, widths)
		if err != nil {
			return err
		}
		drafters = append(drafters, d)
	}
	var err error
	s.cascade, err = speculative.NewCascade(speculative.ControllerOptions{Max: n, Fixed: s.fixed}, drafters...)
	return err
}

// prepare lets target and draft models read a prompt, so that what follows is
// measured with the prompt in the cache, as llama.cpp's tools do.
func (o *ours) prepare(ctx context.Context, p prompt) error {
	if slices.Equal(o.read, p.tokens) {
		return nil
	}
	o.read = nil
	for _, s := range []*side{{}, {tree: true}} {
		target := o.targetOf(s)
		if target == nil {
			continue
		}
		if err := target.Truncate(0, 0); err != nil {
			return err
		}
		if _, _, err := o.generate(ctx, s, p, 0, 1, 1); err != nil {
			return err
		}
	}
	o.read = p.tokens
	for _, d := range o.drafts {
		text := speculative.Text{History: p.tokens, PromptLen: len(p.tokens), Seed: 1}
		var err error
		if text.Sampler, err = sampler.New(sampling(0)); err != nil {
			return err
		}
		if _, err := d.Draft(ctx, text, 1); err != nil {
			return err
		}
		d.End(0)
	}
	return nil
}

func sampling(temperature float64) sampler.Config {
	c := sampler.Default()
	c.Temperature = temperature
	return c
}

// run writes a text, and measures from the last token of the prompt on.
func (o *ours) run(ctx context.Context, s *side, n int, p prompt, temperature float64, seed uint64) (measurement, []int32, error) {
	if err := o.prepare(ctx, p); err != nil {
		return measurement{}, nil, err
	}
	if !s.plain() && (s.cold || s.cascade == nil || s.cascade.Controller().Max() != n && n > 0) {
		before := len(o.drafts)
		if s.tree && o.wide == nil {
			if err := o.openWide(); err != nil {
				return measurement{}, nil, err
			}
		}
		if err := s.makeCascade(ctx, o, n); err != nil {
			return measurement{}, nil, err
		}
		if len(o.drafts) > before { // new, and has to read the prompt
			o.read = nil
			if err := o.prepare(ctx, p); err != nil {
				return measurement{}, nil, err
			}
		}
	}
	text, stats, err := o.generate(ctx, s, p, temperature, seed, o.tokens)
	if err != nil {
		return measurement{}, nil, err
	}
	if stats.Evaluated != 1 {
		return measurement{}, nil, fmt.Errorf("%d tokens of the prompt were not in the cache", stats.Evaluated)
	}
	d := stats.Drafts
	m := measurement{
		Length: n, Tokens: len(text), Seconds: (stats.PromptTime + stats.GenerateTime).Seconds(),
		Rounds: d.Rounds, Draft: d.Draft.Seconds(), Verify: d.Verify.Seconds(), Sampling: d.Sampling.Seconds(),
		Distinct: distinct4(text),
	}
	for _, r := range d.ByRank {
		m.Drafted += r.Drafted
		m.Tested += r.Tested
		m.Accepted += r.Accepted
	}
	return m, text, nil
}

// generate writes a text of n tokens at most with an engine of its own, and
// leaves the prompt in the target's cache.
func (o *ours) generate(ctx context.Context, s *side, p prompt, temperature float64, seed uint64, n int) (text []int32, stats generate.Stats, err error) {
	target := o.targetOf(s)
	held := min(target.Len(0), len(p.tokens)-1)
	if err := target.Truncate(0, held); err != nil {
		return nil, stats, err
	}
	engine, err := generate.New(target, o.vocab, generate.Options{
		Exact: o.exact, Held: [][]int32{p.tokens[:held]}, Drafts: s.cascade, Rule: s.rule,
	})
	if err != nil {
		return nil, stats, err
	}
	defer engine.Close()
	request := generate.Request{Prompt: p.tokens, MaxTokens: n, Sampling: sampling(temperature), Seed: seed, Stats: &stats}
	for token, err := range engine.Stream(ctx, request) {
		if err != nil {
			return nil, stats, err
		}
		text = append(text, token.ID)
	}
	return text, stats, nil
}

// growth measures what an evaluation takes of n rows at a depth, for n from 1
// to most: medians in seconds.
func growth(ctx context.Context, s *llama.Session, token int32, depth, most, rounds int, median func([]float64) float64) ([]float64, error) {
	rows := make([]eval.Row, depth)
	for i := range rows {
		rows[i].Token = token
	}
	if err := s.Truncate(0, 0); err != nil {
		return nil, err
	}
	if err := s.Eval(ctx, rows); err != nil {
		return nil, err
	}
	took := make([][]float64, most)
	for range rounds {
		for n := range took {
			rows := make([]eval.Row, n+1)
			for i := range rows {
				rows[i] = eval.Row{Token: token, Output: true}
			}
			start := time.Now()
			if err := s.Eval(ctx, rows); err != nil {
				return nil, err
			}
			took[n] = append(took[n], time.Since(start).Seconds())
			if err := s.Truncate(0, depth); err != nil {
				return nil, err
			}
		}
	}
	medians := make([]float64, most)
	for n := range took {
		medians[n] = median(took[n])
	}
	return medians, s.Truncate(0, 0)
}
