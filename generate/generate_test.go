package generate

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An outcome is what a request brought.
type outcome struct {
	tokens []Token
	text   string
	err    error
	stats  Stats
}

func (o outcome) ids() []int32 {
	ids := []int32{}
	for _, t := range o.tokens {
		ids = append(ids, t.ID)
	}
	return ids
}

// runRequest reads the stream of a request to its end, and checks what holds for every
// stream.
func runRequest(t *testing.T, ctx context.Context, e *Engine, r Request) outcome {
	t.Helper()
	var o outcome
	r.Stats = &o.stats
	for token, err := range e.Stream(ctx, r) {
		if err != nil {
			assert.Zero(t, token, "the token beside an error")
			assert.NoError(t, o.err, "a second error")
			assert.NotEmpty(t, o.stats.Finish, "statistics are there when the error comes")
			o.err = err
			continue
		}
		assert.NoError(t, o.err, "a token after the error")
		assert.Equal(t, len(o.tokens), token.Index)
		o.tokens = append(o.tokens, token)
		o.text += token.Text
	}
	assert.Equal(t, r.Seed, o.stats.Seed)
	assert.GreaterOrEqual(t, min(o.stats.Wait, o.stats.PromptTime, o.stats.GenerateTime), time.Duration(0))
	assert.Equal(t, len(r.Prompt), o.stats.Prompt)
	assert.Equal(t, len(o.tokens), o.stats.Generated)
	return o
}

// newEngine starts an engine that compares its books with the model's after
// every step, and is closed at the end of the test.
func newEngine(t *testing.T, m *tablemodel.Model, o Options) *Engine {
	t.Helper()
	var amateurs []*tablemodel.Model
	for _, a := range o.Amateurs {
		amateurs = append(amateurs, a.(*tablemodel.Model))
	}
	o.tested = func(e *Engine) { checkBooks(t, e, m, amateurs...) }
	e, err := New(m, tablemodel.Words(), o)
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return e
}

