package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/gguf"
	"github.com/sortes-llm/sortes/internal/tinymodel"
)

// failure runs gen on a model that it must refuse, and returns what it says.
func failure(t *testing.T, model string) string {
	t.Helper()
	r := gen(t, "-m", model, "-p", "hi", "-n", "2")
	assert.Equal(t, exitFailure, r.status, r.stderr)
	assert.Empty(t, r.stdout)
	assert.Equal(t, 1, strings.Count(r.stderr, "\n"), "one line: %s", r.stderr)
	assert.True(t, strings.HasPrefix(r.stderr, "gen: load model "+model+": "), r.stderr)
	return strings.TrimSuffix(strings.TrimPrefix(r.stderr, "gen: load model "+model+": "), "\n")
}

func TestFilesThatAreNoModels(t *testing.T) {
	dir := t.TempDir()
	noise := make([]byte, 10000)
	for i := range noise {
		noise[i] = byte(i*i*7 + i>>3)
	}
	assert.Equal(t, "no such file or directory: check the path after -m", failure(t, filepath.Join(dir, "none.gguf")))
	assert.Contains(t, failure(t, dir), "is a directory")
	assert.Contains(t, failure(t, tinymodel.Save(dir, "empty", nil)), "the file ends after 0")
	assert.Contains(t, failure(t, tinymodel.Save(dir, "noise", noise)), "not a GGUF file")
}

func TestModelsThatAreCut(t *testing.T) {
	model, err := os.ReadFile(tiny)
	require.NoError(t, err)
	f, err := gguf.Read(bytes.NewReader(model), int64(len(model)))
	require.NoError(t, err)
	var cuts []int
	for i := range 5 { // of the header, and of the weights
		cuts = append(cuts, 4+i*int(f.DataOffset-8)/5, int(f.DataOffset)+i*(len(model)-1-int(f.DataOffset))/4)
	}
	require.Len(t, cuts, 10)
	for _, cut := range cuts {
		path := tinymodel.Save(t.TempDir(), "cut.gguf", model[:cut])
		assert.Contains(t, failure(t, path), "byte ", "cut at %d", cut)

		r := gen(t, "inspect", path)
		assert.Equal(t, exitFailure, r.status)
		assert.True(t, strings.HasPrefix(r.stderr, "gen: inspect "+path+": byte "), r.stderr)
		assert.Contains(t, r.stdout, fmt.Sprintf("%d bytes", cut), "what could be read is shown")
	}
}

func TestModelsThatLie(t *testing.T) {
	model, err := os.ReadFile(tiny)
	require.NoError(t, err)
	huge := binary.LittleEndian.AppendUint64(nil, 1<<63)
	patched := func(at int, with []byte) string {
		lie := bytes.Clone(model)
		copy(lie[at:], with)
		return tinymodel.Save(t.TempDir(), "lie.gguf", lie)
	}
	tokens := bytes.Index(model, []byte("tokenizer.ggml.tokens")) + len("tokenizer.ggml.tokens") + 4 + 4
	tensor := bytes.Index(model, []byte("blk.0.attn_q.weight"))
	shape := tensor + len("blk.0.attn_q.weight") + 4
	require.Positive(t, tokens)
	require.Positive(t, tensor)

	assert.Contains(t, failure(t, patched(8, huge)), "number of tensors")
	assert.Contains(t, failure(t, patched(16, huge)), "number of metadata entries")
	assert.Contains(t, failure(t, patched(24, huge)), "a key")
	assert.Contains(t, failure(t, patched(tokens, huge)), "9223372036854775808")
	assert.Contains(t, failure(t, patched(shape, make([]byte, 8))), "0 as dimension 1")
	assert.Contains(t, failure(t, patched(shape+8+8+4, huge)), `"blk.0.attn_q.weight"`)
	assert.Contains(t, failure(t, withMetadata(t, gguf.NewKV("general.architecture", "nonsense"))), "unknown model architecture: 'nonsense'")
	assert.NotEmpty(t, failure(t, withMetadata(t, gguf.NewKV("llama.attention.head_count", uint32(0)))))
}

func TestContextLargerThanMemory(t *testing.T) {
	r := gen(t, "-m", realModel(t), "-p", "hi", "-c", "2147483000")
	assert.Equal(t, exitFailure, r.status)
	assert.Empty(t, r.stdout)
	assert.Regexp(t, `^gen: a KV cache of 2147483136 tokens needs at least [0-9.]+ GiB and [0-9.]+ GiB are free: choose a smaller context.*\n$`, r.stderr)
}

func TestTokensOutsideTheVocabulary(t *testing.T) {
	last := fmt.Sprintf("the vocabulary has %d tokens, 0 to %d\n", tinymodel.Vocab, tinymodel.Vocab-1)
	assert.Equal(t, result{exitUsage, "", "gen: --logit-bias 999999: " + last}, gen(t, "-m", tiny, "-p", "hi", "-l", "999999+1"))
	assert.Equal(t, result{exitUsage, "", "gen: --decode 999999: " + last}, gen(t, "tokenize", "-m", tiny, "--decode", "5,999999"))
}

func TestBadUsageOfTheBinary(t *testing.T) {
	for _, c := range []struct{ args, message string }{
		{"-n -5", "gen: -n -5: want -1 (no limit), -2 (until the context is full), or 0 and more\n"},
		{"--temp nan", "gen: --temp nan: want 0 (greedy) or a positive number\n"},
		{"--top-p 2", "gen: --top-p 2: want 0 to 1; 1 = off\n"},
		{"--nonsense", "gen: --nonsense: unknown flag; gen -h lists all flags\n"},
	} {
		assert.Equal(t, result{exitUsage, "", c.message}, gen(t, append([]string{"-m", tiny, "-p", "hi"}, strings.Fields(c.args)...)...))
	}
	r := gen(t, "-m", tiny, "-p", "a\xffb")
	assert.Equal(t, result{exitUsage, "", "gen: the prompt is not UTF-8: byte 1 is 0xff; --binary-file takes any bytes\n"}, r)
	r = genWith(t, "日本\xe6", "-m", tiny)
	assert.Equal(t, result{exitUsage, "", "gen: the prompt from standard input is not UTF-8: byte 6 is 0xe6; --binary-file takes any bytes\n"}, r)
	r = gen(t, "-m", tiny, "-f", "nowhere")
	assert.Equal(t, result{exitFailure, "", "gen: the prompt in nowhere: no such file or directory\n"}, r)
	r = gen(t)
	assert.Equal(t, exitUsage, r.status)
	assert.Equal(t, shortUsage, r.stderr)
}

func TestModelsThatGenerateNothing(t *testing.T) {
	encoder := tinymodel.Save(t.TempDir(), "encoder.gguf", tinymodel.Encoder(tinymodel.Options{}))
	r := gen(t, "-m", encoder, "-p", "hi", "-n", "2")
	assert.Equal(t, exitFailure, r.status, r.stderr)
	assert.Empty(t, r.stdout)
	assert.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
}
