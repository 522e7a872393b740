package llama

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/internal/tinymodel"
)

func TestMain(m *testing.M) {
	SetLogger(slog.New(slog.DiscardHandler), slog.LevelError)
	var err error
	if tinyDir, err = os.MkdirTemp("", "sortes-llama-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	for _, model := range openModels {
		model.Close()
	}
	os.RemoveAll(tinyDir)
	if n := live.Load(); n != 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "FAIL: %d native handles are still open\n", n)
		code = 1
	}
	os.Exit(code)
}

const realPath = "../models/SmolLM2-135M-Instruct-Q4_1.gguf"

// Models are opened once and shared by all tests.
var (
	openModels = map[string]*Model{}
	tinyDir    string
)

func openOnce(t testing.TB, path string) *Model {
	t.Helper()
	if m := openModels[path]; m != nil {
		return m
	}
	m, err := Open(context.Background(), path, ModelOptions{})
	require.NoError(t, err)
	openModels[path] = m
	return m
}

// realModel is a small real model.
func realModel(t testing.TB) *Model {
	t.Helper()
	_, err := os.Stat(realPath)
	require.NoError(t, err, "run `make model`")
	return openOnce(t, realPath)
}

var tinyModels = map[string]func(tinymodel.Options) []byte{
	"llama": tinymodel.Llama, "window": tinymodel.SlidingWindow, "recurrent": tinymodel.Recurrent,
	"hybrid": tinymodel.Hybrid, "encoder": tinymodel.Encoder,
}

// tinyPath is the file of a model of package tinymodel.
func tinyPath(t testing.TB, name string) string {
	t.Helper()
	require.Contains(t, tinyModels, name)
	path := filepath.Join(tinyDir, name+".gguf")
	if _, err := os.Stat(path); err != nil {
		tinymodel.Save(tinyDir, name+".gguf", tinyModels[name](tinymodel.Options{}))
	}
	return path
}

func tinyModel(t testing.TB, name string) *Model {
	t.Helper()
	return openOnce(t, tinyPath(t, name))
}

// newSession opens a session that lives as long as the test.
func newSession(t testing.TB, m *Model, o SessionOptions) *Session {
	t.Helper()
	s, err := m.NewSession(o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// checkLengths asserts that llama.cpp's own account of every sequence is ours.
func checkLengths(t testing.TB, s *Session, want ...int) {
	t.Helper()
	for seq := range s.lengths {
		if seq < len(want) {
			require.Equal(t, want[seq], s.Len(seq), "tokens of sequence %d", seq)
		}
		if !s.hasMemory {
			continue
		}
		last, err := s.lastPosition(seq)
		require.NoError(t, err)
		require.Equal(t, s.Len(seq)-1, last, "last position of sequence %d in llama.cpp", seq)
	}
}

// evaluate evaluates rows and checks the account afterwards.
func evaluate(t testing.TB, s *Session, rows ...eval.Row) {
	t.Helper()
	require.NoError(t, s.Eval(context.Background(), rows))
	checkLengths(t, s)
}

// rowsOf lays tokens behind one another in a sequence, all of them outputs.
func rowsOf(seq int, tokens ...int32) []eval.Row {
	rows := make([]eval.Row, len(tokens))
	for i, id := range tokens {
		rows[i] = eval.Row{Token: id, Seq: seq, Output: true}
	}
	return rows
}

// quietRowsOf is rowsOf with the last row as the only output.
func quietRowsOf(seq int, tokens ...int32) []eval.Row {
	rows := rowsOf(seq, tokens...)
	for i := range len(rows) - 1 {
		rows[i].Output = false
	}
	return rows
}

// someTokens are n arbitrary tokens, other ones for every salt.
func someTokens(m *Model, n int, salt uint32) []int32 {
	tokens := make([]int32, n)
	x := salt*2654435761 + 12345
	for i := range tokens {
		x = x*1664525 + 1013904223
		tokens[i] = int32(uint64(x) * uint64(m.vocab.Size()) >> 32)
	}
	return tokens
}

// logits is a copy of the logits of row i.
func logits(s *Session, i int) []float32 { return append([]float32(nil), s.Logits(i)...) }

// next evaluates one token and returns a copy of the logits behind it.
func next(t testing.TB, s *Session, seq int, token int32) []float32 {
	t.Helper()
	evaluate(t, s, eval.Row{Token: token, Seq: seq, Output: true})
	return logits(s, 0)
}

// apart is the largest difference between two rows of logits.
func apart(a, b []float32) float64 {
	most := 0.0
	for i := range a {
		if d := float64(a[i]) - float64(b[i]); d > most {
			most = d
		} else if -d > most {
			most = -d
		} else if d != d {
			return d
		}
	}
	return most
}

// requireAssertion asserts that err is an *Error whose cause is an assertion
// with this text.
func requireAssertion(t testing.TB, err error, text string) {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	var a Assertion
	require.ErrorAs(t, err, &a, "want a failed assertion, have: %v", err)
	require.Contains(t, string(a), text)
	require.Zero(t, e.Code)
}

// requireCode asserts that err is an *Error with what a native function
// returned and said.
func requireCode(t testing.TB, err error, code int, log string) {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, code, e.Code, "%v", err)
	require.NoError(t, e.Err)
	require.Contains(t, e.Log, log)
}

// panicText is what f panics with.
func panicText(f func()) (text string) {
	defer func() { text, _ = recover().(string) }()
	f()
	return ""
}

var errStop = errors.New("stopped by the test")