// checkBooks runs on the engine's goroutine.
func checkBooks(t *testing.T, e *Engine, m *tablemodel.Model, amateurs ...*tablemodel.Model) {
	for n, m := range append([]*tablemodel.Model{m}, amateurs...) {
		checkSequences(t, e, e.models[n], m)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shared != 0 {
		t.Errorf("%d in an Eval", e.shared)
	}
	if len(e.open) < len(e.queue) {
		t.Errorf("%d runs are queued and %d have not ended", len(e.queue), len(e.open))
	}
	for _, r := range e.queue {
		if r.ended || len(r.sequences) > 0 {
			t.Errorf("a queued run: ended %v, %d sequences", r.ended, len(r.sequences))
		}
	}
	for _, r := range e.runs {
		for i, b := range e.beginnings(r) {
			if s := r.sequences[i]; s.model != b.model || s.run != r || !r.ContextShift && !slices.Equal(s.text, b.text) {
				t.Errorf("sequence %d of a run: text %v, want %v", i, s.text, b.text)
			}
		}
	}
}

func checkSequences(t *testing.T, e *Engine, m *model, table *tablemodel.Model) {
	for i := range m.sequences {
		s := &m.sequences[i]
		if !slices.Equal(table.Tokens(s.id), s.held()) {
			t.Errorf("sequence %d holds %v, the engine believes %v", s.id, table.Tokens(s.id), s.held())
		}
		if s.run != nil && (!slices.Contains(s.run.sequences, s) || !slices.Contains(e.runs, s.run)) {
			t.Errorf("the run of sequence %d does not know it", i)
		}
	}
}

// simulate is generation written down without an engine: one token after the
// other, the logits computed from the whole text so far.
func simulate(logits func([]float32, []int32), context int, r Request) outcome {
	vocab := tablemodel.Words()
	c := r.Sampling
	c.PromptLen = len(r.Prompt)
	s, err := sampler.New(c)
	if err != nil {
		panic(err)
	}
	var o outcome
	tokens := slices.Clone(r.Prompt)
	row := make([]float32, len(vocab.Pieces))
	var text []byte
	for o.stats.Finish == "" {
		logits(row, tokens)
		id, err := s.Pick(row, tokens, sampler.Draw{Seed: r.Seed, Pos: len(tokens)})
		if err != nil {
			panic(err)
		}
		s.Accept(id)
		if slices.Contains(r.EndTokens, id) || slices.Contains(vocab.EOG, id) && !r.IgnoreEOG {
			o.stats.Finish, o.stats.EndToken = EndToken, id
			break
		}
		tokens = append(tokens, id)
		text = append(text, vocab.Pieces[id]...)
		o.tokens = append(o.tokens, Token{ID: id, Index: len(o.tokens)})
		_, stop := naiveText(text, r.Stop)
		switch {
		case stop != "":
			o.stats.Finish, o.stats.Stop = StopString, stop
		case len(o.tokens) == r.MaxTokens:
			o.stats.Finish = MaxTokens
		case len(tokens) > context:
			o.stats.Finish = ContextFull
		}
	}
	o.text, _ = naiveText(text, r.Stop)
	o.stats.Generated = len(o.tokens)
	return o
}

// assertSame compares what an engine brought with a simulation.
func assertSame(t *testing.T, want, got outcome, message ...any) bool {
	t.Helper()
	return assert.NoError(t, got.err, message...) &&
		assert.Equal(t, want.ids(), got.ids(), message...) &&
		assert.Equal(t, want.text, got.text, message...) &&
		assert.Equal(t, want.stats.Finish, got.stats.Finish, message...) &&
		assert.Equal(t, want.stats.EndToken, got.stats.EndToken, message...) &&
		assert.Equal(t, want.stats.Stop, got.stats.Stop, message...)
}

// prompt returns n tokens with text, other ones for another salt.
func prompt(n, salt int) []int32 {
	p := []int32{tablemodel.BOS}
	for i := 1; i < n; i++ {
		p = append(p, int32(tablemodel.Text+(i*i+7*i*salt+salt)%(len(tablemodel.Pieces)-tablemodel.Text)))
	}
	return p
}

// requests returns n different requests.
func requests(n int) []Request {
	var all []Request
	for i := range n {
		r := Request{Prompt: prompt(1+i*11%40, i), Seed: uint64(i), MaxTokens: 10 + i*7%30}
		switch i % 4 {
		case 1:
			r.Sampling = sampler.Config{Temperature: 1}
		case 2:
			r.Sampling = sampler.Config{Temperature: 0.7, TopK: 5}
			r.Stop = []string{"ab", "##", "€"}
		case 3:
			r.Sampling = sampler.Default()
			r.IgnoreEOG = true
		}
		all = append(all, r)
	}
	return all
}

// runAll runs requests at the same time.
func runAll(t *testing.T, e *Engine, all []Request) []outcome {
	t.Helper()
	outcomes := make([]outcome, len(all))
	var group sync.WaitGroup
	for i, r := range all {
		group.Go(func() { outcomes[i] = runRequest(t, t.Context(), e, r) })
	}
	group.Wait()
	return outcomes
}

func ids(pieces ...string) []int32 {
	v := tablemodel.Words()
	var all []int32
	for _, p := range pieces {
		all = append(all, v.Find(p))
	}
	return all
}

// scripted is an engine over a model that says the pieces after a prompt of
// one token, and ends.
func scripted(t *testing.T, pieces ...string) *Engine {
	t.Helper()
	text := append(ids(pieces...), tablemodel.EOS)
	return newEngine(t, tablemodel.New(tablemodel.Config{Logits: tablemodel.Script(1, text...)}), Options{})
}

func bos() []int32 { return []int32{tablemodel.BOS} }

func TestStreamScripted(t *testing.T) {
	e := scripted(t, "a", "\xe2", "\x82\xac", "END")
	o := runRequest(t, t.Context(), e, Request{Prompt: bos(), Seed: 7})
	require.NoError(t, o.err)
	assert.Equal(t, ids("a", "\xe2", "\x82\xac", "END"), o.ids())
	var texts, pieces []string
	for _, token := range o.tokens {
		texts = append(texts, token.Text)
		pieces = append(pieces, string(token.Bytes))
	}
	assert.Equal(t, []string{"a", "", "€", "END"}, texts)
	assert.Equal(t, []string{"a", "\xe2", "\x82\xac", "END"}, pieces)
	assert.Equal(t, EndToken, o.stats.Finish)
	assert.Equal(t, int32(tablemodel.EOS), o.stats.EndToken)
	assert.Equal(t, 0, o.stats.Cached)
}

func TestFinish(t *testing.T) {
	comma := func(pieces ...string) string { return strings.Join(pieces, ",") }
	tests := []struct {
		name    string
		request Request
		text    string // of the tokens, with commas between
		finish  FinishReason
		end     int32
		stop    string
	}{
		{"end token", Request{}, comma("a", "b", "#", "#", "END"), EndToken, tablemodel.EOS, ""},
		{"budget", Request{MaxTokens: 3}, comma("a", "b", "#"), MaxTokens, 0, ""},
		{"budget of one", Request{MaxTokens: 1}, comma("a"), MaxTokens, 0, ""},
		{"budget not reached", Request{MaxTokens: 6}, comma("a", "b", "#", "#", "END"), EndToken, tablemodel.EOS, ""},
		{"budget reached just before the end token", Request{MaxTokens: 5}, comma("a", "b", "#", "#", "END"), MaxTokens, 0, ""},
		{"stop string", Request{Stop: []string{"##"}}, comma("a", "b", "", ""), StopString, 0, "##"},
		{"stop string inside a token", Request{Stop: []string{"ND"}}, comma("a", "b", "#", "#", "E"), StopString, 0, "ND"},
		{"stop string and budget at once", Request{Stop: []string{"##"}, MaxTokens: 4}, comma("a", "b", "", ""), StopString, 0, "##"},
		{"budget inside a stop string", Request{Stop: []string{"##"}, MaxTokens: 3}, comma("a", "b", "#"), MaxTokens, 0, ""},
		{"end token after the head of a stop string", Request{Stop: []string{"END!"}}, comma("a", "b", "#", "#", "END"), EndToken, tablemodel.EOS, ""},
		{"own end token", Request{EndTokens: ids("#")}, comma("a", "b"), EndToken, ids("#")[0], ""},
		{"own end token and stop string", Request{EndTokens: ids("#"), Stop: []string{"#"}}, comma("a", "b"), EndToken, ids("#")[0], ""},
		{"end token ignored", Request{IgnoreEOG: true, MaxTokens: 7}, comma("a", "b", "#", "#", "END", "", ""), MaxTokens, 0, ""},
		{"end tokens ignored but one's own", Request{IgnoreEOG: true, EndTokens: []int32{tablemodel.EOS}}, comma("a", "b", "#", "#", "END"), EndToken, tablemodel.EOS, ""},
		{"prompt only", Request{PromptOnly: true}, "", MaxTokens, 0, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := scripted(t, "a", "b", "#", "#", "END")
			test.request.Prompt = bos()
			o := runRequest(t, t.Context(), e, test.request)
			require.NoError(t, o.err)
			var texts []string
			for _, token := range o.tokens {
				texts = append(texts, token.Text)
			}
			assert.Equal(t, test.text, comma(texts...))
			assert.Equal(t, test.finish, o.stats.Finish)
			assert.Equal(t, test.end, o.stats.EndToken)
			assert.Equal(t, test.stop, o.stats.Stop)
		})
	}
}

