package llama

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/internal/gguf"
	"github.com/sortes-llm/sortes/internal/tinymodel"
)

// Every call here would end the process in a plain llama.cpp program. Each is
// tried twice: through the exported function, whose check in Go answers, and
// past that check, where the fence must.

func TestFenceItself(t *testing.T) {
	requireAssertion(t, failRaw(1), "asked to abort")
	err := failRaw(2)
	require.EqualError(t, err, "llama: fail: asked to throw")
	require.False(t, errors.As(err, new(Assertion)))
	require.NoError(t, failRaw(0))
	requireAssertion(t, failRaw(1), "asked to abort") // and once more
}

// raw is a batch of tokens 0, 1, 2, ... at these positions of a sequence.
func raw(seq int32, positions ...int32) rawBatch {
	b := rawBatch{tokens: make([]int32, len(positions)), positions: positions, sequences: make([]int32, len(positions))}
	for i := range positions {
		b.tokens[i], b.sequences[i] = int32(i), seq
	}
	return b
}

func fromTo(from, to int32) (all []int32) {
	for i := from; i < to; i++ {
		all = append(all, i)
	}
	return all
}

func TestFenceDecode(t *testing.T) {
	m := tinyModel(t, "llama")
	o := SessionOptions{Context: 256, Sequences: 2, Batch: 8, Microbatch: 4, Outputs: 8}
	want := newSession(t, m, o)
	evaluate(t, want, rowsOf(0, 10, 11, 12)...)
	wantNext := next(t, want, 0, 13)

	size := int32(m.vocab.Size())
	for _, c := range []struct {
		name      string
		checked   func(s *Session) error // through Eval
		panics    string
		is        error
		unchecked rawBatch
		assertion string // what the fence catches
		log       string // or what a code of -1 comes with
	}{
		{
			name:      "more rows than a batch",
			checked:   func(s *Session) error { return s.Eval(context.Background(), rowsOf(1, fromTo(0, 9)...)) },
			panics:    "llama: rows of one Eval: want 1 to Limits().Batch",
			unchecked: raw(1, fromTo(0, 9)...),
			assertion: "GGML_ASSERT(n_tokens_all <= cparams.n_batch) failed",
		}, {
			name:      "no rows",
			checked:   func(s *Session) error { return s.Eval(context.Background(), nil) },
			panics:    "llama: rows of one Eval: want 1 to Limits().Batch",
			unchecked: raw(1),
			log:       "n_tokens == 0",
		}, {
			name:      "neither tokens nor embeddings",
			unchecked: rawBatch{positions: []int32{0}, sequences: []int32{1}},
			assertion: "GGML_ASSERT(batch_inp.token || batch_inp.embd) failed",
		}, {
			name:      "token past the vocabulary",
			checked:   func(s *Session) error { return s.Eval(context.Background(), rowsOf(0, 20, size)) },
			is:        eval.ErrToken,
			unchecked: rawBatch{tokens: []int32{20, size}, positions: []int32{3, 4}, sequences: []int32{0, 0}},
			log:       "invalid token[1] = 300",
		}, {
			name:      "negative token",
			checked:   func(s *Session) error { return s.Eval(context.Background(), rowsOf(0, 20, -1)) },
			is:        eval.ErrToken,
			unchecked: rawBatch{tokens: []int32{20, -1}, positions: []int32{3, 4}, sequences: []int32{0, 0}},
			log:       "invalid token[1] = -1",
		}, {
			name:      "sequence past the last",
			checked:   func(s *Session) error { return s.Eval(context.Background(), rowsOf(2, 20)) },
			panics:    "llama: sequence out of range",
			unchecked: raw(2, 0),
			log:       "invalid seq_id[0][0] = 2 >= 2",
		}, {
			name:      "negative sequence",
			checked:   func(s *Session) error { return s.Eval(context.Background(), rowsOf(-1, 20)) },
			panics:    "llama: sequence out of range",
			unchecked: raw(-1, 0),
			log:       "invalid seq_id[0][0] = -1 >= 2",
		}, {
			name:      "positions that leave a gap before them",
			unchecked: raw(0, 4, 5),
			log:       "it is required that the sequence positions remain consecutive",
		}, {
			name:      "positions that leave a gap among them",
			unchecked: raw(0, 3, 5),
			log:       "positions are not continuous",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSession(t, m, o)
			evaluate(t, s, rowsOf(0, 10, 11, 12)...)
			switch {
			case c.panics != "":
				require.Equal(t, c.panics, panicText(func() { _ = c.checked(s) }))
			case c.checked != nil:
				require.ErrorIs(t, c.checked(s), c.is)
			}
			checkLengths(t, s, 3, 0)

			err := s.decodeRaw(c.unchecked)
			if c.assertion != "" {
				requireAssertion(t, err, c.assertion)
			} else {
				requireCode(t, err, -1, c.log)
			}
			checkLengths(t, s, 3, 0)

			// All of these stand at the entry: the context is as good as before.
			require.Equal(t, wantNext, next(t, s, 0, 13))
		})
	}
}

