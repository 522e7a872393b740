package llama

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/internal/tinymodel"
)

func saveState(t testing.TB, s *Session, seq int, tokens []int32) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, s.SaveState(&b, seq, tokens))
	checkLengths(t, s)
	return b.Bytes()
}

func loadState(t testing.TB, s *Session, seq int, state []byte) []int32 {
	t.Helper()
	tokens, err := s.LoadState(bytes.NewReader(state), seq)
	require.NoError(t, err)
	checkLengths(t, s)
	require.Equal(t, len(tokens), s.Len(seq))
	return tokens
}

func TestStateGoesOnElsewhere(t *testing.T) {
	for _, name := range []string{"llama", "window", "recurrent", "hybrid"} {
		t.Run(name, func(t *testing.T) {
			m := tinyModel(t, name)
			tokens := someTokens(m, 100, 1)
			s := newSession(t, m, SessionOptions{Context: 256, Sequences: 3})
			evaluate(t, s, quietRowsOf(1, tokens...)...)
			state := saveState(t, s, 1, tokens)
			checkLengths(t, s, 0, 100, 0)
			want := next(t, s, 1, 10)

			// Another sequence, over what is there.
			evaluate(t, s, quietRowsOf(0, 20, 21, 22)...)
			require.Equal(t, tokens, loadState(t, s, 0, state))
			checkLengths(t, s, 100, 101, 0)
			require.Equal(t, want, next(t, s, 0, 10))

			// Another session, with another context and beside another sequence.
			other := newSession(t, m, SessionOptions{Context: 1024, Sequences: 3})
			evaluate(t, other, quietRowsOf(0, 20, 21, 22)...)
			before := next(t, other, 0, 23)
			require.NoError(t, other.Clear())
			evaluate(t, other, quietRowsOf(0, 20, 21, 22)...)
			require.Equal(t, tokens, loadState(t, other, 2, state))
			require.Equal(t, want, next(t, other, 2, 10))
			require.Equal(t, before, next(t, other, 0, 23))
			more := someTokens(m, 20, 2)
			evaluate(t, s, quietRowsOf(1, more...)...)
			evaluate(t, other, quietRowsOf(2, more...)...)
			require.Equal(t, s.Logits(19), other.Logits(19))

			// What was loaded can be saved.
			again := newSession(t, m, SessionOptions{Context: 256, Sequences: 3})
			loadState(t, again, 1, state)
			require.True(t, bytes.Equal(state, saveState(t, again, 1, tokens)))
		})
	}
}

