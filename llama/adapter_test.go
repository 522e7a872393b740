package llama

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/tinymodel"
)

func adapterPath(seed uint64) string {
	return tinymodel.Save(tinyDir, "lora"+string('a'+rune(seed))+".gguf", tinymodel.Adapter(tinymodel.Options{Seed: seed}))
}

func loadAdapter(t testing.TB, m *Model, seed uint64) *Adapter {
	t.Helper()
	a, err := m.LoadAdapter(adapterPath(seed))
	require.NoError(t, err)
	t.Cleanup(a.Close)
	return a
}

func TestAdapters(t *testing.T) {
	m := tinyModel(t, "llama")
	a, b := loadAdapter(t, m, 1), loadAdapter(t, m, 2)
	s := newSession(t, m, SessionOptions{Context: 256})
	with := func(adapters ...AdapterScale) []float32 {
		t.Helper()
		require.NoError(t, s.SetAdapters(adapters...))
		require.NoError(t, s.Clear())
		evaluate(t, s, rowsOf(0, 10, 11, 12)...)
		return logits(s, 2)
	}
	without := with()
	one := with(AdapterScale{a, 1})
	require.Greater(t, apart(without, one), 0.05)
	require.Greater(t, apart(one, with(AdapterScale{b, 1})), 0.05)
	require.Greater(t, apart(one, with(AdapterScale{a, 2})), 0.05)
	require.Greater(t, apart(one, with(AdapterScale{a, 1}, AdapterScale{b, 1})), 0.05)
	require.Equal(t, without, with(AdapterScale{a, 0}))
	require.Equal(t, one, with(AdapterScale{a, 1}, AdapterScale{b, 0}))
	require.Equal(t, one, with(AdapterScale{a, 1}))
	require.Equal(t, without, with())

	require.NoError(t, s.SetAdapters(AdapterScale{a, 1}))
	require.Equal(t, "llama: adapter closed while a session uses it", panicText(a.Close))
	require.NoError(t, s.SetAdapters(AdapterScale{a, 1}, AdapterScale{a, 1}), "twice over")
	require.Equal(t, "llama: adapter closed while a session uses it", panicText(a.Close))
	require.NoError(t, s.SetAdapters(AdapterScale{b, 1}))
	a.Close()
	a.Close()
	require.Equal(t, "llama: adapter is closed", panicText(func() { _ = s.SetAdapters(AdapterScale{a, 1}) }))
	s.Close() // gives b back
	b.Close()
}

func TestAdaptersThatAreRefused(t *testing.T) {
	m := tinyModel(t, "llama")
	s := newSession(t, m, SessionOptions{Context: 256})
	a := loadAdapter(t, m, 1)
	for _, scale := range []float64{math.NaN(), math.Inf(1), 1e300} {
		require.ErrorContains(t, s.SetAdapters(AdapterScale{a, scale}), "want a finite number")
	}
	other := newSession(t, tinyModel(t, "window"), SessionOptions{Context: 256})
	require.ErrorContains(t, other.SetAdapters(AdapterScale{a, 1}), "was loaded for another model")
	require.Empty(t, other.adapters)

	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.gguf")
	require.NoError(t, os.WriteFile(empty, nil, 0o666))
	for path, want := range map[string]string{
		"":                   "no such file",
		dir + "/none.gguf":   "no such file",
		dir:                  "is a directory",
		empty:                "the magic takes 4 bytes",
		tinyPath(t, "llama"): "expect general.type to be 'adapter'",
		tinymodel.Save(dir, "deep.gguf", tinymodel.Adapter(tinymodel.Options{Layers: 3})): "does not exist in base model",
	} {
		_, err := m.LoadAdapter(path)
		require.ErrorContains(t, err, "llama: load adapter "+path)
		require.ErrorContains(t, err, want)
	}
	_, err := tinyModel(t, "recurrent").LoadAdapter(adapterPath(1))
	require.ErrorContains(t, err, "model arch and LoRA arch mismatch")
}
