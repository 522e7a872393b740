package llama

// #include "shim.h"
// #include <stdlib.h>
import "C"

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/sortes-llm/sortes/eval"
)

// FlashAttention says whether the fused attention kernel is used.
type FlashAttention int

// Flash attention settings (enum llama_flash_attn_type).
const (
	FlashAuto FlashAttention = iota // where the device has it
	FlashOn
	FlashOff
)

// Pooling says how token embeddings become one of a sequence.
type Pooling int

// Pooling settings (enum llama_pooling_type).
const (
	PoolingModel Pooling = iota // what the model's file says
	PoolingNone                 // one embedding a token
	PoolingMean
	PoolingCLS
	PoolingLast
	PoolingRank // a reranker's score
)

// SessionOptions are the optional arguments of Model.NewSession. The zero
// value is llama.cpp's default for one sequence.
type SessionOptions struct {
	Context   int // tokens that one sequence can hold, rounded up to a multiple of 256; 0 means what the model was trained on
	Sequences int // held at once, at most 256; 0 means 1

	Batch      int // rows of one Eval at most; 0 means 2048
	Microbatch int // rows computed at once; 0 means 512
	Outputs    int // rows with Output in one Eval, at least Sequences; 0 means Sequences + 32

	// Unified puts all sequences into one cache: sequences share prefixes
	// without copying, and each may grow while others are short. Otherwise
	// each has a cache of its own, which generates faster. Cells is the size
	// of the unified cache in tokens; 0 means Context times Sequences. Pooled
	// embeddings need a unified cache and get it.
	Unified bool
	Cells   int

	// Branches is how many branches one Eval may have besides the sequences
	// (eval.Brancher): trees of drafts. It needs a unified cache and a memory
	// that can drop the end of a sequence; Sequences and Branches together are
	// at most 256. A branch holds cells only while it lasts.
	Branches int

	KeyType, ValueType TensorType     // of the KV cache: TypeF16 (default), TypeBF16, TypeF32, TypeQ8_0, TypeQ4_0, ...
	FlashAttention     FlashAttention // quantised values need it
	FullSWA            bool           // keep the whole of sliding-window layers: more memory, any rollback
	CacheOnHost        bool           // keep the KV cache off the GPU

	// Exact makes the logits of a row independent of the rows beside it, bit
	// for bit: NewSession chooses the KV types that its own probe confirms,
	// and fails where none does or where KeyType or ValueType contradict it.
	Exact bool

	RopeFreqBase, RopeFreqScale float64 // 0 means what the model's file says

	Embeddings bool    // compute embeddings: every row is output
	Pooling    Pooling // of embeddings

	// Pool is the threads to compute with. Without one the session starts a
	// pool of Threads threads of its own. Threads computes one row and
	// BatchThreads more than one; 0 means all of the pool.
	Pool         *Pool
	Threads      int
	BatchThreads int
}

// A Session is a llama_context: compute buffers and a KV cache for some
// sequences. It implements eval.Evaluator. One goroutine at a time may use it.
// It must be closed before its model and its pool.
type Session struct {
	model   *Model
	options SessionOptions
	handle  *C.struct_llama_context
	eval    *C.srt_eval
	pool    *Pool
	ownPool bool
	limits  eval.Limits

	hasMemory   bool // embedding models keep nothing between Evals
	rollback    bool // the memory can drop a suffix
	copiesLater bool // Copy is carried out by the next decode
	window      int  // sliding window whose older cells are gone, 0 for none

	lengths  []int   // tokens of each sequence
	shared   sharing // cells of a unified cache
	after    []int   // what lengths will be if the Eval in progress succeeds
	outputs  []int32 // row of the last Eval -> row of logits, -1 for none
	rows     int     // of the last Eval; 0 after a failed one
	nOutputs int
	branches []branch // of the last Eval, in sequences that had several
	adapters []AdapterScale
	probed   *eval.Noise // what Probe saw
	pending  bool        // a copy or a shift waits for the next decode
	broken   bool
	uses     int // written by every method, so that the race detector sees two users
}

var _ eval.Evaluator = (*Session)(nil)

// NewSession makes a context with a KV cache for o.Sequences sequences.
func (m *Model) NewSession(o SessionOptions) (*Session, error) {
	return m.NewSessionContext(context.Background(), o)
}

