//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// endless are flags with which the tiny model generates for minutes.
func endless(extra ...string) []string {
	return append([]string{"-m", tiny, "-c", "102400", "--override-kv", "llama.context_length=int:102400", "-n", "-1", "--ignore-eos", "-s", "1"}, extra...)
}

// longPrompt is a file with a prompt that takes long to evaluate.
func longPrompt(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "prompt")
	require.NoError(t, os.WriteFile(name, []byte(strings.Repeat("the and ", 49000)), 0o600))
	return name
}

// A child is gen while it runs. Its standard error is read all the time.
type child struct {
	*exec.Cmd
	stdout *os.File
	lines  chan string
	stderr bytes.Buffer // complete once lines is closed
}

func startChild(t *testing.T, args ...string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command(program, args...), lines: make(chan string, 1000)}
	outReader, outWriter, err := os.Pipe()
	require.NoError(t, err)
	errReader, errWriter, err := os.Pipe()
	require.NoError(t, err)
	c.stdout, c.Stdout, c.Stderr = outReader, outWriter, errWriter
	require.NoError(t, c.Start())
	outWriter.Close()
	errWriter.Close()
	go func() {
		defer close(c.lines)
		defer errReader.Close()
		scanner := bufio.NewScanner(errReader)
		for scanner.Scan() {
			c.stderr.WriteString(scanner.Text() + "\n")
			select {
			case c.lines <- scanner.Text():
			default: // nobody waits for a line any more
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		outReader.Close()
	})
	return c
}

// await waits for a line of standard error that begins so.
func (c *child) await(t *testing.T, begin string) {
	t.Helper()
	for line := range c.lines {
		if strings.HasPrefix(line, begin) {
			return
		}
	}
	t.Fatalf("gen ended without the line %q:\n%s", begin, c.stderr.String())
}

// end waits for the process and returns what it left.
func (c *child) end(t *testing.T) result {
	t.Helper()
	rest, err := io.ReadAll(c.stdout)
	require.NoError(t, err)
	for range c.lines {
	}
	_ = c.Wait()
	require.True(t, c.ProcessState.Exited(), "gen ended with %v\n%s", c.ProcessState, c.stderr.String())
	return result{c.ProcessState.ExitCode(), string(rest), c.stderr.String()}
}

func TestInterruptedInGeneration(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		c := startChild(t, endless("-p", "the")...)
		first := make([]byte, 1)
		_, err := io.ReadFull(c.stdout, first)
		require.NoError(t, err)
		require.NoError(t, c.Process.Signal(signal))
		r := c.end(t)
		assert.Equal(t, exitInterrupted, r.status)
		_, _, generated, finish, seed := stats(t, r)
		assert.Equal(t, "interrupted", finish)
		assert.Equal(t, "1", seed)
		assert.NotContains(t, r.stderr, "llama.cpp", "an interruption is no reason for warnings")
		got := string(first) + r.stdout
		// Every token that the statistics count was written.
		assert.Equal(t, text(t, endless("-p", "the", "-n", generated)...), got)
	}
}

func TestInterruptedInPrefill(t *testing.T) {
	c := startChild(t, endless("-f", longPrompt(t), "-v")...)
	c.await(t, "gen: debug: evaluating the prompt")
	require.NoError(t, c.Process.Signal(os.Interrupt))
	r := c.end(t)
	assert.Equal(t, exitInterrupted, r.status)
	assert.Empty(t, r.stdout)
	_, _, generated, finish, _ := stats(t, r)
	assert.Equal(t, "0", generated)
	assert.Equal(t, "interrupted", finish)
	m := regexp.MustCompile(`prompt: (\d+) tokens \((\d+) evaluated\), ([0-9.]+) tokens/s`).FindStringSubmatch(r.stderr)
	require.NotNil(t, m, r.stderr)
	assert.Less(t, atoi(t, m[2]), atoi(t, m[1]))
	assert.Zero(t, atoi(t, m[2])%512, "whole evaluations")
	assert.Equal(t, m[2] == "0", m[3] == "0.0", "the rate is that of what was evaluated")
}

// TestInterruptedWhileLoading sends the signal before llama.cpp reads the
// file; should it arrive late, the long prompt is next.
func TestInterruptedWhileLoading(t *testing.T) {
	c := startChild(t, endless("-f", longPrompt(t), "-v")...)
	c.await(t, "gen: debug: loading")
	require.NoError(t, c.Process.Signal(os.Interrupt))
	r := c.end(t)
	assert.Equal(t, exitInterrupted, r.status)
	assert.Empty(t, r.stdout)
	assert.Contains(t, r.stderr, "interrupted")
}

// A watcher calls back when a text is written.
type watcher struct {
	all  bytes.Buffer
	text string
	then func()
}

