// Package build_test tests what build.sh says without building anything.
package build_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// build runs build.sh in a directory of its own and returns its exit status and
// all that it said.
func build(t *testing.T, env []string, args ...string) (status int, said string) {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "third_party"), 0o777))
	for _, name := range []string{"build.sh", "third_party/llama.cpp.pin", "third_party/amx_tile_loadconfig.h", "third_party/huge_pages.h"} {
		text, err := os.ReadFile(filepath.Join("../..", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(root, name), text, 0o777))
	}
	cmd := exec.Command(filepath.Join(root, "build.sh"), args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil {
		require.True(t, errors.As(err, &exit), "%v", err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func TestBadOptions(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--frobnicate"}, "unknown option --frobnicate"},
		{[]string{"stray"}, "unknown option stray"},
		{[]string{"--jobs", "0"}, "--jobs 0: a number of at least 1 is wanted"},
		{[]string{"--jobs"}, "--jobs wants a number"},
		{[]string{"--jobs="}, "--jobs: nothing stands behind the ="},
		{[]string{"--prefix", ""}, "--prefix wants a directory"},
		{[]string{"--cpu-features="}, "--cpu-features: nothing stands behind the ="},
		{[]string{"--cpu-features", "avx9"}, "--cpu-features: no instruction set avx9"},
		{[]string{"--portable", "--cpu-features", "none"}, "--portable and --cpu-features both choose the instruction sets"},
		{[]string{"--cuda", "--vulkan"}, "--cuda and --vulkan are two archives"},
		{[]string{"--tools=llama-nothing"}, "--tools: no program llama-nothing"},
	} {
		status, said := build(t, nil, c.args...)
		assert.Equal(t, 2, status, "%q: %s", c.args, said)
		assert.Contains(t, said, "build.sh: "+c.want, "%q", c.args)
	}
}

// What is missing is named, all of it at once, where nothing can install it.
func TestMissingTools(t *testing.T) {
	bin := t.TempDir()
	for _, tool := range []string{
		"bash", "cat", "cc", "c++", "cut", "dirname", "flock", "getconf", "head", "id", "mkdir", "nproc", "perl", "rm", "sed", "sha256sum", "shasum",
		"sleep", "sort", "sysctl", "tail", "tr", "uname",
	} {
		if path, err := exec.LookPath(tool); err == nil {
			require.NoError(t, os.Symlink(path, filepath.Join(bin, tool)))
		}
	}
	status, said := build(t, []string{"PATH=" + bin, "CC=", "CXX="})
	assert.Equal(t, 1, status, said)
	assert.Regexp(t, `build\.sh: missing:.* cmake git ninja\. Install them with this system's package manager and run build\.sh again`, said)
}
