package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
	"github.com/sortes-llm/sortes/speculative"
)

// garbage proposes tokens that follow from nothing, end tokens among them.
type garbage struct{ n int }

func (g garbage) End(int) {}

func (g garbage) Draft(_ context.Context, t speculative.Text, n int) (speculative.Draft, error) {
	var d speculative.Draft
	for i := range min(n, g.n) {
		d.Tokens = append(d.Tokens, int32((len(t.History)*7+i*5)%len(tablemodel.Pieces)))
	}
	return d, nil
}

// everyFilter has all filters on that may stand together.
func everyFilter(temperature float64) sampler.Config {
	return sampler.Config{
		Temperature: temperature, DynTempRange: 0.2, TopK: 20, TopNSigma: 3, TypicalP: 0.97, Epsilon: 1e-4, Eta: 1e-4, TailFreeZ: 0.99,
		TopA: 0.02, TopP: 0.98, MinP: 0.01, XTCProbability: 0.3, XTCThreshold: 0.2,
		RepeatPenalty: 1.1, FrequencyPenalty: 0.1, PresencePenalty: 0.1, PenaltyLastN: 16,
		DRYMultiplier: 0.5, DRYBase: 1.5, DRYAllowedLength: 1, DRYLastN: 32, NoRepeatNGram: 4, MinLength: 3,
		LogitBias: map[int32]float64{5: 0.5}, Suppress: []int32{7}, AdaptiveTarget: 0.3, AdaptiveDecay: 0.8,
	}
}

// With the coupled rule the text is the plain text for the seed, whatever the
// drafter, how long its drafts, and who shares the batch.
func TestCoupledTextIsPlain(t *testing.T) {
	plainTexts := func(all []Request) []outcome {
		return runAll(t, newEngine(t, tablemodel.New(tablemodel.Config{Context: 80}), Options{}), all)
	}
	for _, temperature := range []float64{0, 0.7, 1.3} {
		all := requests(8)
		for i := range all {
			all[i].MaxTokens = 24
			switch i % 3 {
			case 0:
				all[i].Sampling = everyFilter(temperature)
			case 1:
				all[i].Sampling = sampler.Config{Temperature: temperature, Mirostat: 2, MirostatTau: 3, MirostatEta: 0.2}
			default:
				all[i].Sampling = sampler.Config{Temperature: temperature}
			}
		}
		want := plainTexts(all)
		for length := range 17 {
			if length == 0 {
				continue // plain
			}
			for name, make := range map[string]func(slots int) speculative.Drafter{
				"garbage": func(int) speculative.Drafter { return garbage{length} },
				"the target's own table": func(slots int) speculative.Drafter {
					return newDraftModel(t, slots, 0, speculative.Coupled)
				},
				"another table": func(slots int) speculative.Drafter {
					return newDraftModel(t, slots, 1, speculative.Coupled)
				},
			} {
				for _, company := range []int{1, 8} {
					c, err := speculative.NewCascade(speculative.ControllerOptions{Max: length, Fixed: true}, make(company))
					require.NoError(t, err)
					m := tablemodel.New(tablemodel.Config{Sequences: company, Context: 80, Batch: 200})
					e := newEngine(t, m, Options{Drafts: c})
					for i, got := range runAll(t, e, all) {
						assertSame(t, want[i], got, "%s, length %d, %d at once, request %d, T %v", name, length, company, i, temperature)
						if name == "the target's own table" && length > 1 && got.stats.Generated > 8 {
							assert.Greater(t, got.stats.Drafts.TokensPerRound(), 1.5)
						}
					}
					e.Close()
				}
			}
		}
	}
}

func newDraftModel(t *testing.T, slots, salt int, rule speculative.Rule) *speculative.Model {
	t.Helper()
	m := tablemodel.New(tablemodel.Config{Sequences: slots, Context: 80, Logits: tablemodel.Hashed(uint64(salt))})
	d, err := speculative.NewModel(m, speculative.ModelOptions{Rule: rule, IsEnd: tablemodel.Words().IsEOG})
	require.NoError(t, err)
	return d
}

// Ends inside a block of drafts cut it exactly: the target's table as the
// drafter makes blocks of up to 16, and texts end by everything that ends one.
func TestDraftsEndExactly(t *testing.T) {
	for _, rule := range []speculative.Rule{speculative.Coupled, speculative.Block, speculative.Token} {
		for n := 1; n <= 20; n++ {
			for _, r := range []Request{
				{MaxTokens: n},
				{EndTokens: []int32{int32(tablemodel.Text + n%20)}},
				{Stop: []string{tablemodel.Pieces[tablemodel.Text+n%9]}, IgnoreEOG: true},
				{IgnoreEOG: true}, // the context
			} {
				r.Prompt, r.Seed = prompt(4, n), uint64(n)
				want := simulate(tablemodel.Hashed(0), 40, r)
				c, err := speculative.NewCascade(speculative.ControllerOptions{Max: 16, Fixed: true}, newDraftModel(t, 1, 0, rule))
				require.NoError(t, err)
				m := tablemodel.New(tablemodel.Config{Context: 40})
				e := newEngine(t, m, Options{Drafts: c, Rule: rule})
				got := runRequest(t, t.Context(), e, r)
				assertSame(t, want, got, "greedy, so that all rules agree: %v, %+v", rule, r)
				assert.Equal(t, got.stats.Generated, len(got.tokens))
				e.Close()
				assert.LessOrEqual(t, m.Len(0), len(r.Prompt)+got.stats.Generated, "nothing behind the end is left")
			}
		}
	}
}

