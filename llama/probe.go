package llama

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sortes-llm/sortes/eval"
)

// newExactSession returns a session whose probe shows no noise, with the first
// of these pairs of KV types that reaches it.
//
// On a CPU the fused attention takes another path for a single row than for
// several once 512 cells of an f16 cache are in use, and only there; bf16 and
// q8_0 have one path for all.
func (m *Model) newExactSession(ctx context.Context, o SessionOptions, choices [][2]TensorType) (*Session, error) {
	var seen []string
	var failed error // the first cache that cannot be had at all
	for _, types := range choices {
		try := o
		try.KeyType, try.ValueType = types[0], types[1]
		s, err := m.newSession(try)
		if err != nil {
			if failed == nil {
				failed = err
			}
			continue
		}
		noise, err := s.Probe(ctx)
		if err != nil {
			s.Close()
			return nil, err
		}
		if noise.Exact() {
			return s, nil
		}
		s.Close()
		seen = append(seen, fmt.Sprintf("%s/%s: %.3g", types[0], types[1], noise.MaxAbs))
	}
	if seen == nil {
		return nil, failed
	}
	return nil, fmt.Errorf("llama: exact mode: with this model on this machine the logits of a row depend on the rows beside it; "+
		"largest difference by types of the KV cache: %s", strings.Join(seen, ", "))
}

// exactTypes lists the pairs of KV types to try, cheapest first; only the
// caller's own where they are given.
func (o SessionOptions) exactTypes(facts Facts) [][2]TensorType {
	choices := []TensorType{TypeF16, TypeBF16, TypeQ8_0}
	context := o.Context
	if context == 0 {
		context = facts.TrainContext
	}
	if context > 256 && !onGPU(o) {
		choices = choices[1:]
	}
	if o.KeyType != TypeAuto || o.ValueType != TypeAuto {
		key, value := o.KeyType, o.ValueType
		if key == TypeAuto {
			key = TypeF16
		}
		if value == TypeAuto {
			value = TypeF16
		}
		return [][2]TensorType{{key, value}}
	}
	var pairs [][2]TensorType
	for _, t := range choices {
		if t.quantised() && o.FlashAttention == FlashOff {
			continue // refused, and not for want of exactness
		}
		pairs = append(pairs, [2]TensorType{t, t})
	}
	return pairs
}

// Depths and widths that the probe compares: below and above the 512 cells at
// which CPU attention changes its path, beyond the 64 rows at which it does
// again, as in the chunks in which prompts are evaluated.
var probes = []struct {
	depth  int
	widths []int
}{
	{100, []int{2, 4, 16, 80}},
	{600, []int{2, 4, 16, 80}},
}

// probeMost is the longest sequence that the probe evaluates.
const probeMost = 600 + 80

// probeSingles is the number of rows evaluated one at a time, to compare with.
// With quantised weights most of the small differences vanish when the next
// layer rounds its input, so a few rows may show none where there is some.
const probeSingles = 16

// Probe implements eval.Evaluator: it evaluates some rows alone, then the same
// rows among 2 to 80 of their own sequence and beside rows of others, at
// depths of 100 and 600 tokens (less where the context is smaller). It uses a
// session of its own with the same options, which costs the evaluation of some
// 900 tokens and the memory of a small cache. Later calls return what the
// first one saw, until other adapters are set.
func (s *Session) Probe(ctx context.Context) (noise eval.Noise, err error) {
	if _, err := s.ready("probe"); err != nil {
		return noise, err
	}
	if s.probed != nil {
		return *s.probed, nil
	}
	if s.options.Embeddings || !s.hasMemory {
		return noise, errors.New("llama: probe: a session for embeddings has no logits to compare")
	}
	start := time.Now()
	o := s.options
	o.Exact = false
	o.Pool, o.Threads, o.BatchThreads = s.pool, s.options.Threads, s.options.BatchThreads
	o.Sequences = min(s.limits.Sequences, 4)
	if !s.rollback {
		o.Sequences = max(2, o.Sequences) // a sequence is reset by copying it
	}
	o.Context = min(s.limits.Context, pad256(probeMost))
	o.Cells = 0
	o.Outputs = 0
	scratch, err := s.model.newSession(o)
	if err != nil {
		return noise, fmt.Errorf("llama: probe: %w", err)
	}
	defer scratch.Close()
	if err := scratch.SetAdapters(s.adapters...); err != nil {
		return noise, err
	}
	p := prober{Session: scratch, ctx: ctx}
	for _, at := range probes {
		depth := min(at.depth, scratch.limits.Context-probeSingles)
		if depth <= p.noise.Depth || p.err != nil {
			break
		}
		p.compare(depth, at.widths)
	}
	p.noise.Took = time.Since(start)
	if p.err == nil {
		s.probed = &p.noise
	}
	return p.noise, p.err
}

