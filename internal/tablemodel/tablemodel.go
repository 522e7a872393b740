// Package tablemodel is a model written down as a function, for tests: an
// eval.Evaluator whose logits are computed from the whole prefix of a
// sequence, so that any mistake in the bookkeeping of a cache (a token lost, a
// draft left behind, a neighbour's row read) changes the text.
//
// It is strict where a real evaluator is careless: it panics on use from two
// goroutines at once and on logits that were not asked for, and it writes NaN
// over logits whose time is up.
package tablemodel

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sortes-llm/sortes/eval"
)

// Config describes a Model. The zero value of a size means the size named
// beside it.
type Config struct {
	Vocab     int // len(Pieces)
	Sequences int // 1
	Context   int // 1024
	Batch     int // 64
	Outputs   int // Batch

	// Cells bounds the tokens of all sequences together, as a unified cache
	// does. 0 is no bound. Tokens that a sequence got by Copy count once.
	Cells int

	// Branches is how many branches an Eval may have besides the sequences.
	Branches int

	// Logits writes the row that follows prefix into dst. It must be a
	// function of its arguments. Nil is Hashed(0).
	Logits func(dst []float32, prefix []int32)

	// NoRollback makes Truncate refuse to drop a part of a sequence.
	NoRollback bool

	// Noise is what Probe reports. Its Rows are 1 where it has none.
	Noise eval.Noise

	// OnEval runs at the start of every Eval, with the number of Evals
	// before it. An error that it returns is the result of the Eval, which
	// then changes nothing. When it returns nil with ctx done, the Eval is
	// interrupted.
	OnEval func(ctx context.Context, call int, rows []eval.Row) error

	// OnCopy, where set, runs at the start of every Copy in the same way.
	OnCopy func(dst, src int) error
}

// A Model is an eval.Evaluator. Its counters may be read from any goroutine.
type Model struct {
	c     Config
	inUse atomic.Bool

	seqs     [][]cell
	branches []map[int][]cell // by sequence, those of the last Eval but the sequence itself
	nextID   int              // of the next cell
	rows     []eval.Row
	logits   [][]float32 // one for each row of the last Eval, nil without Output
	spare    [][]float32

	mu    sync.Mutex
	stats Counters
}

// A cell is one token of one sequence. Sequences that share a prefix hold the
// same cells.
type cell struct {
	token int32
	id    int
}

// Counters say what a Model was asked to do.
type Counters struct {
	Evals     int   // calls of Eval, also those that failed
	Rows      int   // rows of the Evals that did not fail
	Batches   []int // rows of each Eval that did not fail
	Copies    int
	Probes    int
	Idles     int
	Truncates int
	Keeps     int
}

// New returns a Model. It panics on sizes that no model can have.
func New(c Config) *Model {
	c.Vocab = either(c.Vocab, len(Pieces))
	c.Sequences = either(c.Sequences, 1)
	c.Context = either(c.Context, 1024)
	c.Batch = either(c.Batch, 64)
	c.Outputs = either(c.Outputs, c.Batch)
	c.Noise.Rows = either(c.Noise.Rows, 1)
	if c.Logits == nil {
		c.Logits = Hashed(0)
	}
	if min(c.Vocab, c.Sequences, c.Context, c.Batch, c.Outputs) < 1 {
		panic("tablemodel: a size below 1")
	}
	if c.Branches < 0 || c.Branches > 0 && c.NoRollback {
		panic("tablemodel: branches need a memory that can drop the end of a sequence")
	}
	return &Model{c: c, seqs: make([][]cell, c.Sequences), branches: make([]map[int][]cell, c.Sequences)}
}

func either(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// enter panics where a second goroutine is inside.
func (m *Model) enter() {
	if !m.inUse.CompareAndSwap(false, true) {
		panic("tablemodel: used by two goroutines at once")
	}
}

func (m *Model) leave() { m.inUse.Store(false) }

func (m *Model) count(f func(*Counters)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.stats)
}

// Counters returns a copy of the counters.
func (m *Model) Counters() Counters {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.stats
	c.Batches = slices.Clone(c.Batches)
	return c
}

// Limits implements eval.Evaluator.
func (m *Model) Limits() eval.Limits {
	return eval.Limits{Vocab: m.c.Vocab, Sequences: m.c.Sequences, Context: m.c.Context, Batch: m.c.Batch, Outputs: m.c.Outputs}
}