// The statistics count what happened: a drafter that is right about all but
// every fifth token.
func TestDraftStatistics(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{})
	e := newEngine(t, m, Options{Drafts: drafts(&oracle{mistakes: 5})})
	// 11 tokens behind the first round; mistakes at lengths 15, 20, 25, ...
	o := runRequest(t, t.Context(), e, greedyFor(prompt(10, 3), 21))
	require.NoError(t, o.err)
	s := o.stats.Drafts
	// The first token comes with the prompt. Lengths before each round: 11 (4
	// right, then wrong: 5 tokens), 16, 21, 26: again 5 each.
	assert.Equal(t, 4, s.Rounds, "of five tokens; the prompt's is none")
	assert.Equal(t, 4, s.Drafts)
	assert.Equal(t, 20, s.Tokens)
	assert.Equal(t, 16, s.Drafter[0].Accepted)
	drafted := []bool{false}
	for range 4 {
		drafted = append(drafted, true, true, true, true, false)
	}
	for i, token := range o.tokens {
		assert.Equal(t, drafted[i], token.Drafted, "token %d", i)
		assert.Equal(t, i == 5 || i == 10 || i == 15, token.Corrected, "token %d stands where a mistake was; the last draft was right to the end", i)
	}
}

// All of an evaluation counts as verification of the text that has it alone,
// also where two sequences and an amateur judge its drafts; the controller hears
// of one draft.
func TestVerificationIsTheWholeEvaluation(t *testing.T) {
	for _, guided := range []bool{false, true} {
		r := greedyFor(prompt(10, 3), 21)
		r.Contrast = &sampler.Contrast{Form: sampler.ContrastLogits, Alpha: 0.1, Beta: 0.2}
		if guided {
			r.Guidance = &Guidance{Scale: 1.5, NegativePrompt: prompt(7, 5)}
		}
		var took time.Duration
		drafted := 0
		o := Options{
			Amateurs: []eval.Evaluator{tablemodel.New(tablemodel.Config{Sequences: 2, Logits: tablemodel.Hashed(1)})},
			Drafts:   drafts(&oracle{mistakes: 5}),
			tested: func(e *Engine) {
				r := e.runs[0]
				if !r.round || r.reads() {
					return
				}
				took += e.took
				n, own := len(r.draft.Tokens), 1
				drafted += n
				if guided {
					own = 2
				}
				assert.Equal(t, own+n, e.judged())
				assert.Len(t, e.target.rows, own*(1+n))
			},
		}
		e, err := New(tablemodel.New(tablemodel.Config{Sequences: 2}), tablemodel.Words(), o)
		require.NoError(t, err)
		got := runRequest(t, t.Context(), e, r)
		require.NoError(t, got.err)
		e.Close()
		assert.Positive(t, drafted)
		assert.Equal(t, took, got.stats.Drafts.Verify)
	}
}

// failing is a drafter whose calls fail, or panic, from one on.
type failing struct {
	garbage
	calls, from int
	panics      bool
}

var errDraft = errors.New("no draft")

func (f *failing) Draft(ctx context.Context, t speculative.Text, n int) (speculative.Draft, error) {
	if f.calls++; f.calls > f.from {
		if f.panics {
			panic("in a drafter")
		}
		return speculative.Draft{}, errDraft
	}
	return f.garbage.Draft(ctx, t, n)
}

// A drafter that fails drafts no more, and the text goes on. One that panics
// ends the request, whose stream raises it.
func TestDraftersFail(t *testing.T) {
	r := requests(4)[3]
	want := simulate(tablemodel.Hashed(0), 1024, r)
	for from := range 5 {
		d := &failing{garbage: garbage{3}, from: from}
		e := newEngine(t, tablemodel.New(tablemodel.Config{}), Options{Drafts: drafts(d)})
		assertSame(t, want, runRequest(t, t.Context(), e, r))
		assert.Equal(t, from+1, d.calls)
	}
	d := &failing{garbage: garbage{3}, from: 2, panics: true}
	e := newEngine(t, tablemodel.New(tablemodel.Config{}), Options{Drafts: drafts(d)})
	assert.PanicsWithValue(t, "in a drafter", func() { runRequest(t, t.Context(), e, r) })
	r.NoDrafts = true
	assertSame(t, want, runRequest(t, t.Context(), e, r), "the engine goes on")
}

