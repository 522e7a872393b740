package generate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
	"github.com/sortes-llm/sortes/speculative"
)

// bush proposes trees that follow from nothing, of every form.
type bush struct{ n int }

func (b bush) End(int) {}

func (b bush) Draft(_ context.Context, t speculative.Text, n int) (speculative.Draft, error) {
	d := speculative.Draft{Parents: []int{}}
	for i := range min(n, b.n) {
		d.Tokens = append(d.Tokens, int32((len(t.History)*7+i*5)%len(tablemodel.Pieces)))
		d.Parents = append(d.Parents, (len(t.History)*3+i*i)%(i+1)-1)
	}
	return d, nil
}

// like is a table close to Hashed(0): the first by the one is often the second by
// the other.
func like(dst []float32, prefix []int32) {
	noise := make([]float32, len(dst))
	tablemodel.Hashed(0)(dst, prefix)
	tablemodel.Hashed(9)(noise, prefix)
	for i := range dst {
		dst[i] += noise[i] / 6
	}
}

func newTreeDrafter(t *testing.T, slots int, o speculative.ModelOptions) (*speculative.Model, *tablemodel.Model) {
	t.Helper()
	o.IsEnd = tablemodel.Words().IsEOG
	m := tablemodel.New(tablemodel.Config{Sequences: slots, Context: 80, Logits: like})
	d, err := speculative.NewModel(m, o)
	require.NoError(t, err)
	return d, m
}

// room is a drafter that hears in how many ways it may go on.
type room struct{ branches []int }

func (r *room) End(int) {}

func (r *room) Draft(_ context.Context, t speculative.Text, _ int) (speculative.Draft, error) {
	r.branches = append(r.branches, t.Branches)
	return speculative.Draft{}, nil
}

// In exact mode drafts are lines: what trees leave of a cache is not the same, bit
// by bit.
func TestNoTreesInExactMode(t *testing.T) {
	for _, exact := range []bool{false, true} {
		r := new(room)
		c, err := speculative.NewCascade(speculative.ControllerOptions{Max: 4, Fixed: true}, r)
		require.NoError(t, err)
		e := newEngine(t, tablemodel.New(tablemodel.Config{Batch: 200, Branches: 3}), Options{Drafts: c, Exact: exact})
		runAll(t, e, []Request{{Prompt: []int32{3, 4}, MaxTokens: 5}})
		want := 3
		if exact {
			want = 0
		}
		require.NotEmpty(t, r.branches)
		for _, got := range r.branches {
			assert.Equal(t, want, got)
		}
	}
}

// With the coupled rule the text is the plain text also where drafts are trees.
func TestTreesLeaveTheText(t *testing.T) {
	kept := map[string]int{}
	for _, temperature := range []float64{0, 0.7, 1.3} {
		all := requests(8)
		for i := range all {
			all[i].MaxTokens, all[i].LogProbs, all[i].PostSampling = 24, i%2 == 0, i%4 == 1
			switch i % 3 {
			case 0:
				all[i].Sampling = everyFilter(temperature)
			case 1:
				all[i].Sampling = sampler.Config{Temperature: temperature, Mirostat: 2, MirostatTau: 3, MirostatEta: 0.2}
			default:
				all[i].Sampling = sampler.Config{Temperature: temperature}
			}
		}
		want := runAll(t, newEngine(t, tablemodel.New(tablemodel.Config{Context: 80}), Options{}), all)
		for _, branches := range []int{1, 2, 5, 16} {
			for _, length := range []int{2, 5, 12} {
				for _, company := range []int{1, 3} {
					wide, _ := newTreeDrafter(t, company, speculative.ModelOptions{Widths: []int{3, 2, 1, 2}})
					for name, d := range map[string]speculative.Drafter{"garbage": bush{length}, "model": wide} {
						c, err := speculative.NewCascade(speculative.ControllerOptions{Max: length, Fixed: true}, d)
						require.NoError(t, err)
						m := tablemodel.New(tablemodel.Config{Sequences: company, Context: 80, Batch: 200, Branches: branches})
						e := newEngine(t, m, Options{Drafts: c})
						for i, got := range runAll(t, e, all) {
							assertSame(t, want[i], got, "%s, length %d, %d branches, %d at once, request %d, T %v", name, length, branches, company, i, temperature)
							for j, token := range got.tokens {
								assert.Equal(t, want[i].tokens[j].LogProb, token.LogProb)
								assert.Equal(t, want[i].tokens[j].PostSamplingLogProb, token.PostSamplingLogProb)
							}
						}
						e.Close()
						kept[name] += m.Counters().Keeps
					}
				}
			}
		}
	}
	assert.Greater(t, kept["garbage"], 20, "some branch but the first stood")
	assert.Greater(t, kept["model"], 200)
}