// The context holds 8 tokens. The last token generated needs no place in it.
func TestContextFull(t *testing.T) {
	for n := 1; n <= 8; n++ {
		m := tablemodel.New(tablemodel.Config{Context: 8, Batch: 3})
		e := newEngine(t, m, Options{})
		o := runRequest(t, t.Context(), e, Request{Prompt: prompt(n, 1), IgnoreEOG: true})
		require.NoError(t, o.err)
		assert.Equal(t, ContextFull, o.stats.Finish)
		assert.Len(t, o.tokens, 8-n+1)
		assertSame(t, simulate(tablemodel.Hashed(0), 8, Request{Prompt: prompt(n, 1), IgnoreEOG: true}), o)
	}
}

// The same text, whatever the shape of the batches, alone and with company.
func TestSameTextInCompany(t *testing.T) {
	all := requests(16)
	var want []outcome
	finishes := map[FinishReason]int{}
	for _, r := range all {
		o := simulate(tablemodel.Hashed(0), 64, r)
		want = append(want, o)
		finishes[o.stats.Finish]++
	}
	require.Len(t, finishes, 4, "the requests end in every way: %v", finishes)

	for _, c := range []tablemodel.Config{
		{Sequences: 1, Batch: 1},
		{Sequences: 1, Batch: 7},
		{Sequences: 2, Batch: 2},
		{Sequences: 8, Batch: 8},
		{Sequences: 8, Batch: 16, Outputs: 8},
		{Sequences: 16, Batch: 64},
		{Sequences: 16, Batch: 1024},
		{Sequences: 3, Batch: 40, NoRollback: true},
		{Sequences: 16, Batch: 32, Cells: 71}, // one has at most 64
		{Sequences: 4, Batch: 5, Cells: 71, NoRollback: true},
	} {
		c.Context = 64
		for _, together := range []int{1, 2, 3, 8, 16} {
			e := newEngine(t, tablemodel.New(c), Options{})
			for group := range slices.Chunk(all, together) {
				first := slices.IndexFunc(all, func(r Request) bool { return &r.Prompt[0] == &group[0].Prompt[0] })
				for i, o := range runAll(t, e, group) {
					assertSame(t, want[first+i], o, "request %d, %d together, %+v", first+i, together, c)
				}
			}
		}
	}
}