// NewSessionContext is NewSession with a context, which ends the probe of exact
// mode: that evaluates some 900 tokens for every cache it tries. The error then
// wraps context.Cause(ctx).
func (m *Model) NewSessionContext(ctx context.Context, o SessionOptions) (*Session, error) {
	if o.Exact {
		return m.newExactSession(ctx, o, o.exactTypes(m.Facts()))
	}
	return m.newSession(o)
}

func (m *Model) newSession(o SessionOptions) (*Session, error) {
	facts := m.Facts()
	if facts.Encoder {
		return nil, fmt.Errorf("llama: %s models have an encoder and a decoder, which sessions do not support", facts.Architecture)
	}
	if m.vocabOnly {
		return nil, errors.New("llama: the model was opened with its vocabulary only: no sessions")
	}
	o.Unified = o.Unified || o.pools(m, facts)
	params, err := o.params(m, facts)
	if err != nil {
		return nil, err
	}

	pool, ownPool := o.Pool, o.Pool == nil
	if ownPool {
		if pool, err = NewPool(max(o.Threads, o.BatchThreads)); err != nil {
			return nil, err
		}
	}
	threads, batchThreads, err := o.threads(pool)
	if err == nil {
		err = pool.attach()
	}
	if err != nil {
		if ownPool {
			pool.Close()
		}
		return nil, err
	}
	params.n_threads, params.n_threads_batch = C.int32_t(threads), C.int32_t(batchThreads)

	m.retain()
	live.Add(1)
	s := &Session{model: m, options: o, pool: pool, ownPool: ownPool}
	if err := s.open(params, facts); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Session) open(params C.struct_llama_context_params, facts Facts) error {
	sequences := int(params.n_seq_max) - s.options.Branches
	s.eval = C.srt_eval_new(C.int32_t(params.n_batch), C.int32_t(1+s.options.Branches))
	if s.eval == nil {
		return fmt.Errorf("llama: a batch of %d rows: out of memory", int(params.n_batch))
	}
	err := withFault("new session", func(f *C.srt_fault) bool {
		s.handle = C.srt_context_new(s.model.ptr(), params, &s.eval.flag, f)
		return s.handle == nil
	})
	if err != nil {
		return err
	}
	C.llama_attach_threadpool(s.handle, s.pool.ptr(), s.pool.ptr())

	perSequence := int(C.llama_n_ctx_seq(s.handle))
	if s.options.Unified {
		perSequence = min(perSequence, pad256(cmp.Or(s.options.Context, facts.TrainContext)))
	}
	if s.model.learnedPositions {
		perSequence = min(perSequence, facts.TrainContext)
	}
	batch := min(int(params.n_batch), int(C.llama_n_batch(s.handle)))
	s.hasMemory = C.llama_get_memory(s.handle) != nil
	if !s.hasMemory {
		batch = min(batch, int(C.llama_n_ubatch(s.handle))) // rows that nothing keeps are computed at once
	}
	if s.options.Batch > 0 {
		batch = min(batch, s.options.Batch)
	}
	s.limits = eval.Limits{
		Vocab:     s.model.vocab.Size(),
		Sequences: sequences,
		Context:   perSequence,
		Batch:     batch,
		Outputs:   min(batch, s.options.outputs(batch, sequences)),
	}
	if !s.hasMemory && !s.options.Embeddings {
		return fmt.Errorf("llama: %s models make embeddings and nothing else: want Embeddings in the options", facts.Architecture)
	}
	s.rollback = !facts.Recurrent && !facts.Hybrid
	s.copiesLater = !s.options.Unified && !facts.Recurrent
	if facts.SlidingWindow > 0 && !s.options.FullSWA {
		s.window = facts.SlidingWindow
	}
	s.lengths = make([]int, sequences)
	s.after = make([]int, sequences)
	if s.options.Unified {
		s.shared = newSharing(sequences)
	}
	s.outputs = make([]int32, batch)
	return nil
}

func pad256(n int) int { return (n + 255) / 256 * 256 }

// outputs returns how many rows of one Eval may be outputs.
func (o SessionOptions) outputs(batch, sequences int) int {
	switch {
	case o.Embeddings:
		return batch
	case o.Outputs == 0:
		return min(batch, sequences+32)
	}
	return max(o.Outputs, sequences)
}

// reservedOutputs rounds up the rows of logits that llama.cpp plans its buffer
// of activations for. With few of them its allocator places those of a prompt
// so that they get into each other's way in the caches (measured with 1, 2, 33
// and 34 rows: a prompt took a fifth longer). The memory is used only for rows
// that are there.
func reservedOutputs(n int) int { return (n + 127) / 128 * 128 }

