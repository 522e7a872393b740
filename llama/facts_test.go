package llama

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMissingFeatures(t *testing.T) {
	require.NoError(t, missingFeatures(nil, nil))
	require.NoError(t, missingFeatures([]string{"avx", "avx2"}, []string{"avx", "avx2", "fma"}))
	require.NoError(t, missingFeatures([]string{"not known here"}, nil))
	require.EqualError(t, missingFeatures([]string{"avx", "avx512", "amx_int8"}, []string{"avx"}),
		"llama: llama.cpp was compiled for avx512, amx_int8, which this CPU does not have: run ./build.sh here and build again")
	require.NoError(t, checkCPU())
}

func TestVersions(t *testing.T) {
	v := Versions()
	require.NotEmpty(t, v.LlamaCPP)
	require.NotEmpty(t, v.GGML)
	require.Subset(t, v.Present, v.Compiled)
}

func TestParseTensorType(t *testing.T) {
	for name, want := range map[string]TensorType{"f16": TypeF16, "BF16": TypeBF16, "q8_0": TypeQ8_0, "q4_0": TypeQ4_0, "iq4_nl": TypeIQ4_NL, "auto": TypeAuto, "f32": TypeF32, "q5_1": TypeQ5_1} {
		got, err := ParseTensorType(name)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, strings.ToLower(name), got.String())
	}
	for _, name := range []string{"", "q9", "f16 ", "TensorType(1)"} {
		_, err := ParseTensorType(name)
		require.ErrorContains(t, err, "want one of auto, f16, bf16, f32, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl")
	}
	require.Equal(t, "TensorType(99)", TensorType(99).String())
}

func TestDevices(t *testing.T) {
	devices := Devices()
	require.NotEmpty(t, devices)
	found := false
	for _, d := range devices {
		require.NotEmpty(t, d.Name)
		if d.Type == DeviceCPU {
			found = true
			require.Equal(t, "CPU", d.Type.String())
			require.Positive(t, d.Total)
		}
	}
	require.True(t, found)
	require.Contains(t, Backends(), "CPU")
	require.Equal(t, "DeviceType(9)", DeviceType(9).String())
	require.ErrorContains(t, AddRPCServer(""), "the endpoint is empty")
	if len(Backends()) == 1 {
		require.ErrorContains(t, AddRPCServer("127.0.0.1:1"), "built without the RPC backend")
	}
}

func TestLog(t *testing.T) {
	var b bytes.Buffer
	defer SetLogger(slog.New(slog.DiscardHandler), slog.LevelError)
	read := func(level slog.Level) string {
		b.Reset()
		SetLogger(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})), level)
		m, err := Open(context.Background(), tinyPath(t, "llama"), ModelOptions{})
		require.NoError(t, err)
		m.Close()
		_, err = Open(context.Background(), tinyPath(t, "llama"), ModelOptions{Overrides: map[string]any{"tokenizer.ggml.model": "none such"}})
		require.Error(t, err)
		return b.String()
	}
	text := read(slog.LevelError)
	require.Contains(t, text, "level=ERROR")
	require.Contains(t, text, "unknown tokenizer: 'none such'")
	require.Contains(t, text, "from=llama.cpp")
	require.NotContains(t, text, "level=INFO")
	require.NotContains(t, text, "level=WARN")
	text = read(slog.LevelInfo)
	require.Contains(t, text, "level=INFO")
	for line := range strings.Lines(text) {
		require.Contains(t, line, `msg="`)
		require.NotContains(t, line, `\n`, "one line of llama.cpp is one record")
	}
	require.Contains(t, text, "general.architecture")
}

// Every instruction set that build.sh can compile for is one that Open looks
// for: of any other the process would die.
func TestCPUFeaturesOfTheBuild(t *testing.T) {
	script, err := os.ReadFile("../build.sh")
	require.NoError(t, err)
	n := 0
	for _, table := range []string{"x86_table", "arm_table"} {
		_, rows, ok := strings.Cut(string(script), "\n"+table+"() {\n    cat <<'EOF'\n")
		require.True(t, ok, table)
		rows, _, _ = strings.Cut(rows, "EOF")
		for row := range strings.Lines(rows) {
			fields := strings.Fields(row)
			require.Len(t, fields, 4)
			ids := cpuFeatures[fields[0]]
			require.NotEmpty(t, ids, fields[0])
			if table == "x86_table" { // as many flags as the kernel names
				require.Len(t, ids, len(strings.Split(fields[2], ",")), fields[0])
			}
			n++
		}
	}
	require.Len(t, cpuFeatures, n)
}
