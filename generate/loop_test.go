package generate

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
	"github.com/sortes-llm/sortes/speculative"
)

// shape counts the rows of each sequence in a batch.
func shape(rows []eval.Row, sequences int) []int {
	n := make([]int, sequences)
	for _, r := range rows {
		n[r.Seq]++
	}
	return n
}

// A prompt is read in chunks, and only its last token has logits.
func TestPrefillChunks(t *testing.T) {
	var shapes [][]int
	var outputs []int
	m := tablemodel.New(tablemodel.Config{OnEval: func(_ context.Context, _ int, rows []eval.Row) error {
		shapes = append(shapes, shape(rows, 1))
		n := 0
		for _, r := range rows {
			if r.Output {
				n++
			}
		}
		outputs = append(outputs, n)
		return nil
	}})
	e := newEngine(t, m, Options{PrefillChunk: 8})
	read := func(p []int32) {
		shapes, outputs = nil, nil
		assert.NoError(t, runRequest(t, t.Context(), e, greedyFor(p, 2)).err)
	}
	text := func(n, salt int) []int32 { return prompt(n+1, salt)[1:] } // without the BOS that all share
	read(text(20, 1))
	assert.Equal(t, [][]int{{8}, {8}, {4}, {1}}, shapes)
	assert.Equal(t, []int{0, 0, 1, 1}, outputs)
	read(text(16, 8))
	assert.Equal(t, [][]int{{8}, {8}, {1}}, shapes)
	read(text(17, 2))
	assert.Equal(t, [][]int{{8}, {8}, {1}, {1}}, shapes)
	read(text(2, 3))
	assert.Equal(t, [][]int{{2}, {1}}, shapes)
	read(text(1, 4))
	assert.Equal(t, [][]int{{1}, {1}}, shapes)

	// Behind a prefix of 12 tokens that was reused the chunks end where they
	// would have ended without it.
	read(text(13, 5))
	read(join(text(12, 5), text(10, 7)))
	assert.Equal(t, [][]int{{4}, {6}, {1}}, shapes)
}

// A prompt beside others is cut where it is cut alone; no text waits for it.
func TestPrefillInCompany(t *testing.T) {
	second, gate := make(chan struct{}), make(chan struct{})
	var shapes [][]int
	m := tablemodel.New(tablemodel.Config{Sequences: 3, OnEval: func(_ context.Context, n int, rows []eval.Row) error {
		if n == 1 {
			close(second)
			<-gate
		}
		shapes = append(shapes, shape(rows, 3))
		return nil
	}})
	e := newEngine(t, m, Options{PrefillChunk: 8})
	all := []Request{greedyFor(prompt(2, 1), 9), greedyFor(prompt(20, 2), 1), greedyFor(prompt(14, 3), 1)}
	outcomes := make([]chan outcome, 3)
	for i, r := range all {
		outcomes[i] = make(chan outcome, 1)
		go func() { outcomes[i] <- runRequest(t, t.Context(), e, r) }()
		if i == 0 {
			<-second // its batch is laid out: the others come too late for it
		}
		waitFor(t, e, func() bool { return len(e.open) == i+1 })
	}
	close(gate)
	for i, r := range all {
		assertSame(t, simulate(tablemodel.Hashed(0), 1024, r), <-outcomes[i])
	}
	e.Close()
	assert.Equal(t, [][]int{
		{2, 0, 0}, // the first prompt
		{1, 0, 0},
		{1, 8, 0}, // the older prompt has the chunk
		{1, 8, 0},
		{1, 4, 0}, // the younger one's 8 do not fit beside its last 4
		{1, 0, 8},
		{1, 0, 6},
		{1, 0, 0},
		{1, 0, 0},
	}, shapes)
}

// An oracle proposes what will come, up to a mistake that it makes every so many
// tokens.
type oracle struct {
	mistakes int // 0 for none
	asked    []int
}

// drafts makes a drafter one that is asked for as much as there is room for.
func drafts(d speculative.Drafter) *speculative.Cascade {
	c, err := speculative.NewCascade(speculative.ControllerOptions{Max: 64, Fixed: true}, d)
	if err != nil {
		panic(err)
	}
	return c
}

func (d *oracle) End(int) {}

