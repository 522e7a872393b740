package llama

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/gguf"
	"github.com/sortes-llm/sortes/internal/tinymodel"
)

func TestQuantize(t *testing.T) {
	dir := t.TempDir()
	in := tinymodel.Save(dir, "f16.gguf", tinymodel.Llama(tinymodel.Options{Type: gguf.F16, Layers: 3}))
	full := newSession(t, open(t, in, ModelOptions{}), SessionOptions{Context: 256})
	evaluate(t, full, rowsOf(0, 10, 11, 12)...)
	for fileType, most := range map[string]float64{"Q8_0": 0.5, "q4_0": 3, "F32": 1e-2, "BF16": 0.1} {
		out := filepath.Join(dir, fileType+".gguf")
		require.NoError(t, Quantize(context.Background(), in, out, fileType, QuantizeOptions{Threads: 2}))
		m := open(t, out, ModelOptions{})
		require.Equal(t, 3, m.Facts().Layers)
		s := newSession(t, m, SessionOptions{Context: 256})
		evaluate(t, s, rowsOf(0, 10, 11, 12)...)
		d := apart(full.Logits(2), s.Logits(2))
		require.Less(t, d, most, fileType)
		if fileType != "F32" {
			require.Positive(t, d, fileType)
		}
	}
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 5, "nothing but the models")
}

func TestQuantizeLeavesLayersOut(t *testing.T) {
	dir := t.TempDir()
	in := tinymodel.Save(dir, "in.gguf", tinymodel.Llama(tinymodel.Options{Type: gguf.F16, Layers: 4}))
	out := filepath.Join(dir, "out.gguf")
	require.NoError(t, Quantize(context.Background(), in, out, "Q8_0", QuantizeOptions{PruneLayers: []int{1, 3}, Pure: true, KeepOutput: true}))
	m := open(t, out, ModelOptions{})
	require.Equal(t, 2, m.Facts().Layers)
	f, err := gguf.ReadFile(out)
	require.NoError(t, err)
	types := map[string]gguf.Type{}
	for _, x := range f.Tensors {
		types[x.Name] = x.Type
	}
	require.Equal(t, gguf.F16, types["output.weight"])
	require.Equal(t, gguf.Q8_0, types["blk.1.attn_q.weight"])
	require.NotContains(t, types, "blk.2.attn_q.weight")
	// What was layer 2 is layer 1.
	source, err := gguf.ReadFile(in)
	require.NoError(t, err)
	require.Equal(t, tensorBytes(t, in, source, "blk.2.attn_norm.weight"), tensorBytes(t, out, f, "blk.1.attn_norm.weight"))
	s := newSession(t, m, SessionOptions{Context: 256})
	evaluate(t, s, rowsOf(0, 10)...)
}

func tensorBytes(t *testing.T, path string, f *gguf.File, name string) []byte {
	i := slices.IndexFunc(f.Tensors, func(x gguf.Tensor) bool { return x.Name == name })
	require.GreaterOrEqual(t, i, 0)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data[f.DataOffset+f.Tensors[i].Offset:][:f.Tensors[i].Size]
}

func TestQuantizeRefuses(t *testing.T) {
	dir := t.TempDir()
	in := tinymodel.Save(dir, "in.gguf", tinymodel.Llama(tinymodel.Options{Type: gguf.Q8_0}))
	out := filepath.Join(dir, "out.gguf")
	link := filepath.Join(dir, "link.gguf")
	require.NoError(t, os.Symlink(in, link))
	for _, c := range []struct {
		in, out, fileType string
		o                 QuantizeOptions
		want              string
	}{
		{in, out, "Q9_9", QuantizeOptions{}, `quantize to "Q9_9": want one of BF16, F16, F32,`},
		{in, out, "", QuantizeOptions{}, `quantize to "": want one of`},
		{in, in, "Q4_0", QuantizeOptions{AllowRequantize: true}, "the output would overwrite the input"},
		{in, link, "Q4_0", QuantizeOptions{AllowRequantize: true}, "the output would overwrite the input"},
		{in, out, "Q4_0", QuantizeOptions{Threads: -1}, "quantize with -1 threads: want 1 or more, or 0 for one a processor"},
		{in, out, "Q4_0", QuantizeOptions{PruneLayers: []int{-1}}, "layer -1 to leave out: want 0 or more"},
		{in, out, "Q4_0", QuantizeOptions{}, "requantizing from type q8_0 is disabled"},
		{in, filepath.Join(dir, "none", "out.gguf"), "Q4_0", QuantizeOptions{AllowRequantize: true}, "quantize"},
		{in, dir, "Q4_0", QuantizeOptions{AllowRequantize: true}, ""},
		{filepath.Join(dir, "none.gguf"), out, "Q4_0", QuantizeOptions{}, "no such file"},
	} {
		err := Quantize(context.Background(), c.in, c.out, c.fileType, c.o)
		require.Error(t, err, "%+v", c)
		require.ErrorContains(t, err, c.want)
		names, err := filepath.Glob(filepath.Join(dir, "*"))
		require.NoError(t, err)
		require.ElementsMatch(t, []string{in, link}, names, "left behind after %+v", c)
		left, err := filepath.Glob(dir + ".partial*")
		require.NoError(t, err)
		require.Empty(t, left)
	}
	f, err := gguf.ReadFile(in)
	require.NoError(t, err)
	require.NoError(t, f.Check(), "the input is whole")
	require.NoError(t, Quantize(context.Background(), in, out, "Q4_0", QuantizeOptions{AllowRequantize: true}))
	require.NoError(t, Quantize(context.Background(), in, out, "Q8_0", QuantizeOptions{AllowRequantize: true}), "over an older output")
}

func TestFileTypes(t *testing.T) {
	types := FileTypes()
	require.True(t, slices.IsSorted(types))
	for _, want := range []string{"F16", "Q4_0", "Q4_1", "Q4_K_M", "Q8_0"} {
		require.Contains(t, types, want)
	}
}

func TestQuantizeCanBeCancelled(t *testing.T) {
	in := tinymodel.Save(t.TempDir(), "in.gguf", tinymodel.Llama(tinymodel.Options{Layers: 100}))
	out := filepath.Join(t.TempDir(), "out.gguf")
	ctx, cancel := context.WithCancelCause(context.Background())
	lines := 0
	SetLogger(slog.New(onLog(func(text string) {
		if strings.HasPrefix(text, "[") {
			lines++
			cancel(errStop)
			time.Sleep(20 * time.Millisecond) // what sets the flag is another goroutine
		}
	})), slog.LevelInfo)
	defer SetLogger(slog.New(slog.DiscardHandler), slog.LevelError)
	err := Quantize(ctx, in, out, "Q8_0", QuantizeOptions{Threads: 1})
	require.ErrorIs(t, err, errStop)
	require.Less(t, lines, 100, "it went on")
	require.NoFileExists(t, out)
	require.NoFileExists(t, out+".partial")
	require.ErrorIs(t, Quantize(ctx, in, out, "Q8_0", QuantizeOptions{Threads: 1}), errStop, "done before it begins")
	require.NoError(t, Quantize(context.Background(), in, out, "Q8_0", QuantizeOptions{Threads: 1}))
}

// onLog is a handler that hands over the texts.
type onLog func(text string)

func (f onLog) Enabled(context.Context, slog.Level) bool { return true }
func (f onLog) Handle(_ context.Context, r slog.Record) error {
	f(r.Message)
	return nil
}
func (f onLog) WithAttrs([]slog.Attr) slog.Handler { return f }
func (f onLog) WithGroup(string) slog.Handler      { return f }