// llama.cpp puts copies between caches and shifts off to the next decode; a
// state must not miss them, whether it is written or read.
func TestStateOfWhatNoDecodeHasSeen(t *testing.T) {
	for name, o := range layouts {
		if name == "no flash attention" {
			continue // the same, and the state is laid out in another way
		}
		t.Run(name, func(t *testing.T) {
			p := newPair(t, o)
			tokens := []int32{10, 11, 12, 13, 14, 15}
			p.eval(rowsOf(0, tokens...)...)
			p.copy(1, 0)
			state := saveState(t, p.s, 1, tokens)
			p.check()
			require.Equal(t, tokens, loadState(t, p.s, 2, state))
			p.caches[2] = p.caches[0].clone()
			p.eval(append(rowsOf(2, 20), rowsOf(1, 21)...)...)

			if p.s.options.Unified {
				p.truncate(1, 1) // else it would move, too
			}
			p.shift(0, 1, 3)
			state = saveState(t, p.s, 0, []int32{10, 13, 14, 15})
			saved := p.caches[0].clone()
			loadState(t, p.s, 2, state)
			p.caches[2] = saved.clone()
			p.eval(append(rowsOf(2, 20), rowsOf(0, 22)...)...)

			p.copy(2, 1)
			loadState(t, p.s, 1, state)
			p.caches[1] = saved
			p.eval(append(rowsOf(2, 30), rowsOf(1, 31)...)...) // 2 must be what 1 was

			// No sequence has room for the decode that carries a copy out.
			p.clear()
			full := someTokens(p.s.model, 256, 1)
			p.eval(quietRowsOf(0, full...)...)
			p.copy(1, 0)
			p.copy(2, 0)
			var b bytes.Buffer
			err := p.s.SaveState(&b, 1, full)
			if p.s.options.Unified {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "no sequence has room")
				require.Zero(t, b.Len())
			}
			p.check()
		})
	}
	for _, name := range []string{"recurrent", "hybrid", "window"} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, tinyModel(t, name), SessionOptions{Context: 256, Sequences: 3})
			tokens := []int32{10, 11, 12, 13}
			evaluate(t, s, rowsOf(0, tokens...)...)
			require.NoError(t, s.Copy(1, 0))
			loadState(t, s, 2, saveState(t, s, 1, tokens)) // sequence 2 is empty: a decode is possible there
			want := next(t, s, 0, 20)
			require.Equal(t, want, next(t, s, 1, 20))
			require.Equal(t, want, next(t, s, 2, 20))

			require.NoError(t, s.Copy(1, 0))
			var b bytes.Buffer
			err := s.SaveState(&b, 1, append(tokens, 20)) // now none is empty
			if name == "recurrent" {
				require.NoError(t, err, "its copies are not put off")
				return
			}
			require.ErrorContains(t, err, "a copy or shift is not carried out before the next Eval")
			next(t, s, 2, 20)
			require.NoError(t, s.SaveState(&b, 1, append(tokens, 20)))
		})
	}
}

func TestStateOfAnEmptySequence(t *testing.T) {
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256, Sequences: 2})
	state := saveState(t, s, 0, nil)
	require.Len(t, state, 8+4+32+4+8+8+32)
	evaluate(t, s, rowsOf(1, 10)...)
	require.Empty(t, loadState(t, s, 1, state))
	checkLengths(t, s, 0, 0)
}

func TestSaveStateWantsTheTokens(t *testing.T) {
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256})
	evaluate(t, s, rowsOf(0, 10, 11)...)
	for _, tokens := range [][]int32{nil, {10}, {10, 11, 12}} {
		require.Equal(t, "llama: save state: want the Len(seq) tokens that the sequence holds",
			panicText(func() { _ = s.SaveState(io.Discard, 0, tokens) }))
	}
}

// A writer takes n bytes and fails.
type failingWriter struct{ n int }

func (w *failingWriter) Write(b []byte) (int, error) {
	if len(b) > w.n {
		n := w.n
		w.n = 0
		return n, errStop
	}
	w.n -= len(b)
	return len(b), nil
}

func TestSaveStateReportsAFailingWriter(t *testing.T) {
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256})
	tokens := []int32{10, 11, 12}
	evaluate(t, s, rowsOf(0, tokens...)...)
	whole := len(saveState(t, s, 0, tokens))
	for n := 0; n < whole; n += 1 + n/7 {
		err := s.SaveState(&failingWriter{n}, 0, tokens)
		require.ErrorIs(t, err, errStop, "after %d bytes", n)
		require.ErrorContains(t, err, "llama: save state: ")
	}
	require.NoError(t, s.SaveState(&failingWriter{whole}, 0, tokens))
	require.ErrorIs(t, s.SaveState(&failingWriter{whole - 1}, 0, tokens), errStop)

	_, err := s.LoadState(io.MultiReader(bytes.NewReader(saveState(t, s, 0, tokens)[:20]), failingReader{}), 0)
	require.ErrorIs(t, err, errStop)
	require.NotErrorIs(t, err, ErrState)
	checkLengths(t, s, 3)
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errStop }

// sealed writes the checksum of a state anew, so that a lie in it is no damage.
func sealed(state []byte) []byte {
	body := bytes.Clone(state[:len(state)-sha256.Size])
	sum := sha256.Sum256(body)
	return append(body, sum[:]...)
}