func (d *oracle) Draft(_ context.Context, text speculative.Text, n int) (speculative.Draft, error) {
	d.asked = append(d.asked, n)
	tokens := slices.Clone(text.History)
	row := make([]float32, len(tablemodel.Pieces))
	for range min(n, 5) {
		tablemodel.Hashed(0)(row, tokens)
		id := int32(slices.Index(row, slices.Max(row)))
		if d.mistakes > 0 && len(tokens)%d.mistakes == 0 {
			id = (id + 1) % int32(len(row))
		}
		tokens = append(tokens, id)
	}
	return speculative.Draft{Tokens: tokens[len(text.History):]}, nil
}

// Drafts change the number of rounds and nothing else.
func TestDraftsChangeNothing(t *testing.T) {
	all := requests(8)
	for i := range all {
		all[i].Sampling = sampler.Config{}
		if i%2 == 0 {
			all[i].Sampling.Temperature = 0.3 // greedy drafts are often right
		}
	}
	for _, mistakes := range []int{0, 1, 2, 3, 7} {
		for _, c := range []tablemodel.Config{
			{}, {Batch: 4}, {Sequences: 4, Batch: 16}, {Sequences: 4, Batch: 16, Outputs: 6}, {Sequences: 3, Cells: 80}, {NoRollback: true}, {Sequences: 2, NoRollback: true},
		} {
			c.Context = 64
			m := tablemodel.New(c)
			e := newEngine(t, m, Options{Drafts: drafts(&oracle{mistakes: mistakes})})
			for i, o := range runAll(t, e, all) {
				assertSame(t, simulate(tablemodel.Hashed(0), 64, all[i]), o, "request %d, mistakes %d, %+v", i, mistakes, c)
			}
		}
	}
}

// Right drafts of 5 make 6 tokens a round.
func TestDraftsSaveRounds(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{})
	d := &oracle{}
	e := newEngine(t, m, Options{Drafts: drafts(d)})
	r := greedyFor(prompt(10, 3), 21)
	assertSame(t, simulate(tablemodel.Hashed(0), 1024, r), runRequest(t, t.Context(), e, r))
	assert.Equal(t, []int{10, 6, 6, 6, 2}, m.Counters().Batches, "the prompt; 3 rounds of 6 tokens, one of 2")
	assert.Equal(t, []int{19, 13, 7, 1}, d.asked, "a round adds one token to its drafts")
	assert.Zero(t, m.Counters().Truncates-1, "nothing to drop: the one call is the request's own")
}

// Drafts stay inside the context.
func TestDraftsAtTheContextsEnd(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{Context: 16})
	d := &oracle{}
	e := newEngine(t, m, Options{Drafts: drafts(d)})
	r := greedyFor(prompt(10, 3), 0)
	o := runRequest(t, t.Context(), e, r)
	assertSame(t, simulate(tablemodel.Hashed(0), 16, r), o)
	assert.Equal(t, ContextFull, o.stats.Finish)
	// 11 tokens: 5 free cells. 16 or 17 tokens: none, but the last one needs no cell.
	assert.Equal(t, []int{5}, d.asked)
	assert.Len(t, o.tokens, 7)
}

// Drafts are given up before anything else is.
func TestDraftsWithoutRoom(t *testing.T) {
	full := func(_ context.Context, _ int, rows []eval.Row) error {
		outputs := 0
		for _, r := range rows {
			if r.Output {
				outputs++
			}
		}
		if outputs > 1 {
			return eval.ErrNoSlot
		}
		return nil
	}
	m := tablemodel.New(tablemodel.Config{OnEval: full})
	d := &oracle{}
	e := newEngine(t, m, Options{Drafts: drafts(d)})
	r := greedyFor(prompt(10, 3), 21)
	assertSame(t, simulate(tablemodel.Hashed(0), 1024, r), runRequest(t, t.Context(), e, r))
	assert.Len(t, d.asked, 19, "the next round tries again; the first and the last have none")
}

// A memory that cannot drop drafts gets no more of them.
func TestDraftsWithoutRollback(t *testing.T) {
	m := tablemodel.New(tablemodel.Config{NoRollback: true})
	d := &oracle{mistakes: 17}
	e := newEngine(t, m, Options{Drafts: drafts(d)})
	r := greedyFor(prompt(10, 3), 21)
	assertSame(t, simulate(tablemodel.Hashed(0), 1024, r), runRequest(t, t.Context(), e, r))
	assert.Equal(t, []int{19, 13}, d.asked, "the first draft is all right, the second is not")
}