func TestFenceNonCausalRowsBeyondOneMicrobatch(t *testing.T) {
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256, Batch: 8, Microbatch: 4})
	s.setCausal(false)
	requireAssertion(t, s.decodeRaw(raw(0, fromTo(0, 5)...)), "non-causal attention requires n_ubatch >= n_tokens")
	evaluate(t, s, rowsOf(0, fromTo(0, 4)...)...)

	// A model that is not causal gets microbatches as large as its batches.
	o := SessionOptions{Context: 256, Batch: 8, Microbatch: 4, Embeddings: true}
	e := newSession(t, tinyModel(t, "encoder"), o)
	evaluate(t, e, rowsOf(0, fromTo(10, 18)...)...)
	want, err := e.SequenceEmbedding(0)
	require.NoError(t, err)
	want = append([]float32(nil), want...)
	requireAssertion(t, e.decodeRaw(raw(0, fromTo(0, 9)...)), "encoder requires n_ubatch >= n_tokens")
	requireAssertion(t, e.decodeRaw(rawBatch{positions: []int32{0}, sequences: []int32{0}}), "batch_inp.token || batch_inp.embd")
	requireCode(t, e.decodeRaw(raw(0)), -1, "n_tokens == 0")
	evaluate(t, e, rowsOf(0, fromTo(10, 18)...)...)
	got, err := e.SequenceEmbedding(0)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestFenceSequencesOfMemory(t *testing.T) {
	for _, unified := range []bool{false, true} {
		s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256, Sequences: 2, Unified: unified})
		evaluate(t, s, rowsOf(0, 10, 11, 12)...)
		ctx := context.Background()
		for _, seq := range []int{-2, -1, 2, 256, 1 << 30} {
			for name, call := range map[string]func(){
				"Len":               func() { s.Len(seq) },
				"Truncate":          func() { _ = s.Truncate(seq, 0) },
				"Copy to":           func() { _ = s.Copy(seq, 0) },
				"Copy from":         func() { _ = s.Copy(0, seq) },
				"Shift":             func() { _ = s.Shift(seq, 0, 0) },
				"Eval":              func() { _ = s.Eval(ctx, rowsOf(seq, 10)) },
				"SaveState":         func() { _ = s.SaveState(new(bytes.Buffer), seq, nil) },
				"LoadState":         func() { _, _ = s.LoadState(new(bytes.Buffer), seq) },
				"SequenceEmbedding": func() { _, _ = s.SequenceEmbedding(seq) },
			} {
				require.Equal(t, "llama: sequence out of range", panicText(call), name)
			}
		}
		// llama.cpp itself takes any of 256; -1 means all of them to some calls.
		for _, seq := range []int{-2, 256, 1 << 30} {
			_, err := s.remove(seq, 0)
			requireAssertion(t, err, "seq_id == -1 || (seq_id >= 0 &&")
			requireAssertion(t, s.copyRange(seq, 0, -1, -1), "seq_id_dst")
			requireAssertion(t, s.copyRange(0, seq, -1, -1), "seq_id_src")
			requireAssertion(t, s.addPositions(seq, 0, 1, 1), "seq_id >= 0 &&")
			_, err = s.lastPosition(seq)
			requireAssertion(t, err, "seq_id >= 0 &&")
			_, err = s.stateBytes(seq, 0)
			require.ErrorContains(t, err, "save state: state_seq_get_size: error getting state size")
			require.Error(t, s.setStateRaw(seq, make([]byte, 100)))
		}
		checkLengths(t, s, 3, 0)
		evaluate(t, s, rowsOf(0, 13)...)
	}
}