// pools reports whether the rows of a sequence are pooled. llama.cpp pools those
// it computes together, and with separate caches it computes sequences of
// unequal length in parts.
func (o SessionOptions) pools(m *Model, facts Facts) bool {
	if o.Pooling == PoolingModel {
		kind, ok := m.Meta(facts.Architecture + ".pooling_type")
		return o.Embeddings && ok && kind != "0"
	}
	return o.Embeddings && o.Pooling != PoolingNone
}

// params makes llama.cpp's form of the options.
func (o SessionOptions) params(m *Model, facts Facts) (C.struct_llama_context_params, error) {
	p := C.llama_context_default_params()
	fail := func(format string, args ...any) (C.struct_llama_context_params, error) {
		return p, fmt.Errorf("llama: "+format, args...)
	}
	inRange := func(v, low, high int) bool { return v >= low && v <= high }

	sequences := max(1, o.Sequences)
	most := int(C.llama_max_parallel_sequences())
	if !inRange(o.Sequences, 0, most) {
		return fail("%d sequences: want 1 to %d", o.Sequences, most)
	}
	if err := o.checkBranches(facts); err != nil {
		return p, err
	}
	if sequences+o.Branches > most {
		return fail("%d sequences and %d branches: want at most %d together", sequences, o.Branches, most)
	}
	perSequence := o.Context
	if perSequence == 0 {
		perSequence = facts.TrainContext
	}
	if !inRange(perSequence, 1, math.MaxInt32) {
		return fail("a context of %d tokens: want 1 to %d", perSequence, math.MaxInt32)
	}
	if m.learnedPositions && perSequence > facts.TrainContext {
		return fail("a context of %d tokens: this model has learned positions for %d and no more", perSequence, facts.TrainContext)
	}
	if o.Cells != 0 && !o.Unified {
		return fail("%d cells: only with a unified cache", o.Cells)
	}
	cells := pad256(perSequence) * sequences
	if o.Cells != 0 {
		cells = o.Cells
	}
	if !inRange(cells, 1, math.MaxInt32-255) {
		return fail("a cache of %d tokens: want 1 to %d", cells, math.MaxInt32-255)
	}
	if !inRange(o.Batch, 0, 1<<20) || !inRange(o.Microbatch, 0, 1<<20) {
		return fail("a batch of %d rows, %d at once: want 0 to %d", o.Batch, o.Microbatch, 1<<20)
	}
	if o.Batch > 0 {
		p.n_batch = C.uint32_t(o.Batch)
	}
	if o.Microbatch > 0 {
		p.n_ubatch = C.uint32_t(o.Microbatch)
	}
	if causal, ok := m.Meta(facts.Architecture + ".attention.causal"); ok && causal == "false" || o.pools(m, facts) {
		p.n_ubatch = p.n_batch // a row may look ahead, or is pooled with others: all are computed at once
	}
	if o.Embeddings {
		// With pooling llama.cpp asserts unless the rows of its trial graph can
		// be dealt out evenly to the sequences.
		even := func(n C.uint32_t) C.uint32_t {
			return (n + C.uint32_t(sequences) - 1) / C.uint32_t(sequences) * C.uint32_t(sequences)
		}
		p.n_batch, p.n_ubatch, cells = even(p.n_batch), even(p.n_ubatch), int(even(C.uint32_t(cells)))
	}
	if !inRange(o.Outputs, 0, int(p.n_batch)) {
		return fail("%d output rows: want 0 to the batch size %d", o.Outputs, int(p.n_batch))
	}
	outputs := o.outputs(int(p.n_batch), sequences)
	if !o.KeyType.forCache() || !o.ValueType.forCache() {
		return fail("KV cache types %s and %s: want f16, bf16, f32, q8_0, q5_1, q5_0, q4_1, q4_0 or iq4_nl", o.KeyType, o.ValueType)
	}
	if o.ValueType.quantised() && o.FlashAttention == FlashOff {
		return fail("a KV cache with values of type %s needs flash attention", o.ValueType)
	}
	if o.FlashAttention < FlashAuto || o.FlashAttention > FlashOff {
		return fail("flash attention %d: want FlashAuto, FlashOn or FlashOff", o.FlashAttention)
	}
	if o.Pooling < PoolingModel || o.Pooling > PoolingRank {
		return fail("pooling %d: want one of the Pooling constants", o.Pooling)
	}
	if !(o.RopeFreqBase >= 0 && o.RopeFreqBase <= math.MaxFloat32) || !(o.RopeFreqScale >= 0 && o.RopeFreqScale <= math.MaxFloat32) {
		return fail("RoPE base %v and scale %v: want 0 or more", o.RopeFreqBase, o.RopeFreqScale)
	}
	if err := checkCacheMemory(m, facts, o, cells); err != nil {
		return p, err
	}

	p.no_perf = false
	p.n_ctx = C.uint32_t(cells)
	p.n_seq_max = C.uint32_t(sequences + o.Branches)
	p.n_outputs_max = C.uint32_t(reservedOutputs(max(outputs, sequences+o.Branches))) // llama.cpp asserts one a sequence
	p.kv_unified = C.bool(o.Unified)
	p.type_k, p.type_v = o.KeyType.native(), o.ValueType.native()
	p.flash_attn_type = map[FlashAttention]C.enum_llama_flash_attn_type{
		FlashAuto: C.LLAMA_FLASH_ATTN_TYPE_AUTO, FlashOn: C.LLAMA_FLASH_ATTN_TYPE_ENABLED, FlashOff: C.LLAMA_FLASH_ATTN_TYPE_DISABLED,
	}[o.FlashAttention]
	p.swa_full = C.bool(o.FullSWA)
	p.offload_kqv = C.bool(!o.CacheOnHost)
	p.rope_freq_base, p.rope_freq_scale = C.float(o.RopeFreqBase), C.float(o.RopeFreqScale)
	p.embeddings = C.bool(o.Embeddings)
	p.pooling_type = C.enum_llama_pooling_type(o.Pooling) - 1 // ours starts at UNSPECIFIED, which is -1 there
	return p, nil
}

