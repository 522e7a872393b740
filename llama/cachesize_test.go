package llama

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemAvailable(t *testing.T) {
	for text, want := range map[string]uint64{
		"MemTotal: 100 kB\nMemFree: 7 kB\nMemAvailable:   24680 kB\nBuffers: 1 kB\n": 24680 << 10,
		"MemAvailable: 1": 1 << 10,
	} {
		path := filepath.Join(t.TempDir(), "meminfo")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
		got, ok := memAvailable(path)
		require.True(t, ok, text)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "MemFree: 7 kB\n", "MemAvailable:\n", "MemAvailable: many kB\n", "MemAvailable: -1 kB\n", "MemAvailable: 99999999999999999999 kB\n"} {
		path := filepath.Join(t.TempDir(), "meminfo")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
		_, ok := memAvailable(path)
		require.False(t, ok, text)
	}
	_, ok := memAvailable(filepath.Join(t.TempDir(), "none"))
	require.False(t, ok)
}

func TestGroupFree(t *testing.T) {
	for _, c := range []struct {
		limit, used string
		want        uint64
		ok          bool
	}{
		{"1000\n", "300\n", 700, true},
		{"1000\n", "3000\n", 0, true},
		{"max\n", "300\n", 0, false},
		{"", "300\n", 0, false},
		{"1000\n", "", 0, false},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"memory.max": c.limit, "memory.current": c.used} {
			if text != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
			}
		}
		got, ok := groupFree(dir)
		require.Equal(t, c.ok, ok, "%+v", c)
		require.Equal(t, c.want, got, "%+v", c)
	}
}

func TestCacheThatCannotFit(t *testing.T) {
	m := realModel(t)
	for _, o := range []SessionOptions{
		{Context: 1<<31 - 1},
		{Context: 1<<31 - 1, Sequences: 256},
		{Context: 1 << 30},
		{Context: 1 << 22, Sequences: 256},
		{Context: 1 << 20, Sequences: 4, Cells: 1 << 30, Unified: true},
	} {
		s, err := m.NewSession(o)
		if err == nil {
			s.Close()
		}
		require.ErrorContains(t, err, "llama: a ", "%+v", o)
		t.Log(err)
	}
	_, err := m.NewSession(SessionOptions{Context: 1 << 30})
	// 30 layers of 3 heads of 64 numbers, keys and values, 2 bytes each: 23,040 bytes a token.
	require.ErrorContains(t, err, "a KV cache of 1073741824 tokens needs at least 23040.0 GiB and ")
	require.ErrorContains(t, err, "choose a smaller context, fewer sequences or a smaller cache type")
}

func TestLeastCacheBytes(t *testing.T) {
	// 2 layers of 2 heads of 16 numbers, keys and values.
	m := tinyModel(t, "llama")
	f := m.Facts()
	require.Equal(t, uint64(256*2*2*16*2*2), leastCacheBytes(m, f, SessionOptions{}, 256))
	require.Equal(t, uint64(256*2*2*16*(4+2)), leastCacheBytes(m, f, SessionOptions{KeyType: TypeF32}, 256))
	require.Equal(t, uint64(256*2*(34+18)), leastCacheBytes(m, f, SessionOptions{KeyType: TypeQ8_0, ValueType: TypeQ4_0}, 256))
	for name, most := range map[string]uint64{"recurrent": 0, "hybrid": 0, "encoder": 1 << 40, "window": 256 * 2 * 2 * 16 * 2 * 2} {
		m := tinyModel(t, name)
		require.LessOrEqual(t, leastCacheBytes(m, m.Facts(), SessionOptions{}, 256), most, name)
	}
}