func (w *watcher) Write(p []byte) (int, error) {
	n, err := w.all.Write(p)
	if w.then != nil && bytes.Contains(p, []byte(w.text)) {
		w.then()
		w.then = nil
	}
	return n, err
}

// TestInterruptedAtEachStage does so in this process, at the very line.
func TestInterruptedAtEachStage(t *testing.T) {
	for stage, finish := range map[string]string{
		"debug: loading":                  "gen: interrupted\n",
		"debug: evaluating the prompt":    "finish: interrupted",
		"llama.cpp: info: llama_context:": "interrupted",
	} {
		ctx, cancel := context.WithCancel(context.Background())
		var stdout bytes.Buffer
		stderr := &watcher{text: stage, then: cancel}
		status := run(ctx, endless("-p", "the", "-v"), strings.NewReader(""), &stdout, stderr)
		cancel()
		assert.Equal(t, exitInterrupted, status, stage)
		assert.Empty(t, stdout.String(), stage)
		assert.Contains(t, stderr.all.String(), finish, stage)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stdout := &watcher{text: "", then: cancel}
	var stderr bytes.Buffer
	status := run(ctx, endless("-p", "the"), strings.NewReader(""), stdout, &stderr)
	assert.Equal(t, exitInterrupted, status)
	assert.NotEmpty(t, stdout.all.String())
}

func TestInterruptedAtStandardInput(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	reader, writer := io.Pipe()
	defer writer.Close()
	var stdout, stderr bytes.Buffer
	go func() {
		_, _ = writer.Write([]byte("the beginning")) // returns when it is read
		cancel()
	}()
	assert.Equal(t, exitInterrupted, run(ctx, []string{"-m", tiny}, reader, &stdout, &stderr))
	assert.Equal(t, "gen: interrupted\n", stderr.String())
}

// TestSecondInterruptEndsAtOnce: gen hangs in a write that nobody reads.
func TestSecondInterruptEndsAtOnce(t *testing.T) {
	c := startChild(t, endless("-f", longPrompt(t), "--display-prompt")...)
	_, err := io.ReadFull(c.stdout, make([]byte, 1))
	require.NoError(t, err) // the rest is more than a pipe holds
	done := make(chan struct{})
	go func() {
		_ = c.Wait()
		close(done)
	}()
	for range 3000 {
		_ = c.Process.Signal(os.Interrupt) // two in quick succession may count as one
		select {
		case <-done:
			status, ok := c.ProcessState.Sys().(syscall.WaitStatus)
			require.True(t, ok)
			assert.Equal(t, syscall.SIGINT, status.Signal())
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("gen still runs")
}

func TestOutputClosedEarly(t *testing.T) {
	for _, extra := range [][]string{{"-p", "the"}, {"--json", "-p", "the"}, {"-f", longPrompt(t), "--display-prompt"}} {
		c := startChild(t, endless(extra...)...)
		_, err := io.ReadFull(c.stdout, make([]byte, 1))
		require.NoError(t, err)
		c.stdout.Close() // as head -c 1 does
		for range c.lines {
		}
		_ = c.Wait()
		require.True(t, c.ProcessState.Exited(), "%v", c.ProcessState)
		assert.Equal(t, exitDone, c.ProcessState.ExitCode())
		stderr := c.stderr.String()
		assert.NotContains(t, stderr, "gen:")
		if extra[0] == "-p" {
			assert.Contains(t, stderr, "finish: output closed")
		}
		assert.NotContains(t, stderr, "llama.cpp")
		assert.NotContains(t, stderr, "goroutine")
	}
}

func TestOutputClosedForOtherCommands(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"version"}, {"inspect", tiny}, {"tokenize", "-m", tiny, "-p", "the"}} {
		reader, writer, err := os.Pipe()
		require.NoError(t, err)
		reader.Close()
		var stderr bytes.Buffer
		cmd := exec.Command(program, args...)
		cmd.Stdout, cmd.Stderr = writer, &stderr
		_ = cmd.Run()
		writer.Close()
		assert.True(t, cmd.ProcessState.Exited(), "%q: %v", args, cmd.ProcessState)
		assert.Equal(t, exitDone, cmd.ProcessState.ExitCode(), "%q", args)
		assert.Empty(t, stderr.String(), "%q", args)
	}
}

func TestOutputThatFails(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return // only Linux has it
	}
	require.NoError(t, err)
	defer full.Close()
	var stderr bytes.Buffer
	cmd := exec.Command(program, "-m", tiny, "-p", "the", "-n", "20")
	cmd.Stdout, cmd.Stderr = full, &stderr
	_ = cmd.Run()
	assert.Equal(t, exitFailure, cmd.ProcessState.ExitCode())
	assert.Contains(t, stderr.String(), "\ngen: standard output: no space left on device\n")
	assert.Contains(t, stderr.String(), "finish: failed")
}
