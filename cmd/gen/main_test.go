package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/tinymodel"
)

const (
	modelPath = "../../models/SmolLM2-135M-Instruct-Q4_1.gguf"
	toolPath  = "../../third_party/tools/ours/bin/llama-completion"
)

// Made by TestMain.
var (
	program string // gen
	tiny    string // a model
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		for _, variable := range os.Environ() {
			if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "LLAMA_ARG_") {
				os.Unsetenv(name)
			}
		}
		// Tests of other packages run beside these: threads that spin would
		// wait for each other.
		os.Setenv("LLAMA_ARG_THREADS", "1")
		dir, err := os.MkdirTemp("", "gen-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "gen")
		build := exec.Command("go", "build", "-o", program, ".")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
		tiny = tinymodel.Save(dir, "tiny.gguf", tinymodel.Llama(tinymodel.Options{}))
		return m.Run()
	}())
}

// A result is what a run of gen leaves.
type result struct {
	status         int
	stdout, stderr string
}

// runHere runs gen in this process.
func runHere(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status := run(context.Background(), args, strings.NewReader(stdin), &stdout, &stderr)
	return result{status, stdout.String(), stderr.String()}
}

// gen runs the binary. A signal that ends it is an error.
func gen(t *testing.T, args ...string) result {
	t.Helper()
	return genWith(t, "", args...)
}

func genWith(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	_ = cmd.Run()
	require.True(t, cmd.ProcessState.Exited(), "gen %q ended with %v\n%s", args, cmd.ProcessState, stderr.String())
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// text runs the binary, which must succeed, and returns what it writes.
func text(t *testing.T, args ...string) string {
	t.Helper()
	r := gen(t, args...)
	require.Equal(t, exitDone, r.status, "gen %q\n%s", args, r.stderr)
	return r.stdout
}

// realModel is the path of a small real model.
func realModel(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(modelPath); err != nil {
		t.Fatalf("%v: run `make model`", err)
	}
	return modelPath
}