// A prober keeps the first error; after it nothing is evaluated.
type prober struct {
	*Session
	ctx   context.Context
	noise eval.Noise
	err   error
	count uint32
}

// token returns the next of a fixed sequence of arbitrary tokens.
func (p *prober) token() int32 {
	p.count++
	return int32((uint64(p.count*2654435761) * uint64(p.limits.Vocab)) >> 32)
}

func (p *prober) compare(depth int, widths []int) {
	p.fillTo(depth)
	rows := make([]int32, slices.Max(widths))
	for i := range rows {
		rows[i] = p.token()
	}
	alone := make([][]float32, probeSingles)
	seq := p.reset(depth)
	for i := range alone {
		p.evaluate([]eval.Row{{Token: rows[i], Seq: seq, Output: true}})
		alone[i] = p.row(0)
	}
	for _, width := range widths {
		if width > p.limits.Batch || depth+width > p.limits.Context {
			continue
		}
		seq := p.reset(depth)
		batch := make([]eval.Row, width)
		for i := range batch {
			batch[i] = eval.Row{Token: rows[i], Seq: seq, Output: i < probeSingles}
		}
		p.evaluate(batch)
		for i := range min(width, probeSingles) {
			p.measure(alone[i], i)
		}
	}
	if p.limits.Sequences > 1 && p.rollback {
		p.compareBeside(depth, rows, alone)
	}
	p.noise.Depth = depth
}

// compareBeside evaluates a row together with rows of other sequences, which
// stand at other depths.
func (p *prober) compareBeside(depth int, rows []int32, alone [][]float32) {
	p.reset(depth)
	batch := []eval.Row{{Token: rows[0], Seq: 0, Output: true}}
	for seq := 1; seq < p.limits.Sequences && p.err == nil; seq++ {
		if p.err = p.Copy(seq, 0); p.err == nil && p.window == 0 {
			p.err = p.Truncate(seq, depth-7*seq)
		}
		batch = append(batch, eval.Row{Token: rows[seq], Seq: seq, Output: true})
	}
	p.evaluate(batch)
	p.measure(alone[0], 0)
	for seq := 1; seq < p.limits.Sequences && p.err == nil; seq++ {
		p.err = p.Truncate(seq, 0)
	}
}

// fillTo brings sequence 0 to a depth.
func (p *prober) fillTo(depth int) {
	p.reset(p.noise.Depth)
	for p.err == nil && p.lengths[0] < depth {
		var batch []eval.Row
		for range min(depth-p.lengths[0], p.limits.Batch, 512) {
			batch = append(batch, eval.Row{Token: p.token(), Seq: 0})
		}
		p.evaluate(batch)
	}
}

// reset returns a sequence that holds the first depth tokens: sequence 0 cut
// back, or a copy of it where nothing can be cut.
func (p *prober) reset(depth int) int {
	if p.err != nil {
		return 0
	}
	if p.rollback {
		p.err = p.Truncate(0, min(depth, p.lengths[0]))
		return 0
	}
	p.err = p.Copy(1, 0)
	return 1
}

func (p *prober) evaluate(rows []eval.Row) {
	if p.err == nil {
		p.err = p.Eval(p.ctx, rows)
	}
}

func (p *prober) row(i int) []float32 {
	if p.err != nil {
		return nil
	}
	return append([]float32(nil), p.Logits(i)...)
}

func (p *prober) measure(want []float32, i int) {
	if p.err != nil {
		return
	}
	for id, got := range p.Logits(i) {
		if d := math.Abs(float64(got) - float64(want[id])); d > p.noise.MaxAbs || d != d {
			p.noise.MaxAbs = d
		}
	}
	p.noise.Rows++
}