func TestFencePartialCopyBetweenCaches(t *testing.T) {
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256, Sequences: 2})
	evaluate(t, s, rowsOf(0, 10, 11, 12)...)
	requireAssertion(t, s.copyRange(1, 0, 1, 2), "seq_cp() is only supported for full KV buffers")
	checkLengths(t, s, 3, 0)
	require.NoError(t, s.Copy(1, 0)) // the exported Copy copies all
	checkLengths(t, s, 3, 3)

	u := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256, Sequences: 2, Unified: true})
	evaluate(t, u, rowsOf(0, 10, 11, 12)...)
	require.NoError(t, u.copyRange(1, 0, 0, 2))
	last, err := u.lastPosition(1)
	require.NoError(t, err)
	require.Equal(t, 1, last)
}

// manyPositions is the tiny Llama as an architecture whose tokens have several
// positions each (M-RoPE), for which caches cannot shift.
func manyPositions(t *testing.T) *Model {
	path := rewritten(t, "llama", func(kvs []gguf.KV, tensors []gguf.Data) ([]gguf.KV, []gguf.Data) {
		for i := range kvs {
			kvs[i].Key = strings.Replace(kvs[i].Key, "llama.", "qwen2vl.", 1)
		}
		return setKV(append(kvs, gguf.NewKV("qwen2vl.rope.dimension_sections", []int32{2, 3, 3, 0})),
			"general.architecture", "qwen2vl"), tensors
	})
	return openOnce(t, path)
}

func TestFenceShiftOfACacheThatCannot(t *testing.T) {
	s := newSession(t, manyPositions(t), SessionOptions{Context: 256})
	evaluate(t, s, rowsOf(0, 10, 11, 12)...)
	require.False(t, s.CanShift())
	require.ErrorIs(t, s.Shift(0, 0, 1), eval.ErrNoRollback)
	checkLengths(t, s, 3)
	requireAssertion(t, s.addPositions(0, 2, 3, -1), "seq_add() is only supported for n_pos_per_embd() == 1")
	evaluate(t, s, rowsOf(0, 13)...)

	for _, name := range []string{"recurrent", "hybrid"} {
		r := newSession(t, tinyModel(t, name), SessionOptions{Context: 256})
		evaluate(t, r, rowsOf(0, 10, 11, 12)...)
		require.False(t, r.CanShift())
		require.ErrorIs(t, r.Shift(0, 0, 1), eval.ErrNoRollback)
		checkLengths(t, r, 3)
	}
}

func TestFenceLogitsOfARowWithoutOutput(t *testing.T) {
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256})
	const text = "llama: no logits for this row: not an output of the last Eval"
	require.Equal(t, text, panicText(func() { s.Logits(0) }), "before the first Eval")
	evaluate(t, s, quietRowsOf(0, 10, 11, 12)...)
	for _, i := range []int{-1, 0, 1, 3, 1 << 40} {
		require.Equal(t, text, panicText(func() { s.Logits(i) }), "row %d", i)
	}
	s.Logits(2)
	require.Error(t, s.Eval(context.Background(), rowsOf(0, -1)))
	require.Equal(t, text, panicText(func() { s.Logits(2) }), "after a failed Eval")

	has, err := s.rawLogits(0)
	require.False(t, has)
	requireCode(t, err, 0, "invalid logits id 0, reason: batch.logits[0] != true")
	_, err = s.rawLogits(1 << 20)
	requireCode(t, err, 0, "out of range")
}