func TestLoadStateRefuses(t *testing.T) {
	m := tinyModel(t, "llama")
	s := newSession(t, m, SessionOptions{Context: 256, Sequences: 2})
	tokens := []int32{10, 11, 12, 13}
	evaluate(t, s, rowsOf(0, tokens...)...)
	state := saveState(t, s, 0, tokens)
	evaluate(t, s, rowsOf(1, 20, 21)...)
	want := next(t, s, 1, 22)
	require.NoError(t, s.Truncate(1, 2))
	refused := func(data []byte, text string, what ...any) {
		t.Helper()
		_, err := s.LoadState(bytes.NewReader(data), 1)
		require.ErrorIs(t, err, ErrState, what...)
		require.ErrorContains(t, err, "llama: load state: not a usable state: "+text, what...)
		checkLengths(t, s, 4, 2)
	}

	const early = "it ends early"
	atTokens := 8 + 4 + 32 + 4 + 8
	atNative := atTokens + 4*len(tokens) + 8
	for _, n := range []int{0, 1, 7, 8, 9, 11, 12, 13, 43, 44, 45, 47, 48, 49, atTokens, atTokens + 1, atTokens + 4*len(tokens), atNative - 1, atNative, atNative + 1,
		len(state) - 33, len(state) - 32, len(state) - 31, len(state) - 1} {
		refused(state[:n], early, "cut after %d bytes", n)
	}
	for n := 0; n < len(state); n += 97 {
		refused(state[:n], early, "cut after %d bytes", n)
	}
	for i := 0; i < len(state); i += 1 + i/20 {
		flipped := bytes.Clone(state)
		flipped[i] ^= 0x10
		refused(flipped, "", "byte %d", i)
	}

	put := func(at int, value any) []byte {
		lie := bytes.Clone(state)
		_, err := binary.Encode(lie[at:], binary.LittleEndian, value)
		require.NoError(t, err)
		return sealed(lie)
	}
	refused(put(0, uint64(1)), `it does not begin with "sortesST"`)
	refused(put(8, uint32(2)), "version 2, want 1")
	refused(put(12, uint64(1)), "another model, or another set of adapters, wrote it")
	refused(put(44, uint32(1)), "it needs a unified cache, or one for a single sequence: this session has 2 separate ones")
	refused(put(48, uint64(257)), "it holds 257 tokens, and the context 256")
	refused(put(48, ^uint64(0)), "it holds 18446744073709551615 tokens")
	refused(put(48, uint64(3)), "") // the fields behind it move
	refused(put(48, uint64(5)), "")
	refused(put(atTokens+4, int32(300)), "token 300, want 0 to 299")
	refused(put(atTokens+4, int32(-1)), "token -1, want 0 to 299")
	refused(put(atNative-8, uint64(1)<<62), early)
	refused(put(atNative-8, ^uint64(0)), early)
	refused(put(atNative-8, uint64(0)), "")

	// Sound as far as we can see, and not in llama.cpp's eyes: refused by it, and
	// the sequence is empty.
	for _, native := range [][]byte{nil, state[atNative : len(state)-33], bytes.Repeat([]byte{1}, 500), state[atNative+8 : len(state)-32]} {
		lie := append(bytes.Clone(state[:atNative-8]), binary.LittleEndian.AppendUint64(nil, uint64(len(native)))...)
		lie = sealed(append(append(lie, native...), make([]byte, 32)...))
		evaluate(t, s, rowsOf(1, 30)...)
		_, err := s.LoadState(bytes.NewReader(lie), 1)
		require.Error(t, err)
		checkLengths(t, s, 4, 0)
	}
	// Fewer tokens than the native state has.
	short := append(bytes.Clone(state[:48]), binary.LittleEndian.AppendUint64(nil, 3)...)
	short = sealed(append(append(short, state[atTokens:atTokens+12]...), state[atNative-8:]...))
	_, err := s.LoadState(bytes.NewReader(short), 1)
	require.ErrorIs(t, err, ErrState)
	require.ErrorContains(t, err, "it ends at position 3 and has 3 tokens")
	checkLengths(t, s, 4, 0)

	evaluate(t, s, rowsOf(1, 20, 21)...)
	require.Equal(t, want, next(t, s, 1, 22))
	loadState(t, s, 1, state)
}