// Ends inside a tree cut it exactly.
func TestTreesEndExactly(t *testing.T) {
	keeps := 0
	for _, rule := range []speculative.Rule{speculative.Coupled, speculative.Block} {
		for n := 1; n <= 20; n++ {
			for _, r := range []Request{
				{MaxTokens: n},
				{EndTokens: []int32{int32(tablemodel.Text + n%20)}},
				{Stop: []string{tablemodel.Pieces[tablemodel.Text+n%9]}, IgnoreEOG: true},
				{IgnoreEOG: true}, // the context
			} {
				r.Prompt, r.Seed = prompt(4, n), uint64(n)
				want := simulate(tablemodel.Hashed(0), 40, r)
				d, _ := newTreeDrafter(t, 1, speculative.ModelOptions{Rule: rule, Widths: []int{3, 3, 3}})
				c, err := speculative.NewCascade(speculative.ControllerOptions{Max: 16, Fixed: true}, d)
				require.NoError(t, err)
				m := tablemodel.New(tablemodel.Config{Context: 40, Branches: 8})
				e := newEngine(t, m, Options{Drafts: c, Rule: rule})
				assertSame(t, want, runRequest(t, t.Context(), e, r), "greedy, so that all rules agree: %v, %+v", rule, r)
				e.Close()
				keeps += m.Counters().Keeps
			}
		}
	}
	assert.Greater(t, keeps, 50)
}

// Errors and cancellation at every call of the target or the draft model, also
// while the target has a tree before it.
func TestTreesFailAtEveryCall(t *testing.T) {
	r := requests(4)[3]
	r.MaxTokens, r.IgnoreEOG, r.Stop = 12, true, nil
	inTree := 0
	failAtEveryCall(t, r, tablemodel.Config{Context: 64, Branches: 6}, tablemodel.Config{Context: 64, Logits: like},
		speculative.ModelOptions{Widths: []int{2, 2, 2, 2}}, func(_ *tablemodel.Model, rows []eval.Row) {
			if slices.ContainsFunc(rows, func(r eval.Row) bool { return r.First > 0 }) {
				inTree++
			}
		})
	assert.Greater(t, inTree, 2)
}