func TestFenceTokensOutsideTheVocabulary(t *testing.T) {
	v := tinyModel(t, "llama").Vocab()
	for _, id := range []int32{-1, int32(v.Size()), 1 << 30, -1 << 31} {
		require.False(t, v.Has(id))
		for name, call := range map[string]func(){
			"Piece":        func() { v.Piece(id) },
			"SpecialPiece": func() { v.SpecialPiece(id) },
			"Detokenize":   func() { v.Detokenize([]int32{10, id}) },
			"Attributes":   func() { v.Attributes(id) },
			"Score":        func() { v.Score(id) },
		} {
			require.Equal(t, "llama: token outside the vocabulary", panicText(call), name)
		}
		require.False(t, v.IsEOG(id))

		need := 0
		p := &pieces{ends: make([]int32, 1), text: make([]byte, 20)}
		require.ErrorContains(t, v.pieces(id, p, false, &need), "vector::_M_range_check")
		_, err := v.attributes(id)
		require.ErrorContains(t, err, "vector::_M_range_check")
		_, err = v.score(id)
		require.ErrorContains(t, err, "vector::_M_range_check")
	}
}

func TestFenceState(t *testing.T) {
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256, Sequences: 2})
	evaluate(t, s, rowsOf(0, 10, 11, 12)...)
	state := nativeState(t, s, 0)
	other := newSession(t, tinyModel(t, "window"), SessionOptions{Context: 256})
	evaluate(t, other, rowsOf(0, 10, 11, 12)...)

	for name, data := range map[string][]byte{
		"cut":     state[:len(state)/2],
		"short":   state[:len(state)-1],
		"foreign": nativeState(t, other, 0),
		"noise":   bytes.Repeat([]byte{0xa5}, len(state)),
	} {
		// The checks of LoadState have tests of their own in state_test.go.
		_, err := s.LoadState(bytes.NewReader(data), 1)
		require.ErrorIs(t, err, ErrState, name)

		err = s.setStateRaw(1, data)
		require.Error(t, err, name)
		t.Logf("%s: %v", name, err)
		require.ErrorAs(t, err, new(*Error), name)
		ok, err := s.remove(1, 0)
		require.NoError(t, err, name)
		require.True(t, ok, name)
		checkLengths(t, s, 3, 0)
	}
	evaluate(t, s, rowsOf(0, 13)...)
	evaluate(t, s, rowsOf(1, 13)...)
}

// nativeState is llama.cpp's own form of the state of a sequence.
func nativeState(t *testing.T, s *Session, seq int) []byte {
	t.Helper()
	var b bytes.Buffer
	tokens := make([]int32, s.Len(seq))
	require.NoError(t, s.SaveState(&b, seq, tokens))
	head := 8 + 4 + 32 + 4 + 8 + 4*len(tokens) + 8
	return b.Bytes()[head : b.Len()-32]
}

// An assertion midway leaves the session in doubt: it refuses all but Close.
func TestFenceMidwayBreaksTheSession(t *testing.T) {
	m := tinyModel(t, "llama")
	pool, err := NewPool(2)
	require.NoError(t, err)
	defer pool.Close()
	s := newSession(t, m, SessionOptions{Context: 256, Sequences: 2, Outputs: 4, Pool: pool})
	other := newSession(t, m, SessionOptions{Context: 256, Pool: pool})
	evaluate(t, s, rowsOf(0, 10, 11, 12)...)
	evaluate(t, other, rowsOf(0, 10)...)
	const text = "llama: output rows of one Eval: want at most Limits().Outputs"
	require.Equal(t, text, panicText(func() { _ = s.Eval(context.Background(), rowsOf(0, 1, 2, 3, 4, 5)) }))
	checkLengths(t, s, 3, 0)

	s.limits.Outputs = reservedOutputs(4) + 1 // off goes the check
	err = s.Eval(context.Background(), rowsOf(0, make([]int32, s.limits.Outputs)...))
	requireAssertion(t, err, "GGML_ASSERT(n_outputs_max <= cparams.n_outputs_max) failed")

	ctx := context.Background()
	for name, err := range map[string]error{
		"Eval":              s.Eval(ctx, rowsOf(0, 13)),
		"Truncate":          s.Truncate(0, 0),
		"Copy":              s.Copy(1, 0),
		"Shift":             s.Shift(0, 0, 1),
		"Clear":             s.Clear(),
		"SaveState":         s.SaveState(new(bytes.Buffer), 1, nil),
		"LoadState":         second(s.LoadState(new(bytes.Buffer), 0)),
		"SetAdapters":       s.SetAdapters(),
		"SequenceEmbedding": second(s.SequenceEmbedding(0)),
		"Probe":             second(s.Probe(ctx)),
	} {
		require.ErrorIs(t, err, ErrBroken, name)
	}
	require.False(t, s.CanShift())

	// Its pool may have threads that wait for a caller who left.
	require.ErrorIs(t, other.Eval(ctx, rowsOf(0, 13)), ErrBroken)
	_, err = m.NewSession(SessionOptions{Context: 256, Pool: pool})
	require.ErrorIs(t, err, ErrBroken)
	other.Idle()
	s.Close()
	other.Close()
	pool.Close()

	again := newSession(t, m, SessionOptions{Context: 256})
	evaluate(t, again, rowsOf(0, 10, 11, 12)...)
}