func TestLoadStateOfAnotherModel(t *testing.T) {
	m := tinyModel(t, "llama")
	s := newSession(t, m, SessionOptions{Context: 256})
	evaluate(t, s, rowsOf(0, 10, 11)...)
	state := saveState(t, s, 0, []int32{10, 11})
	// The same architecture and sizes, other weights.
	other := openOnce(t, tinymodel.Save(tinyDir, "other.gguf", tinymodel.Llama(tinymodel.Options{Seed: 7})))
	o := newSession(t, other, SessionOptions{Context: 256})
	_, err := o.LoadState(bytes.NewReader(state), 0)
	require.ErrorIs(t, err, ErrState)
	require.ErrorContains(t, err, "another model, or another set of adapters, wrote it")

	// Another type of cache is llama.cpp's to refuse.
	f32 := newSession(t, m, plain(SessionOptions{}))
	_, err = f32.LoadState(bytes.NewReader(state), 0)
	require.ErrorContains(t, err, "failed to restore kv cache")
	require.ErrorContains(t, err, "mismatched key type")
	checkLengths(t, f32, 0)

	// A copy of the file is the same model.
	copied := openOnce(t, tinymodel.Save(tinyDir, "copied.gguf", tinymodel.Llama(tinymodel.Options{})))
	c := newSession(t, copied, SessionOptions{Context: 256})
	loadState(t, c, 0, state)
	require.Equal(t, next(t, s, 0, 12), next(t, c, 0, 12))
}

func TestStateKnowsItsAdapters(t *testing.T) {
	m := tinyModel(t, "llama")
	a, b := loadAdapter(t, m, 1), loadAdapter(t, m, 2)
	s := newSession(t, m, SessionOptions{Context: 256})
	require.NoError(t, s.SetAdapters(AdapterScale{a, 1}))
	evaluate(t, s, rowsOf(0, 10, 11)...)
	state := saveState(t, s, 0, []int32{10, 11})
	for _, set := range [][]AdapterScale{nil, {{a, 0.5}}, {{b, 1}}, {{a, 1}, {b, 1}}} {
		require.NoError(t, s.SetAdapters(set...))
		_, err := s.LoadState(bytes.NewReader(state), 0)
		require.ErrorIs(t, err, ErrState)
		require.ErrorContains(t, err, "another set of adapters")
	}
	require.NoError(t, s.SetAdapters(AdapterScale{a, 1}))
	loadState(t, s, 0, state)
}

// llama.cpp keeps the number of caches in a state.
func TestStateBetweenLayouts(t *testing.T) {
	m := tinyModel(t, "llama")
	tokens := []int32{10, 11}
	one, three, unified := SessionOptions{Context: 256}, SessionOptions{Context: 256, Sequences: 3}, SessionOptions{Context: 256, Sequences: 5, Unified: true}
	for _, c := range []struct {
		from, to SessionOptions
		refusal  string
	}{
		{one, unified, ""},
		{unified, one, ""},
		{one, three, "it needs a unified cache, or one for a single sequence: this session has 3 separate ones"},
		{three, one, "it needs separate caches for 3 sequences: this session has 1"},
		{three, unified, "it needs separate caches for 3 sequences: this session has 1"},
	} {
		from, to := newSession(t, m, c.from), newSession(t, m, c.to)
		evaluate(t, from, rowsOf(0, tokens...)...)
		state := saveState(t, from, 0, tokens)
		if c.refusal == "" {
			loadState(t, to, 0, state)
			require.Equal(t, next(t, from, 0, 12), next(t, to, 0, 12))
			continue
		}
		_, err := to.LoadState(bytes.NewReader(state), 0)
		require.ErrorIs(t, err, ErrState)
		require.ErrorContains(t, err, c.refusal)
	}
}