// Eval implements eval.Brancher. It panics on a number of rows outside the
// batch, on more outputs than Limits allow, on a sequence that does not exist, on
// more branches than Config.Branches and on branches that meet again.
func (m *Model) Eval(ctx context.Context, rows []eval.Row) error {
	m.enter()
	defer m.leave()
	if len(rows) < 1 || len(rows) > m.c.Batch {
		panic(fmt.Sprintf("tablemodel: %d rows in a batch of %d", len(rows), m.c.Batch))
	}
	outputs := 0
	for _, r := range rows {
		if r.Output {
			outputs++
		}
	}
	if outputs > m.c.Outputs {
		panic(fmt.Sprintf("tablemodel: %d outputs where %d are allowed", outputs, m.c.Outputs))
	}
	m.expire()
	call := 0
	m.count(func(c *Counters) { call = c.Evals; c.Evals++ })
	if m.c.OnEval != nil {
		if err := m.c.OnEval(ctx, call, rows); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("tablemodel: eval: %w", context.Cause(ctx))
	}
	m.branch(rows)
	if err := m.admit(rows); err != nil {
		clear(m.branches)
		return err
	}

	m.rows = append(m.rows[:0], rows...)
	for _, r := range rows {
		var row []float32
		if r.Output {
			row = m.row()
			m.c.Logits(row, tokensOf(m.append(r)))
		} else {
			m.append(r)
		}
		m.logits = append(m.logits, row)
	}
	m.count(func(c *Counters) { c.Rows += len(rows); c.Batches = append(c.Batches, len(rows)) })
	return nil
}

// branch makes the branches that the rows name, each as its sequence is.
func (m *Model) branch(rows []eval.Row) {
	more := 0
	for _, r := range rows {
		if r.First < 0 || r.First > r.Last || r.First == r.Last && r.Last != 0 {
			panic(fmt.Sprintf("tablemodel: a row of the branches from %d to below %d", r.First, r.Last))
		}
		for b := 1; b < r.Last; b++ {
			if m.branches[r.Seq] == nil {
				m.branches[r.Seq] = map[int][]cell{}
			}
			if _, ok := m.branches[r.Seq][b]; !ok {
				m.branches[r.Seq][b] = slices.Clone(m.seqs[r.Seq])
				more++
			}
		}
	}
	if more > m.c.Branches {
		panic(fmt.Sprintf("tablemodel: %d branches besides the sequences where %d are allowed", more, m.c.Branches))
	}
}

// append adds a row to its branches, and returns what each of them holds.
func (m *Model) append(r eval.Row) []cell {
	first, last := r.First, r.Last
	if last == 0 {
		last = len(m.branches[r.Seq]) + 1
	}
	held := m.of(r.Seq, first)
	grown := append(slices.Clip(held), cell{r.Token, m.nextID})
	m.nextID++
	for b := first; b < last; b++ {
		if !slices.Equal(m.of(r.Seq, b), held) {
			panic(fmt.Sprintf("tablemodel: branches %d and %d of sequence %d have parted", first, b, r.Seq))
		}
		if b == 0 {
			m.seqs[r.Seq] = grown
		} else {
			m.branches[r.Seq][b] = grown
		}
	}
	return grown
}

// of returns what a branch of a sequence holds.
func (m *Model) of(seq, branch int) []cell {
	if branch == 0 {
		return m.seqs[seq]
	}
	held, ok := m.branches[seq][branch]
	if !ok {
		panic(fmt.Sprintf("tablemodel: no branch %d of sequence %d", branch, seq))
	}
	return held
}

// admit reports what keeps the rows out.
func (m *Model) admit(rows []eval.Row) error {
	type way struct{ seq, branch int }
	more := map[way]int{}
	for i, r := range rows {
		if r.Token < 0 || int(r.Token) >= m.c.Vocab {
			return fmt.Errorf("tablemodel: row %d: token %d of %d: %w", i, r.Token, m.c.Vocab, eval.ErrToken)
		}
		last := r.Last
		if last == 0 {
			last = len(m.branches[r.Seq]) + 1
		}
		for b := r.First; b < last; b++ {
			more[way{r.Seq, b}]++
		}
	}
	for w, n := range more {
		if held := len(m.seqs[w.seq]); held+n > m.c.Context {
			return fmt.Errorf("tablemodel: %d tokens for sequence %d: %w", held+n, w.seq, eval.ErrNoSlot)
		}
	}
	if used := m.cells(); m.c.Cells > 0 && used+len(rows) > m.c.Cells {
		return fmt.Errorf("tablemodel: %d rows beside %d: %w", len(rows), used, eval.ErrNoSlot)
	}
	return nil
}