func (o SessionOptions) threads(pool *Pool) (one, many int, err error) {
	one, many = o.Threads, o.BatchThreads
	if one == 0 {
		one = pool.Threads()
	}
	if many == 0 {
		many = max(one, pool.Threads())
	}
	if one < 1 || many < 1 || one > pool.Threads() || many > pool.Threads() {
		return 0, 0, fmt.Errorf("llama: %d threads, %d for batches: want 1 to the pool's %d", o.Threads, o.BatchThreads, pool.Threads())
	}
	return one, many, nil
}

func (s *Session) ptr() *C.struct_llama_context {
	s.uses++
	if s.handle == nil {
		panic("llama: session is closed")
	}
	return s.handle
}

// ready is ptr for everything that needs the memory of the session in order.
func (s *Session) ready(op string) (*C.struct_llama_context, error) {
	p := s.ptr()
	if s.broken {
		return nil, &Error{Op: op, Err: ErrBroken}
	}
	return p, nil
}

// Close frees the session. A second Close does nothing.
func (s *Session) Close() {
	s.uses++
	if s.model == nil {
		return
	}
	if s.handle != nil {
		// After an assertion midway even freeing may fail; the fence holds.
		_ = withFault("free session", func(f *C.srt_fault) bool { C.srt_context_free(s.handle, f); return false })
		s.handle = nil
	}
	C.srt_eval_free(s.eval)
	s.eval = nil
	s.pool.detach()
	if s.ownPool {
		s.pool.Close()
	}
	for _, a := range s.adapters {
		a.Adapter.release()
	}
	s.adapters = nil
	s.model.release()
	s.model = nil
	live.Add(-1)
}

// Model returns the model of the session.
func (s *Session) Model() *Model { s.ptr(); return s.model }

// Limits returns the sizes of the session.
func (s *Session) Limits() eval.Limits { s.ptr(); return s.limits }

// KVTypes returns the types of the KV cache: those asked for, or chosen in
// exact mode.
func (s *Session) KVTypes() (key, value TensorType) {
	s.ptr()
	return s.options.KeyType, s.options.ValueType
}

// Idle lets the compute threads sleep at once. The next Eval wakes them.
func (s *Session) Idle() { s.ptr(); s.pool.pause() }

func (s *Session) mustHave(seq int) {
	if seq < 0 || seq >= s.limits.Sequences {
		panic("llama: sequence out of range")
	}
}

