package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/generate"
	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/speculative"
)

// models are what a text is generated with: the model, and where they are asked
// for a draft model and amateurs. Their sessions compute with one set of
// threads: two that spin on the same cores would take most of each other's
// speed.
type models struct {
	target, draft *llama.Model // no draft: nil
	amateurs      []*llama.Model

	session   *llama.Session // the target's
	drafting  *llama.Session
	forDraft  llama.SessionOptions // what drafting has, or would have
	followers []*llama.Session     // the amateurs'

	lookup   *speculative.Index // of -lcs and -lcd
	noDrafts string             // why there are none that were asked for

	closers []func() // in the order in which things were opened
}

// close closes everything, and each thing once.
func (m *models) close() {
	for i := len(m.closers) - 1; i >= 0; i-- {
		m.closers[i]()
	}
	m.closers = nil
}

func (m *models) onClose(f func()) { m.closers = append(m.closers, f) }

// openModels loads the models that the options ask for, which are resolved, and
// checks that they go together.
func (a *app) openModels(o *options) (*models, error) {
	m := new(models)
	if err := a.loadModels(m, o); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (a *app) loadModels(m *models, o *options) (err error) {
	load := func(flag, path string, options llama.ModelOptions) (*llama.Model, error) {
		x, err := a.open(flag, path, options)
		if err == nil {
			m.onClose(x.Close)
		}
		return x, err
	}
	if m.target, err = load("-m", o.model, o.load); err != nil || o.predict == 0 {
		return err
	}

	other := o.load // metadata is replaced for the target only
	other.Overrides = nil
	for _, path := range o.contrast.amateurs {
		amateur, err := load("--cd-model", path, other)
		if err != nil {
			return err
		}
		if err := sameVocab(m.target, amateur); err != nil {
			return fmt.Errorf("--cd-model %s: %w", path, err)
		}
		m.amateurs = append(m.amateurs, amateur)
	}

	if len(o.speculation.types) == 0 {
		return nil
	}
	for _, x := range append([]*llama.Model{m.target}, m.amateurs...) {
		if facts := x.Facts(); facts.Recurrent || facts.Hybrid {
			m.noDrafts = fmt.Sprintf("with %s models, whose memory cannot drop the end of a text", facts.Architecture)
			return nil
		}
	}
	if o.speculation.drafts(drafterModel) {
		if m.draft, err = a.openDraft(m, o, "-md", o.speculation.model); err != nil {
			return err
		}
		m.onClose(m.draft.Close)
	}
	return nil
}

// openDraft loads the draft model that a flag names.
func (a *app) openDraft(m *models, o *options, flag, path string) (*llama.Model, error) {
	settings, s := o.load, &o.speculation.load
	settings.Overrides = nil
	settings.CPUOnly, settings.GPULayers, settings.Devices = s.CPUOnly, s.GPULayers, s.Devices
	draft, err := a.open(flag, path, settings)
	if err != nil {
		return nil, err
	}
	if err := speculative.CheckVocab(m.target.Vocab(), draft.Vocab()); err != nil {
		draft.Close()
		return nil, fmt.Errorf("%s %s: %w", flag, path, err)
	}
	return draft, nil
}

// sameVocab reports how an amateur's vocabulary differs from the target's: its
// logits are taken from the target's, token by token.
func sameVocab(target, amateur *llama.Model) error {
	if err := speculative.CheckVocab(target.Vocab(), amateur.Vocab()); err != nil {
		return err
	}
	if n, m := target.Vocab().Size(), amateur.Vocab().Size(); n != m {
		return fmt.Errorf("another vocabulary: it has %d tokens, the target %d", m, n)
	}
	return nil
}

// start makes the sessions of the models, with the adapters of the target.
func (m *models) start(ctx context.Context, o *options) error {
	s := &o.speculation
	threads := max(o.threads, o.batchThreads)
	if m.draft != nil {
		threads = max(threads, s.threads, s.batchThreads)
	}
	pool, err := llama.NewPool(threads)
	if err != nil {
		return err
	}
	m.onClose(pool.Close)

	settings := o.session
	settings.Pool = pool
	// A sliding window keeps the cells of one microbatch beyond the window. A
	// draft that goes further back needs all.
	windows := len(m.drafters(o)) > 0 && settings.Microbatch < 2*(s.most+1)
	settings.FullSWA = settings.FullSWA || windows
	target := settings
	if target.Branches = m.branches(o); target.Branches > 0 {
		target.Unified, target.FullSWA = true, true
	}
	adapters, err := m.loadAdapters(o.loras)
	if err != nil {
		return err
	}
	if m.session, err = m.newSession(ctx, m.target, target); err != nil {
		return err
	}
	if len(adapters) > 0 {
		if err := m.session.SetAdapters(adapters...); err != nil {
			return err
		}
	}

	settings.Context = m.session.Limits().Context
	settings.RopeFreqBase, settings.RopeFreqScale = 0, 0 // as --override-kv, the target's only
	for i, amateur := range m.amateurs {
		session, err := m.newSession(ctx, amateur, settings)
		if err != nil {
			return fmt.Errorf("--cd-model %s: %w", o.contrast.amateurs[i], err)
		}
		m.followers = append(m.followers, session)
	}
	settings.Exact, settings.Outputs = false, 0 // its tokens are only proposals, one row each
	settings.Threads, settings.BatchThreads = s.threads, s.batchThreads
	settings.KeyType, settings.ValueType = s.keyType, s.valueType
	m.forDraft = settings
	if m.draft != nil {
		if m.drafting, err = newDraftSession(ctx, m.draft, settings); err != nil {
			return fmt.Errorf("-md %s: %w", s.model, err)
		}
		m.onClose(m.drafting.Close)
	}
	if slices.Contains(m.drafters(o), drafterNGram) {
		m.lookup, err = s.loadLookupCache(m.target.Vocab().Size())
	}
	return err
}

func (m *models) newSession(ctx context.Context, x *llama.Model, o llama.SessionOptions) (*llama.Session, error) {
	s, err := x.NewSessionContext(ctx, o)
	if err == nil {
		m.onClose(s.Close)
	}
	return s, err
}

// newDraftSession makes a session of a draft model, with the fastest type of keys
// where that is left open.
func newDraftSession(ctx context.Context, x *llama.Model, o llama.SessionOptions) (*llama.Session, error) {
	if o.KeyType == llama.TypeAuto {
		o.KeyType = x.DraftKeyType()
	}
	return x.NewSessionContext(ctx, o)
}

// replaceDraft opens another draft model, in place of the one there is.
func (a *app) replaceDraft(m *models, o *options, flag, path string) error {
	draft, err := a.openDraft(m, o, flag, path)
	if err != nil {
		return err
	}
	session, err := newDraftSession(context.Background(), draft, m.forDraft)
	if err != nil {
		draft.Close()
		return fmt.Errorf("%s %s: %w", flag, path, err)
	}
	if m.draft != nil {
		m.drafting.Close()
		m.draft.Close()
	}
	m.draft, m.drafting = draft, session
	m.onClose(draft.Close)
	m.onClose(session.Close)
	return nil
}

func (m *models) loadAdapters(loras []lora) ([]llama.AdapterScale, error) {
	var adapters []llama.AdapterScale
	for _, l := range loras {
		adapter, err := m.target.LoadAdapter(l.file)
		if err != nil {
			return nil, err
		}
		m.onClose(adapter.Close)
		adapters = append(adapters, llama.AdapterScale{Adapter: adapter, Scale: l.scale})
	}
	return adapters, nil
}

// engine makes an engine of the sessions, with drafters of its own. Sequence 0
// holds some tokens already.
func (m *models) engine(o *options, words generate.Vocab, held []int32, log *slog.Logger) (*generate.Engine, error) {
	drafts, err := m.drafts(o)
	if err != nil {
		return nil, err
	}
	limits := m.session.Limits()
	chunk := min(o.session.Microbatch, limits.Batch-(limits.Sequences-1)) // what the model evaluates at once
	options := generate.Options{
		Exact: o.session.Exact, PrefillChunk: chunk, Held: [][]int32{held}, Logger: log,
		Drafts: drafts, Rule: o.speculation.rule,
	}
	for _, s := range m.followers {
		options.Amateurs = append(options.Amateurs, eval.Evaluator(s))
	}
	return generate.New(m.session, words, options)
}

// drafters names those that draft, by their numbers in the statistics.
func (m *models) drafters(o *options) []string {
	if m.noDrafts != "" || o.predict == 0 {
		return nil
	}
	return o.speculation.types
}

// branches returns how many branches the target needs for drafts that are trees.
func (m *models) branches(o *options) int {
	if !slices.Contains(m.drafters(o), drafterModel) || m.noTrees(o) != "" {
		return 0
	}
	return o.speculation.branches()
}

// noTrees says why the draft model's drafts are lines, or is empty where they
// are trees.
func (m *models) noTrees(o *options) string {
	if because := o.noTrees(); because != "" || m.draft == nil {
		return because
	}
	if facts := m.draft.Facts(); facts.Recurrent || facts.Hybrid {
		return fmt.Sprintf("with %s draft models, whose drafts are single tokens", facts.Architecture)
	}
	return ""
}

// drafts makes the drafters; nil for none.
func (m *models) drafts(o *options) (*speculative.Cascade, error) {
	names := m.drafters(o)
	if len(names) == 0 {
		return nil, nil
	}
	s, v := &o.speculation, m.target.Vocab()
	var drafters []speculative.Drafter
	for _, name := range names {
		var d speculative.Drafter
		var err error
		switch name {
		case drafterNGram:
			d, err = speculative.NewNGram(speculative.NGramOptions{
				Index: speculative.IndexOptions{MinContext: s.shortest, MaxContext: s.longest}, Shared: m.lookup, Filler: s.filler, IsEnd: v.IsEOG,
			})
		case drafterModel:
			options := speculative.ModelOptions{Rule: s.rule, Widths: s.widths, PMin: s.pMin, IsEnd: v.IsEOG}
			if n := v.Size(); n != m.draft.Vocab().Size() {
				options.Vocab = n
			}
			d, err = speculative.NewModel(m.drafting, options)
		case drafterLookahead:
			d, err = speculative.NewLookahead(speculative.LookaheadOptions{})
		}
		if err != nil {
			return nil, err
		}
		drafters = append(drafters, d)
	}
	return speculative.NewCascade(speculative.ControllerOptions{Max: s.most, Min: s.least, Fixed: !s.adaptive}, drafters...)
}
