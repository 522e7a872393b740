package gguf_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/gguf"
	"github.com/sortes-llm/sortes/internal/tinymodel"
)

func TestSplits(t *testing.T) {
	for _, alone := range []string{"model.gguf", "m-00001-of-00003", "m-0001-of-0003.gguf", "m-00001-of-00003.GGUF", "00001-of-00003.gguf"} {
		paths, err := gguf.Splits(alone) // need not exist
		assert.NoError(t, err)
		assert.Equal(t, []string{alone}, paths)
	}
	dir := t.TempDir()
	parts := tinymodel.Split(tinymodel.Llama(tinymodel.Options{}), 3)
	first := tinymodel.SaveSplit(dir, "a-b", parts)
	want := []string{
		filepath.Join(dir, "a-b-00001-of-00003.gguf"),
		filepath.Join(dir, "a-b-00002-of-00003.gguf"),
		filepath.Join(dir, "a-b-00003-of-00003.gguf"),
	}
	assert.Equal(t, want[0], first)
	for _, p := range want {
		paths, err := gguf.Splits(p)
		assert.NoError(t, err)
		assert.Equal(t, want, paths)
		paths, err = gguf.CheckFiles(p)
		assert.NoError(t, err)
		assert.Equal(t, want, paths)
	}
	_, err := gguf.Splits(filepath.Join(dir, "a-b-00004-of-00003.gguf"))
	assert.EqualError(t, err, "gguf: a-b-00004-of-00003.gguf: there is no part 4 of 3")
	_, err = gguf.Splits(filepath.Join(dir, "a-b-00000-of-00000.gguf"))
	assert.EqualError(t, err, "gguf: a-b-00000-of-00000.gguf: there is no part 0 of 0")

	require.NoError(t, os.Remove(want[1]))
	for _, f := range []func(string) ([]string, error){gguf.Splits, gguf.CheckFiles} {
		_, err = f(want[0])
		assert.EqualError(t, err, "gguf: part 2 of 3 is missing: stat "+want[1]+": no such file or directory")
		assert.ErrorIs(t, err, os.ErrNotExist)
	}
}

func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	m := tinymodel.Llama(tinymodel.Options{})
	path := tinymodel.Save(dir, "m.gguf", m)
	paths, err := gguf.CheckFiles(path)
	assert.NoError(t, err)
	assert.Equal(t, []string{path}, paths)
	_, err = gguf.CheckFiles(filepath.Join(dir, "none.gguf"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = gguf.CheckFiles(tinymodel.Save(dir, "cut.gguf", m[:100]))
	assert.ErrorContains(t, err, "gguf: byte ")
	assert.NotContains(t, err.Error(), "cut.gguf", "the path of a single file is left to the caller")

	// Parts that do not belong together.
	parts := tinymodel.Split(m, 3)
	for name, c := range map[string]struct {
		parts [][]byte
		want  string
	}{
		"order":  {[][]byte{parts[0], parts[2], parts[1]}, "order-00002-of-00003.gguf: gguf: split.no is 2: by its name the file is part 2 of 3"},
		"less":   {parts[:2], "less-00001-of-00002.gguf: gguf: split.count is 3: by its name the file is part 1 of 2"},
		"whole":  {[][]byte{m, parts[1], parts[2]}, "whole-00001-of-00003.gguf: gguf: split.no is missing: by its name the file is part 1 of 3"},
		"broken": {[][]byte{parts[0], parts[1][:8], parts[2]}, "broken-00002-of-00003.gguf: gguf: byte 8: the number of tensors takes 8 bytes, but the file ends after 0"},
	} {
		_, err := gguf.CheckFiles(tinymodel.SaveSplit(dir, name, c.parts))
		assert.EqualError(t, err, c.want)
	}
}