// Eval implements eval.Evaluator. It panics on a sequence out of range, on no
// rows, on more rows or outputs than Limits allow, on more branches than the
// options allow and on branches that meet again. It does not allocate unless ctx
// can be cancelled or it fails.
//
// On a CPU a done ctx ends it within one operation of the graph; on a GPU
// between microbatches.
func (s *Session) Eval(ctx context.Context, rows []eval.Row) error {
	if _, err := s.ready("decode"); err != nil {
		return err
	}
	s.rows, s.nOutputs = 0, 0
	if len(rows) == 0 || len(rows) > s.limits.Batch {
		panic("llama: rows of one Eval: want 1 to Limits().Batch")
	}
	if ctx.Err() != nil {
		return fmt.Errorf("llama: decode: %w", context.Cause(ctx))
	}
	if err := s.prune(); err != nil {
		return err
	}
	if err := s.fill(rows); err != nil {
		s.branches = s.branches[:0]
		return err
	}
	if err := s.fork(); err != nil {
		return err
	}
	snapshots, err := s.snapshot(ctx, rows)
	if err != nil {
		return err
	}
	defer snapshots.free()

	code, err := s.decode(ctx, len(rows))
	if err != nil {
		return err
	}
	if code == 0 && s.eval.fault.kind == C.SRT_OK {
		s.rows, s.pending = len(rows), false
		if s.hasMemory {
			s.lengths, s.after = s.after, s.lengths
		}
		return nil
	}
	return s.undo(ctx, rows, code, snapshots)
}

// fill lays the rows into the native batch and counts them into s.after.
func (s *Session) fill(rows []eval.Row) error {
	copy(s.after, s.lengths)
	s.plant(rows)
	b := &s.eval.batch
	n := len(rows)
	tokens := unsafe.Slice((*int32)(unsafe.Pointer(b.token)), n)
	positions := unsafe.Slice((*int32)(unsafe.Pointer(b.pos)), n)
	width := 1 + s.options.Branches // of a row in ids
	ids, counts := unsafe.Slice(s.eval.ids, n*width), unsafe.Slice(b.n_seq_id, n)
	flags := unsafe.Slice((*int8)(unsafe.Pointer(b.logits)), n)
	for i, r := range rows {
		s.mustHave(r.Seq)
		if !s.model.vocab.Has(r.Token) {
			return fmt.Errorf("llama: decode: token %d: %w of %d", r.Token, eval.ErrToken, s.limits.Vocab)
		}
		sequences, position := s.join(i, r, ids[i*width:])
		if position >= s.limits.Context {
			return fmt.Errorf("llama: decode: sequence %d holds %d tokens: %w", r.Seq, s.lengths[r.Seq], eval.ErrNoSlot)
		}
		tokens[i], positions[i], counts[i] = r.Token, int32(position), C.int32_t(sequences)
		s.outputs[i], flags[i] = -1, 0
		if r.Output || s.options.Embeddings {
			s.outputs[i], flags[i] = int32(s.nOutputs), 1
			s.nOutputs++
		}
	}
	if s.nOutputs > s.limits.Outputs {
		panic("llama: output rows of one Eval: want at most Limits().Outputs")
	}
	return nil
}

// decode runs the first n rows of the native batch, cancelled by ctx. On an
// error it was not even tried.
func (s *Session) decode(ctx context.Context, n int) (code int, err error) {
	C.srt_flag_clear(&s.eval.flag)
	if ctx.Done() != nil {
		defer watch(ctx, &s.eval.flag)()
	}
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if s.pool.broken {
		return 0, &Error{Op: "decode", Err: ErrBroken}
	}
	return int(C.srt_decode(s.handle, s.eval, C.int32_t(n))), nil
}

// undo brings every touched sequence back to where it was and says why the
// decode failed. The codes are those of llama_decode.
func (s *Session) undo(ctx context.Context, rows []eval.Row, code int, snapshots *snapshots) error {
	s.nOutputs = 0
	err := faulted("decode", &s.eval.fault, code, true)
	if s.eval.fault.kind != C.SRT_OK {
		// Midway: the memory may be in any state, and the threads of the pool may
		// wait at a barrier for a caller that left.
		s.broken = true
		s.pool.mu.Lock()
		s.pool.broken = true
		s.pool.mu.Unlock()
		return err
	}
	switch code {
	case 1:
		err = fmt.Errorf("llama: decode: %w for %d rows", eval.ErrNoSlot, len(rows))
	case -1: // an invalid batch: nothing was done
	default: // 2 aborted, below -1 fatal: a part may stay
		if code == 2 && ctx.Err() != nil {
			err = fmt.Errorf("llama: decode: %w", context.Cause(ctx))
		}
		err = errors.Join(err, s.restore(rows, snapshots))
	}
	return errors.Join(err, s.prune())
}