func TestLoadStateWithoutRoom(t *testing.T) {
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256, Sequences: 2, Unified: true, Cells: 256})
	tokens := someTokens(s.model, 150, 1)
	evaluate(t, s, quietRowsOf(0, tokens...)...)
	state := saveState(t, s, 0, tokens)
	_, err := s.LoadState(bytes.NewReader(state), 1)
	require.ErrorContains(t, err, "failed to find 150 available cells in kv cache")
	checkLengths(t, s, 150, 0)
	loadState(t, s, 0, state)
}

func TestStateOfTheRealModel(t *testing.T) {
	m := realModel(t)
	tokens := someTokens(m, 200, 1)
	s := newSession(t, m, SessionOptions{Context: 512})
	evaluate(t, s, quietRowsOf(0, tokens...)...)
	state := saveState(t, s, 0, tokens)
	other := newSession(t, m, SessionOptions{Context: 768})
	require.Equal(t, tokens, loadState(t, other, 0, state))
	require.Equal(t, next(t, s, 0, 10), next(t, other, 0, 10))
}

// Counts that lie cost no memory.
func TestReadStateAllocatesWhatThereIs(t *testing.T) {
	limits := eval.Limits{Vocab: 300, Context: 1 << 30}
	var model [sha256.Size]byte
	head := append([]byte(stateMagic), 1, 0, 0, 0)
	head = append(append(head, model[:]...), 1, 0, 0, 0)
	head = binary.LittleEndian.AppendUint64(head, 1<<30)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := readState(bytes.NewReader(head), model, 1, limits)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, ErrState)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

func FuzzReadState(f *testing.F) {
	limits := eval.Limits{Vocab: 300, Context: 256}
	var model [sha256.Size]byte
	body := append([]byte(stateMagic), 1, 0, 0, 0)
	body = append(append(body, model[:]...), 1, 0, 0, 0)
	body = append(body, 2, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 11, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 7, 8, 9)
	f.Add(append(body, make([]byte, 32)...))
	f.Add(body[:50])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, state := range [][]byte{data, sealed(append(make([]byte, 0, 100), append(data, make([]byte, 32)...)...))} {
			tokens, native, err := readState(bytes.NewReader(state), model, 1, limits)
			if err != nil {
				if !errors.Is(err, ErrState) {
					t.Fatal(err)
				}
				continue
			}
			// What is accepted is what these very fields say.
			want := append([]byte(stateMagic), 1, 0, 0, 0)
			want = append(append(want, model[:]...), 1, 0, 0, 0)
			want = binary.LittleEndian.AppendUint64(want, uint64(len(tokens)))
			want, _ = binary.Append(want, binary.LittleEndian, tokens)
			want = binary.LittleEndian.AppendUint64(want, uint64(len(native)))
			want = append(want, native...)
			if !bytes.HasPrefix(state, sealed(append(want, make([]byte, 32)...))) {
				t.Fatalf("%q was accepted as %v, %q", state, tokens, native)
			}
		}
	})
}

func TestLoadStateWantsNoContext(t *testing.T) {
	// A loaded sequence takes part in everything.
	s := newSession(t, tinyModel(t, "llama"), SessionOptions{Context: 256, Sequences: 2})
	tokens := []int32{10, 11, 12, 13}
	evaluate(t, s, rowsOf(0, tokens...)...)
	loadState(t, s, 1, saveState(t, s, 0, tokens))
	require.NoError(t, s.Truncate(1, 2))
	require.NoError(t, s.Copy(0, 1))
	require.NoError(t, s.Shift(0, 0, 1))
	checkLengths(t, s, 1, 2)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, s.Eval(ctx, rowsOf(0, 10)), context.Canceled)
	evaluate(t, s, append(rowsOf(0, 14), rowsOf(1, 14)...)...)
}