func second[T any](_ T, err error) error { return err }

// A position beyond a table of learned ones is an assertion inside an operation
// of the graph, on whichever thread has the row.
func TestFenceLearnedPositions(t *testing.T) {
	m := tinyModel(t, "encoder")
	_, err := m.NewSession(SessionOptions{Context: tinymodel.Context + 1, Embeddings: true})
	require.EqualError(t, err, "llama: a context of 2049 tokens: this model has learned positions for 2048 and no more")
	newSession(t, m, SessionOptions{Context: tinymodel.Context, Embeddings: true})

	// A table that ends inside the last 256 cells.
	short := openOnce(t, rewritten(t, "encoder", func(kvs []gguf.KV, tensors []gguf.Data) ([]gguf.KV, []gguf.Data) {
		for i := range tensors {
			if tensors[i].Name == "position_embd.weight" {
				row := len(tensors[i].Bytes) / int(tensors[i].Shape[1])
				tensors[i].Shape[1] = 300
				tensors[i].Bytes = tensors[i].Bytes[:300*row]
			}
		}
		return setKV(kvs, "bert.context_length", uint32(300)), tensors
	}))
	s := newSession(t, short, SessionOptions{Embeddings: true})
	require.Equal(t, 300, s.Limits().Context)
	evaluate(t, s, rowsOf(0, bytesToTokens(300)...)...)
	require.ErrorIs(t, s.Eval(context.Background(), rowsOf(0, bytesToTokens(301)...)), eval.ErrNoSlot)

	one := newSession(t, short, SessionOptions{Embeddings: true, Threads: 1})
	requireAssertion(t, one.decodeRaw(raw(0, 300)), "GGML_ASSERT(i01 >= 0 && i01 < ne01) failed")
}

func bytesToTokens(n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = 10 + int32(i%50)
	}
	return tokens
}