func TestLogProbs(t *testing.T) {
	// Four tokens have logits ln 8, ln 4, ln 2, ln 2, the others none: the
	// probabilities are 1/2, 1/4, 1/8, 1/8.
	row := func(dst []float32, prefix []int32) {
		for i := range dst {
			dst[i] = float32(negInf)
		}
		dst[4], dst[5], dst[6], dst[7] = 2.0794415, 1.3862944, 0.6931472, 0.6931472
	}
	m := tablemodel.New(tablemodel.Config{Logits: row})
	e := newEngine(t, m, Options{})
	base := Request{Prompt: bos(), MaxTokens: 40, Sampling: sampler.Config{Temperature: 1}}

	r := base
	o := runRequest(t, t.Context(), e, r)
	require.NoError(t, o.err)
	for _, token := range o.tokens {
		assert.Zero(t, token.LogProb)
		assert.Nil(t, token.Top)
	}

	r = base
	r.LogProbs = true
	withLogProbs := runRequest(t, t.Context(), e, r)
	assert.Equal(t, o.ids(), withLogProbs.ids())
	want := map[int32]float64{4: -0.693147, 5: -1.386294, 6: -2.079442, 7: -2.079442}
	seen := map[int32]bool{}
	for _, token := range withLogProbs.tokens {
		seen[token.ID] = true
		assert.InDelta(t, want[token.ID], token.LogProb, 1e-5)
		assert.Empty(t, token.Top)
	}
	assert.Len(t, seen, 4, "40 tokens draw each of the four")

	// What temperature and filters do to the distribution is not in it, nor what
	// they do to the row.
	r = base
	r.TopLogProbs = 3
	r.Sampling = sampler.Config{TopK: 1, Temperature: 2, LogitBias: map[int32]float64{7: 20}}
	o = runRequest(t, t.Context(), e, r)
	for _, token := range o.tokens {
		assert.Equal(t, int32(7), token.ID)
		assert.InDelta(t, -2.079442, token.LogProb, 1e-5)
		require.Len(t, token.Top, 3)
		for i, id := range []int32{4, 5, 6} {
			assert.Equal(t, id, token.Top[i].ID)
			assert.InDelta(t, want[id], token.Top[i].LogProb, 1e-5)
		}
	}

	r.TopLogProbs = 10
	o = runRequest(t, t.Context(), e, r)
	assert.Len(t, o.tokens[0].Top, 4, "no more than have a probability")
}

// A draw depends on the position in the sequence and on the seed.
func TestDrawPosition(t *testing.T) {
	flat := func(dst []float32, prefix []int32) {
		for i := range dst {
			dst[i] = float32(i % 3)
		}
	}
	m := tablemodel.New(tablemodel.Config{Logits: flat})
	e := newEngine(t, m, Options{})
	r := Request{Prompt: prompt(5, 1), MaxTokens: 30, Sampling: sampler.Config{Temperature: 1}, Seed: 3, IgnoreEOG: true}
	long := runRequest(t, t.Context(), e, r)
	again := runRequest(t, t.Context(), e, r)
	assert.Equal(t, long.ids(), again.ids())

	// With logits that ignore the text, a prompt that is longer by 3 shifts it.
	r.Prompt = prompt(8, 2)
	shifted := runRequest(t, t.Context(), e, r)
	assert.Equal(t, long.ids()[3:], shifted.ids()[:27])

	r.Seed = 4
	other := runRequest(t, t.Context(), e, r)
	assert.NotEqual(t, shifted.ids(), other.ids())
}

// The history that filters see is the prompt and what was generated.
func TestHistory(t *testing.T) {
	flat := func(dst []float32, prefix []int32) { clear(dst) }
	m := tablemodel.New(tablemodel.Config{Logits: flat})
	e := newEngine(t, m, Options{})
	r := Request{Prompt: []int32{3, 4, 5}, MaxTokens: 4, IgnoreEOG: true,
		Sampling: sampler.Config{PresencePenalty: 1, PenaltyLastN: 100}}
	o := runRequest(t, t.Context(), e, r)
	require.NoError(t, o.err)
	assert.Equal(t, []int32{0, 1, 2, 6}, o.ids(), "the lowest ids that did not occur")
}