// A block of trees keeps the distribution: all texts of three tokens over three,
// enumerated, against what many seeds give.
func TestTreesKeepTheDistribution(t *testing.T) {
	const vocab, runs = 3, 30000
	few := func(salt uint64) func([]float32, []int32) {
		return func(dst []float32, prefix []int32) {
			for i := range dst {
				dst[i] = float32(math.Inf(-1))
			}
			tablemodel.Hashed(salt)(dst[tablemodel.Text:tablemodel.Text+vocab], prefix)
			for i := range dst {
				dst[i] /= 3
			}
		}
	}
	p := prompt(2, 1)
	want := map[string]float64{}
	var enumerate func(text []int32, prob float64)
	enumerate = func(text []int32, prob float64) {
		if len(text) == 3 {
			want[fmt.Sprint(text)] = prob
			return
		}
		row := make([]float32, len(tablemodel.Pieces))
		few(0)(row, join(p, text))
		sum := 0.0
		for _, x := range row {
			sum += math.Exp(float64(x))
		}
		for id, x := range row {
			if !math.IsInf(float64(x), -1) {
				enumerate(append(slices.Clone(text), int32(id)), prob*math.Exp(float64(x))/sum)
			}
		}
	}
	enumerate(nil, 1)
	require.Len(t, want, 27)

	d, err := speculative.NewModel(tablemodel.New(tablemodel.Config{Logits: few(1)}), speculative.ModelOptions{Rule: speculative.Block, Widths: []int{2, 2}})
	require.NoError(t, err)
	c, err := speculative.NewCascade(speculative.ControllerOptions{Max: 4, Fixed: true}, d)
	require.NoError(t, err)
	m := tablemodel.New(tablemodel.Config{Logits: few(0), Branches: 4})
	e := newEngine(t, m, Options{Drafts: c, Rule: speculative.Block})
	seen := map[string]float64{}
	for seed := range uint64(runs) {
		o := runRequest(t, t.Context(), e, Request{Prompt: p, MaxTokens: 3, Seed: seed, Sampling: sampler.Config{Temperature: 1}})
		require.NoError(t, o.err)
		seen[fmt.Sprint(o.ids())] += 1.0 / runs
	}
	chi := 0.0
	for text, q := range want {
		chi += runs * (seen[text] - q) * (seen[text] - q) / q
	}
	assert.Less(t, chi, 54.0, "chi-square with 26 degrees of freedom: 54.05 has probability 0.001")
	assert.Greater(t, m.Counters().Keeps, 1000)
}

// Texts in several sequences have no trees, and drafters that make them all the
// same lose what does not fit.
func TestTreesWithoutBranches(t *testing.T) {
	r := requests(4)[3]
	r.IgnoreEOG, r.MaxTokens, r.Stop = true, 20, nil
	want := simulate(tablemodel.Hashed(0), 64, r)
	m := tablemodel.New(tablemodel.Config{Context: 64})
	e := newEngine(t, m, Options{Drafts: drafts(bush{8})})
	assertSame(t, want, runRequest(t, t.Context(), e, r))
	assert.Zero(t, m.Counters().Keeps)

	r.Guidance = &Guidance{Scale: 1.5, NegativePrompt: prompt(3, 9)}
	plain := newEngine(t, tablemodel.New(tablemodel.Config{Context: 64, Sequences: 2}), Options{})
	m = tablemodel.New(tablemodel.Config{Context: 64, Sequences: 2, Branches: 8})
	d, _ := newTreeDrafter(t, 2, speculative.ModelOptions{Widths: []int{3, 2}})
	e = newEngine(t, m, Options{Drafts: drafts(d)})
	assertSame(t, runRequest(t, t.Context(), plain, r), runRequest(t, t.Context(), e, r))
	assert.Zero(t, m.Counters().Keeps)
}

// No tree at all fails the drafter, not the text.
func TestBadTrees(t *testing.T) {
	r := requests(4)[3]
	want := simulate(tablemodel.Hashed(0), 1024, r)
	for _, d := range []speculative.Draft{
		{Tokens: []int32{3, 4}, Parents: []int{-1}},
		{Tokens: []int32{3, 4}, Parents: []int{-1, 1}},
		{Tokens: []int32{3, 3}, Parents: []int{-1, -1}},
	} {
		e := newEngine(t, tablemodel.New(tablemodel.Config{Branches: 4}), Options{Drafts: drafts(fixedDraft{d})})
		assertSame(t, want, runRequest(t, t.Context(), e, r))
	}
}

type fixedDraft struct{ d speculative.Draft }

func (f fixedDraft) End(int) {}
func (f fixedDraft) Draft(context.Context, speculative.Text, int) (speculative.Draft, error) {
	return f.d, nil
}