// With several threads the others wait at a barrier for the one that left by
// the exception. They do so for good, in a process of their own here.
func TestFenceInsideTheGraph(t *testing.T) {
	if os.Getenv("SORTES_TEST_INSIDE") == "" {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestFenceInsideTheGraph$", "-test.v")
		cmd.Env = append(os.Environ(), "SORTES_TEST_INSIDE=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "closed")
		return
	}
	m := tinyModel(t, "encoder")
	s := newSession(t, m, SessionOptions{Context: 256, Sequences: 2, Embeddings: true, Threads: 2})
	s.limits.Context = 1 << 20
	s.lengths[0] = 5000 // beyond the table
	rows := append(rowsOf(0, 10), rowsOf(1, 10)...)
	err := s.Eval(context.Background(), rows) // the first row is this thread's
	requireAssertion(t, err, "GGML_ASSERT(i01 >= 0 && i01 < ne01) failed")
	require.ErrorIs(t, s.Eval(context.Background(), rows), ErrBroken)
	s.Idle()
	s.Close()
	t.Log("closed")
}

// rewritten is the file of a tiny model with other entries or tensors.
func rewritten(t testing.TB, name string, change func([]gguf.KV, []gguf.Data) ([]gguf.KV, []gguf.Data)) string {
	t.Helper()
	model := tinyModels[name](tinymodel.Options{})
	f, err := gguf.Read(bytes.NewReader(model), int64(len(model)))
	require.NoError(t, err)
	var tensors []gguf.Data
	for _, x := range f.Tensors {
		at := f.DataOffset + x.Offset
		tensors = append(tensors, gguf.Data{Name: x.Name, Shape: x.Shape, Type: x.Type, Bytes: model[at : at+x.Size]})
	}
	kvs, tensors := change(f.KVs, tensors)
	var b bytes.Buffer
	require.NoError(t, gguf.Write(&b, kvs, tensors))
	return tinymodel.Save(tinyDir, filepath.Base(t.Name())+"-"+name+".gguf", b.Bytes())
}

// setKV replaces the entry of a key, or adds it.
func setKV(kvs []gguf.KV, key string, value any) []gguf.KV {
	for i := range kvs {
		if kvs[i].Key == key {
			kvs[i] = gguf.NewKV(key, value)
			return kvs
		}
	}
	return append(kvs, gguf.NewKV(key, value))
}

func TestFenceMalformedModels(t *testing.T) {
	good := tinyPath(t, "llama")
	for _, c := range []struct {
		key       string
		value     any
		assertion string
	}{
		{"llama.block_count", uint32(0), "GGML_ASSERT(hparams.n_layer_all > 0 && hparams.n_layer_all <= LLAMA_MAX_LAYERS) failed"},
		{"llama.block_count", uint32(100000), "GGML_ASSERT(hparams.n_layer_all > 0 && hparams.n_layer_all <= LLAMA_MAX_LAYERS) failed"},
		{"llama.expert_count", uint32(100000), "GGML_ASSERT(hparams.n_expert <= LLAMA_MAX_EXPERTS) failed"},
		{"llama.expert_used_count", uint32(5), "GGML_ASSERT(n_expert_used_max <= hparams.n_expert) failed"},
		{"llama.rope.scaling.type", "none such", "GGML_ASSERT(hparams.rope_scaling_type_train != LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED) failed"},
	} {
		path := rewritten(t, "llama", func(kvs []gguf.KV, tensors []gguf.Data) ([]gguf.KV, []gguf.Data) {
			return setKV(kvs, c.key, c.value), tensors
		})
		out := filepath.Join(t.TempDir(), "out.gguf")
		_, err := Open(context.Background(), path, ModelOptions{})
		require.ErrorContains(t, err, "llama: load model "+path)
		require.NotContains(t, err.Error(), "GGML_ASSERT", "the check in Go is to see it first: %v", err)
		err = Quantize(context.Background(), path, out, "Q4_0", QuantizeOptions{})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "GGML_ASSERT", "the check in Go is to see it first: %v", err)

		// llama.cpp catches the exception that the fence makes of the
		// assertion before the fence does, and logs it.
		require.ErrorContains(t, loadRaw(path), c.assertion)
		require.ErrorContains(t, quantizeRaw(path, out), c.assertion)
		require.NoError(t, loadRaw(good))
		require.NoError(t, quantizeRaw(good, out))
	}
}

// A negative epsilon passes the loading and is an assertion on every thread of
// the first decode. Overrides come behind the file, and are checked like it.
func TestFenceOverrides(t *testing.T) {
	for key, value := range map[string]any{
		"llama.attention.layer_norm_rms_epsilon": -1.0,
		"llama.block_count":                      int64(0),
		"llama.expert_count":                     int64(1 << 20),
		"llama.rope.scaling.type":                "none such",
	} {
		_, err := Open(context.Background(), tinyPath(t, "llama"), ModelOptions{Overrides: map[string]any{key: value}})
		require.ErrorContains(t, err, key)
		require.ErrorContains(t, err, "gguf: ")
	}
}