// Errors and cancellation in the target or the draft model, at every call.
func TestDraftsFailAtEveryCall(t *testing.T) {
	r := requests(4)[3]
	r.MaxTokens = 12
	want := simulate(tablemodel.Hashed(0), 64, r)
	draft := tablemodel.Config{Context: 64, Logits: tablemodel.Hashed(0)}
	failAtEveryCall(t, r, tablemodel.Config{Context: 64}, draft, speculative.ModelOptions{}, func(small *tablemodel.Model, _ []eval.Row) {
		if text := join(r.Prompt, want.ids()); !slices.Equal(small.Tokens(0), text[:small.Len(0)]) {
			t.Errorf("the draft model holds %v of %v", small.Tokens(0), text)
		}
	})
}

// failAtEveryCall runs a request with an error, no room or a cancellation at
// each call of the target and of the draft model: the text so far is kept, all
// of it, and ends as Stats say. Then the request comes once more: it finds both
// models consistent (newEngine checks the target's books after every step), so
// that it has the plain text, and as many drafts stand as where nothing failed.
// after is told of the draft model, and of the rows of the call that failed.
func failAtEveryCall(t *testing.T, r Request, c, d tablemodel.Config, o speculative.ModelOptions, after func(small *tablemodel.Model, rows []eval.Row)) {
	t.Helper()
	want := simulate(tablemodel.Hashed(0), 64, r)
	start := func(c, d tablemodel.Config) (*Engine, *tablemodel.Model) {
		small := tablemodel.New(d)
		model, err := speculative.NewModel(small, o)
		require.NoError(t, err)
		few, err := speculative.NewCascade(speculative.ControllerOptions{Max: 5, Fixed: true}, model)
		require.NoError(t, err)
		return newEngine(t, tablemodel.New(c), Options{Drafts: few, PrefillChunk: 8}), small
	}
	counts := func(o outcome) []int {
		s := o.stats.Drafts
		return []int{s.Rounds, s.Drafts, s.Tokens, s.Drafter[0].Accepted}
	}
	// Undisturbed, once, and again with the prompt in the cache, so that the
	// first round has drafts.
	e, _ := start(c, d)
	first, second := runRequest(t, t.Context(), e, r), runRequest(t, t.Context(), e, r)
	assertSame(t, want, first)
	assertSame(t, want, second)
	require.Greater(t, first.stats.Drafts.Drafts, 1)

	for _, inDraft := range []bool{false, true} {
		for _, how := range []string{"error", "full", "cancel"} {
			for call, reached := 0, true; reached; call++ {
				reached = false
				over := false
				at := fmt.Sprintf("in the draft %v, %s, call %d", inDraft, how, call)
				ctx, cancel := context.WithCancel(t.Context())
				var e *Engine
				var failed []eval.Row
				committed, drafted := 0, 0 // when that call came
				hook := func(ctx context.Context, n int, rows []eval.Row) error {
					if n != call || over {
						return nil
					}
					reached, failed = true, slices.Clone(rows)
					committed = len(e.runs[0].tokens) - len(r.Prompt)
					drafted = len(e.runs[0].draft.Tokens)
					switch how {
					case "error":
						return errBoom
					case "full":
						return fmt.Errorf("full: %w", eval.ErrNoSlot)
					}
					cancel()
					<-ctx.Done()
					return fmt.Errorf("interrupted: %w", context.Cause(ctx))
				}
				c, d := c, d
				if inDraft {
					d.OnEval = hook
				} else {
					c.OnEval = hook
				}
				var small *tablemodel.Model
				e, small = start(c, d)
				o := runRequest(t, ctx, e, r)
				over = true
				cancel()
				switch {
				case reached && how == "cancel":
					assert.ErrorIs(t, o.err, context.Canceled, at)
					assert.Equal(t, Cancelled, o.stats.Finish, at)
				case reached && how == "error" && !inDraft:
					assert.ErrorIs(t, o.err, errBoom, at)
					assert.Equal(t, Failed, o.stats.Finish, at)
				case reached && how == "full" && !inDraft && committed == 0:
					assert.ErrorIs(t, o.err, eval.ErrNoSlot, at)
					assert.Equal(t, Failed, o.stats.Finish, at)
				case reached && how == "full" && !inDraft && drafted == 0:
					assert.NoError(t, o.err, at)
					assert.Equal(t, ContextFull, o.stats.Finish, at)
				default: // without these drafts, or any, the text goes on
					assertSame(t, want, o, at)
					committed = len(want.tokens)
				}
				assert.Len(t, o.tokens, committed, at)
				assertBegins(t, r, len(o.tokens), o)

				again := runRequest(t, t.Context(), e, r)
				assertSame(t, want, again, at)
				undisturbed := first
				if again.stats.Evaluated == 1 {
					undisturbed = second
				}
				assert.Equal(t, counts(undisturbed), counts(again), at)
				if reached {
					after(small, failed)
				} else {
					require.Greater(t, call, 2)
				}
				e.Close()
			}
		}
	}
}
