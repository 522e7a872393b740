package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/gguf"
	"github.com/sortes-llm/sortes/internal/tinymodel"
	"github.com/sortes-llm/sortes/llama"
)

func TestTokenize(t *testing.T) {
	args := []string{"tokenize", "-m", tiny}
	the := tinymodel.Byte + 256 + 1 // the second of the words
	out := text(t, append(args, "-p", `the\n<|im_end|>`)...)
	assert.Equal(t, fmt.Sprintf("%7d  \"<s>\"\n%7d  \"the\"\n%7d  \"\\n\"\n%7d  \"<|im_end|>\"\n", tinymodel.BOS, the, tinymodel.Byte+'\n', tinymodel.EOT), out)

	assert.Equal(t, fmt.Sprintf("[%d]\n1 tokens\n", the), text(t, append(args, "-p", "the", "--no-bos", "--ids", "--show-count")...))
	assert.Equal(t, "", text(t, append(args, "-p", "", "--no-bos")...))
	spelled := text(t, append(args, "-p", "<|im_end|>", "--no-bos", "--no-parse-special")...)
	assert.NotContains(t, spelled, "im_end")
	assert.Equal(t, text(t, append(args, "-p", "the\n")...), genWith(t, "the\n", args...).stdout, "a newline at the end is a token")

	var piece jsonPiece
	require.NoError(t, json.Unmarshal([]byte(text(t, append(args, "-p", "the", "--no-bos", "--json")...)), &piece))
	assert.Equal(t, jsonPiece{ID: the, Text: "the"}, piece)
	lines := strings.Split(text(t, append(args, "-p", "日", "--no-bos", "--json")...), "\n")
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &piece))
	assert.Equal(t, jsonPiece{ID: tinymodel.Byte + 0xe6, Text: "\uFFFD", Bytes: []int{0xe6}}, piece)
}

func TestDecode(t *testing.T) {
	want := "the 日本 <|im_end|>\n"
	file := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(file, []byte(want), 0o600))
	ids := text(t, "tokenize", "-m", tiny, "-f", file, "--no-bos", "--ids")
	assert.Equal(t, want, text(t, "tokenize", "-m", tiny, "--decode", strings.TrimSpace(ids)), "there and back")
	assert.Equal(t, "<s>", text(t, "tokenize", "-m", tiny, "--decode", "1"))
}

func TestInspect(t *testing.T) {
	model := withMetadata(t, gguf.NewKV("test.text", strings.Repeat("x", 500)), gguf.NewKV("test.nan", []float32{1, 2}))
	out := text(t, "inspect", model)
	for _, want := range []string{
		`general\.architecture +string +"llama"`,
		`test\.text +string +"x{99}\.\.\. \(502 characters\)`,
		`tokenizer\.ggml\.tokens +string\[\d+\] +\["<unk>", "<s>", "</s>", .* in all\]`,
		`token_embd\.weight +F32 +64 x \d+ +\d+ bytes at 0`,
		`\d+ tensors, their data from byte \d+ in steps of 32`,
	} {
		assert.Regexp(t, want, out)
	}

	var file jsonFile
	require.NoError(t, json.Unmarshal([]byte(text(t, "inspect", "--json", model)), &file))
	f, err := gguf.ReadFile(model)
	require.NoError(t, err)
	require.Len(t, file.Metadata, len(f.KVs))
	require.Len(t, file.Tensors, len(f.Tensors))
	assert.EqualValues(t, 3, file.Version)
	assert.Empty(t, file.Error)
	for _, entry := range file.Metadata {
		switch entry.Key {
		case "test.text":
			assert.Equal(t, strings.Repeat("x", 500), entry.Value)
		case "tokenizer.ggml.tokens":
			assert.Equal(t, tinymodel.Vocab, entry.Length)
			assert.Len(t, entry.Value, 16)
		}
	}
}

// TestInspectWhatIsBroken: names and values of a file may be anything.
func TestInspectWhatIsBroken(t *testing.T) {
	model := withMetadata(t, gguf.NewKV("bad\x1b[31m\nkey", "v\x00\x1b"), gguf.NewKV("general.alignment", uint32(24)))
	r := gen(t, "inspect", model)
	assert.Equal(t, exitFailure, r.status)
	assert.Contains(t, r.stdout, `"bad\x1b[31m\nkey"`)
	assert.NotContains(t, r.stdout, "\x1b")
	assert.Contains(t, r.stdout, "token_embd.weight", "all of it could be read")
	assert.Contains(t, r.stderr, "general.alignment is 24: it must be a power of two")

	r = gen(t, "inspect", "--json", model)
	assert.Equal(t, exitFailure, r.status)
	var file jsonFile
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &file))
	assert.Contains(t, file.Error, "general.alignment is 24")

	r = gen(t, "inspect", "nowhere")
	assert.Equal(t, result{exitFailure, "", "gen: inspect nowhere: no such file or directory\n"}, r)
	r = gen(t, "inspect", t.TempDir())
	assert.Equal(t, exitFailure, r.status)
	assert.Equal(t, 1, strings.Count(r.stderr, "\n"))
}

func TestQuantize(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "q8.gguf")
	assert.Empty(t, text(t, "quantize", "--pure", tiny, out, "q8_0"))
	f, err := gguf.ReadFile(out)
	require.NoError(t, err)
	for _, tensor := range f.Tensors {
		if tensor.Name == "blk.0.attn_q.weight" {
			assert.Equal(t, gguf.Q8_0, tensor.Type)
		}
	}
	assert.NotEmpty(t, text(t, "-m", out, "-p", "the", "-n", "4"), "it works")

	r := gen(t, "quantize", out, filepath.Join(dir, "q4.gguf"), "Q4_0")
	assert.Equal(t, exitFailure, r.status, "weights that are quantised already")
	assert.Empty(t, text(t, "quantize", "--allow-requantize", out, filepath.Join(dir, "q4.gguf"), "Q4_0"))

	pruned := filepath.Join(dir, "pruned.gguf")
	assert.Empty(t, text(t, "quantize", "--prune-layers", "0", tiny, pruned, "F16"))
	f, err = gguf.ReadFile(pruned)
	require.NoError(t, err)
	layers, ok := f.Lookup("llama.block_count")
	require.True(t, ok)
	assert.Equal(t, "1", layers.String())

	r = gen(t, "quantize", tiny, tiny, "F16")
	assert.Equal(t, exitFailure, r.status)
	assert.Contains(t, r.stderr, "the output would overwrite the input")
	left, err := filepath.Glob(filepath.Join(dir, "*.partial"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestVersion(t *testing.T) {
	out := text(t, "version")
	for _, name := range []string{"gen ", "llama.cpp ", "built from ", "compiled for ", "this CPU has ", "backends ", "device "} {
		assert.Regexp(t, "(?m)^"+name, out)
	}
	assert.Equal(t, out, text(t, "--version"))
	var f facts
	require.NoError(t, json.Unmarshal([]byte(text(t, "version", "--json")), &f))
	assert.NotEmpty(t, f.Llama.LlamaCPP)
	assert.NotEmpty(t, f.Devices)
	assert.Contains(t, f.Backends, "CPU")
}

func TestArchiveForAnotherCPU(t *testing.T) {
	assert.NoError(t, checkCPU(llama.Version{Compiled: []string{"avx"}, Present: []string{"avx", "avx2"}}))
	err := checkCPU(llama.Version{Compiled: []string{"avx", "avx512", "amx_int8"}, Present: []string{"avx"}})
	assert.EqualError(t, err, "llama.cpp was compiled for avx512, amx_int8, which this CPU does not have: run ./build.sh here and build again")
}