// restore drops what a failed decode left.
func (s *Session) restore(rows []eval.Row, snapshots *snapshots) error {
	if !s.hasMemory {
		return nil
	}
	done := map[int]bool{}
	for _, r := range rows {
		if done[r.Seq] {
			continue
		}
		done[r.Seq] = true
		if err := snapshots.restore(s, r.Seq); err == nil {
			if ok, err := s.remove(r.Seq, s.lengths[r.Seq]); err == nil && ok {
				continue
			}
		}
		// Neither dropped nor restored: better empty than wrong.
		_, _ = s.remove(r.Seq, 0)
		s.lengths[r.Seq] = 0
		s.shared.cut(r.Seq, 0)
		return fmt.Errorf("llama: sequence %d was emptied: %w", r.Seq, eval.ErrNoRollback)
	}
	return nil
}

// Logits implements eval.Evaluator: the row of native memory that belongs to
// row i of the last Eval. It is valid until the next Eval or Close, and may be
// overwritten by the next one; it does no allocation. It panics if row i was
// not an output of a successful Eval.
func (s *Session) Logits(i int) []float32 {
	s.ptr()
	if i < 0 || i >= s.rows || s.outputs[i] < 0 || s.eval.logits == nil {
		panic("llama: no logits for this row: not an output of the last Eval")
	}
	all := unsafe.Slice((*float32)(unsafe.Pointer(s.eval.logits)), s.nOutputs*s.limits.Vocab)
	start := int(s.outputs[i]) * s.limits.Vocab
	return all[start : start+s.limits.Vocab : start+s.limits.Vocab]
}

// Embedding returns the hidden state after row i of the last Eval, of
// Facts.Embedding numbers, for a session with Embeddings and without pooling.
// It is valid until the next Eval or Close. It panics where there is none.
func (s *Session) Embedding(i int) []float32 {
	s.ptr()
	if i < 0 || i >= s.rows || s.outputs[i] < 0 || s.eval.embeddings == nil || C.llama_pooling_type(s.handle) != C.LLAMA_POOLING_TYPE_NONE {
		panic("llama: no embedding for this row")
	}
	n := int(C.llama_model_n_embd_out(s.model.ptr()))
	all := unsafe.Slice((*float32)(unsafe.Pointer(s.eval.embeddings)), s.nOutputs*n)
	start := int(s.outputs[i]) * n
	return all[start : start+n : start+n]
}

// SequenceEmbedding returns the pooled embedding of a sequence after the last
// Eval, or the scores of a reranker. It is valid until the next Eval or Close.
func (s *Session) SequenceEmbedding(seq int) ([]float32, error) {
	if _, err := s.ready("sequence embedding"); err != nil {
		return nil, err
	}
	s.mustHave(seq)
	n := int(C.llama_model_n_embd_out(s.model.ptr()))
	if C.llama_pooling_type(s.handle) == C.LLAMA_POOLING_TYPE_RANK {
		n = int(C.llama_model_n_cls_out(s.model.ptr()))
	}
	var p *C.float
	err := withFault("sequence embedding", func(f *C.srt_fault) bool {
		p = C.srt_embeddings_seq(s.handle, C.int32_t(seq), f)
		return false
	})
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, errors.New("llama: no pooled embedding: the session has no Embeddings, no pooling, or did not evaluate this sequence")
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(p)), n), nil
}

// Perf are llama.cpp's own counters of a session (llama_perf_context).
type Perf struct {
	LoadMS, PromptMS, EvalMS float64 // milliseconds: loading, decodes of several rows, decodes of one
	PromptTokens, EvalTokens int
	GraphsReused             int // decodes that could use the graph of the one before
}

// Perf returns the counters since the session was made or ResetPerf was called.
func (s *Session) Perf() Perf {
	p := C.llama_perf_context(s.ptr())
	return Perf{
		LoadMS: float64(p.t_load_ms), PromptMS: float64(p.t_p_eval_ms), EvalMS: float64(p.t_eval_ms),
		PromptTokens: int(p.n_p_eval), EvalTokens: int(p.n_eval), GraphsReused: int(p.n_reused),
	}
}

// ResetPerf sets the counters to zero.
func (s *Session) ResetPerf() { C.llama_perf_context_reset(s.ptr()) }