// cells counts the different cells in use.
func (m *Model) cells() int {
	seen := map[int]bool{}
	for _, s := range m.seqs {
		for _, c := range s {
			seen[c.id] = true
		}
	}
	return len(seen)
}

// expire overwrites the logits of the last Eval and drops its branches.
func (m *Model) expire() {
	for _, row := range m.logits {
		for i := range row {
			row[i] = float32(math.NaN())
		}
		if row != nil {
			m.spare = append(m.spare, row)
		}
	}
	m.logits = m.logits[:0]
	m.rows = m.rows[:0]
	clear(m.branches)
}

func (m *Model) row() []float32 {
	if n := len(m.spare); n > 0 {
		row := m.spare[n-1]
		m.spare = m.spare[:n-1]
		return row
	}
	return make([]float32, m.c.Vocab)
}

func tokensOf(cells []cell) []int32 {
	tokens := make([]int32, len(cells))
	for i, c := range cells {
		tokens[i] = c.token
	}
	return tokens
}

// Logits implements eval.Evaluator. It panics on a row without Output.
func (m *Model) Logits(i int) []float32 {
	m.enter()
	defer m.leave()
	if i < 0 || i >= len(m.logits) || m.logits[i] == nil {
		panic(fmt.Sprintf("tablemodel: no logits for row %d", i))
	}
	return m.logits[i]
}

// Len implements eval.Evaluator.
func (m *Model) Len(seq int) int { return len(m.seqs[seq]) }

// Tokens returns the tokens that a sequence holds.
func (m *Model) Tokens(seq int) []int32 { return tokensOf(m.seqs[seq]) }

// Truncate implements eval.Evaluator. It panics on n outside [0, Len(seq)].
func (m *Model) Truncate(seq, n int) error {
	m.enter()
	defer m.leave()
	held := len(m.seqs[seq])
	if n < 0 || n > held {
		panic(fmt.Sprintf("tablemodel: truncate sequence %d of %d tokens to %d", seq, held, n))
	}
	m.count(func(c *Counters) { c.Truncates++ })
	if m.c.NoRollback && n != 0 && n != held {
		return fmt.Errorf("tablemodel: truncate %d tokens to %d: %w", held, n, eval.ErrNoRollback)
	}
	m.seqs[seq] = slices.Clip(m.seqs[seq][:n])
	m.branches[seq] = nil
	return nil
}

// Branches implements eval.Brancher.
func (m *Model) Branches() int { return m.c.Branches }

// Keep implements eval.Brancher. It panics as that says.
func (m *Model) Keep(seq, branch, n int) error {
	m.enter()
	defer m.leave()
	held := m.of(seq, branch)
	if n < 0 || n > len(held) {
		panic(fmt.Sprintf("tablemodel: keep %d of %d tokens of branch %d", n, len(held), branch))
	}
	m.count(func(c *Counters) { c.Keeps++ })
	m.seqs[seq] = slices.Clone(held[:n])
	m.branches[seq] = nil
	return nil
}

// Shift drops tokens from the middle of a sequence. It panics unless 0 <= from
// <= to <= Len(seq).
func (m *Model) Shift(seq, from, to int) error {
	m.enter()
	defer m.leave()
	if m.c.NoRollback {
		return fmt.Errorf("tablemodel: shift: %w", eval.ErrNoRollback)
	}
	m.seqs[seq] = slices.Concat(m.seqs[seq][:from], m.seqs[seq][to:])
	return nil
}

// CanShift reports whether Shift works.
func (m *Model) CanShift() bool { return !m.c.NoRollback }

// Copy implements eval.Evaluator.
func (m *Model) Copy(dst, src int) error {
	m.enter()
	defer m.leave()
	m.count(func(c *Counters) { c.Copies++ })
	if m.c.OnCopy != nil {
		if err := m.c.OnCopy(dst, src); err != nil {
			return err
		}
	}
	m.seqs[dst] = slices.Clone(m.seqs[src])
	m.branches[dst] = nil
	return nil
}

// Probe implements eval.Evaluator. It returns Config.Noise.
func (m *Model) Probe(ctx context.Context) (eval.Noise, error) {
	m.enter()
	defer m.leave()
	m.count(func(c *Counters) { c.Probes++ })
	return m.c.Noise, ctx.Err()
}

// Idle counts how often it is told that nothing is left to do.
func (m *Model) Idle() {
	m.enter()
	defer m.leave()
	m.count(func(c *Counters) { c.Idles++ })
}

var _ eval.Brancher = (*Model)(nil)
