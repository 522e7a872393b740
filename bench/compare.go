package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/sortes-llm/sortes/bench/internal/measure"
	"github.com/sortes-llm/sortes/generate"
	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/sampler"
)

type bench struct {
	ours, upstream string // folders of llama.cpp's tools
	gen            string
	rounds         int
	threads        int
}

const (
	promptTokens = 512
	newTokens    = 128
	deep         = 512 // tokens in the cache before generation
)

// besideBench compares the whole loop, with default sampling, with llama-bench,
// which evaluates arbitrary tokens and samples nothing.
func (b *bench) besideBench(model, tools, name string) error {
	tool := filepath.Join(tools, "llama-bench")
	if _, err := os.Stat(tool); err != nil {
		return fmt.Errorf("%s: build it with ./build.sh --tools", tool)
	}
	side, err := b.open(model)
	if err != nil {
		return err
	}
	defer side.close()

	prompt := pair{name: fmt.Sprintf("prompt %d, %s", promptTokens, name), unit: "t/s"}
	empty := pair{name: fmt.Sprintf("generation %d, %s", newTokens, name), unit: "t/s"}
	filled := pair{name: fmt.Sprintf("generation %d at depth %d", newTokens, deep), unit: "t/s"}
	for round := range b.rounds {
		err := errors.Join(
			prompt.add(round, func() (float64, error) { return side.promptRate(promptTokens) },
				func() (float64, error) { return b.llamaBench(tool, model, "-p", strconv.Itoa(promptTokens), "-n", "0") }),
			empty.add(round, func() (float64, error) { return side.generateRate(1, newTokens) },
				func() (float64, error) { return b.llamaBench(tool, model, "-p", "0", "-n", strconv.Itoa(newTokens)) }),
			filled.add(round, func() (float64, error) { return side.generateRate(deep, newTokens) },
				func() (float64, error) {
					return b.llamaBench(tool, model, "-p", "0", "-n", strconv.Itoa(newTokens), "-d", strconv.Itoa(deep))
				}),
		)
		if err != nil {
			return err
		}
	}
	prompt.print()
	empty.print()
	filled.print()
	return nil
}

// llamaBench runs llama-bench once and returns its tokens per second.
func (b *bench) llamaBench(tool, model string, args ...string) (float64, error) {
	args = append([]string{"-m", model, "-t", strconv.Itoa(b.threads), "-r", "1", "-fa", "auto", "-o", "json"}, args...)
	var stderr bytes.Buffer
	cmd := exec.Command(tool, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w %s", tool, err, measure.LastLine(stderr.String()))
	}
	var rows []struct {
		Rate float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(out, &rows); err != nil || len(rows) != 1 {
		return 0, fmt.Errorf("%s: %d results: %v", tool, len(rows), err)
	}
	return rows[0].Rate, nil
}

// A side is sortes, opened once, with nothing in its cache.
type side struct {
	model   *llama.Model
	session *llama.Session
	engine  *generate.Engine
	next    int32 // a different first token for each prompt: nothing is found in the cache
}

func (b *bench) open(path string) (*side, error) {
	model, err := llama.Open(context.Background(), path, llama.ModelOptions{})
	if err != nil {
		return nil, err
	}
	session, err := model.NewSession(llama.SessionOptions{Context: 2048, Threads: b.threads})
	if err != nil {
		model.Close()
		return nil, err
	}
	engine, err := generate.New(session, model.Vocab(), generate.Options{})
	if err != nil {
		session.Close()
		model.Close()
		return nil, err
	}
	s := &side{model: model, session: session, engine: engine}
	if _, err := s.generateRate(1, 16); err != nil { // warm up, as llama-bench does
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *side) close() {
	s.engine.Close()
	s.session.Close()
	s.model.Close()
}

func (s *side) prompt(n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		s.next = int32((int64(s.next)*7919 + 104729) % int64(s.model.Vocab().Size()))
		tokens[i] = s.next
	}
	return tokens
}

func (s *side) run(r generate.Request) (generate.Stats, error) {
	var stats generate.Stats
	r.Stats = &stats
	for _, err := range s.engine.Stream(context.Background(), r) {
		if err != nil {
			return stats, err
		}
	}
	return stats, nil
}

func (s *side) promptRate(n int) (float64, error) {
	start := time.Now()
	_, err := s.run(generate.Request{Prompt: s.prompt(n), MaxTokens: 1, Sampling: sampler.Default(), IgnoreEOG: true})
	return float64(n) / time.Since(start).Seconds(), err
}

func (s *side) generateRate(depth, n int) (float64, error) {
	stats, err := s.run(generate.Request{Prompt: s.prompt(depth), MaxTokens: n + 1, Sampling: sampler.Default(), Seed: 1, IgnoreEOG: true})
	return stats.GenerateRate(), err
}

// besideCompletion compares the command with llama-completion as a user runs
// them: default sampling, text on standard output, whole processes.
func (b *bench) besideCompletion(model string) error {
	tool := filepath.Join(b.ours, "llama-completion")
	if _, err := os.Stat(tool); err != nil {
		return fmt.Errorf("%s: build it with ./build.sh --tools", tool)
	}
	common := []string{"-m", model, "-p", "Once upon a time there was a small town by the sea, and in it lived", "-t", strconv.Itoa(b.threads), "-c", "2048", "--ignore-eos", "--seed", "1"}
	ours := func(n int) *exec.Cmd {
		return exec.Command(b.gen, append(common, "-n", strconv.Itoa(n))...)
	}
	theirs := func(n int) *exec.Cmd {
		return exec.Command(tool, append(common, "-n", strconv.Itoa(n), "-no-cnv", "--no-display-prompt")...)
	}

	const few, many = 1, 257
	rate := pair{name: "generation end to end, llama-completion", unit: "t/s"}
	start := pair{name: "start to the first token, llama-completion", unit: "s"}
	memory := pair{name: "peak memory, llama-completion", unit: "MiB"}
	for round := range b.rounds {
		var firsts, peaks [2]float64
		measure := func(side int, command func(int) *exec.Cmd) func() (float64, error) {
			return func() (float64, error) {
				first, peak, err := wholeProcess(command(few))
				if err != nil {
					return 0, err
				}
				all, _, err := wholeProcess(command(many))
				firsts[side], peaks[side] = first, peak
				return (many - few) / (all - first), err
			}
		}
		if err := rate.add(round, measure(0, ours), measure(1, theirs)); err != nil {
			return err
		}
		start.ours, start.theirs = append(start.ours, firsts[0]), append(start.theirs, firsts[1])
		memory.ours, memory.theirs = append(memory.ours, peaks[0]), append(memory.theirs, peaks[1])
	}
	rate.print()
	start.print()
	memory.print()
	return nil
}

// wholeProcess runs a command and returns its wall time in seconds and its
// peak memory in MiB.
func wholeProcess(cmd *exec.Cmd) (seconds, mib float64, err error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	start := time.Now()
	if _, err := cmd.Output(); err != nil {
		return 0, 0, fmt.Errorf("%s: %w %s", cmd.Path, err, measure.LastLine(stderr.String()))
	}
	seconds = time.Since(start).Seconds()
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		mib = float64(usage.Maxrss) / 1024
	}
	return seconds, mib, nil
}

// cancel measures how long a long prefill takes to end once its context is
// cancelled.
func (b *bench) cancel(ctx context.Context, path string) error {
	const prompt = 4000
	model, err := llama.Open(ctx, path, llama.ModelOptions{})
	if err != nil {
		return err
	}
	defer model.Close()
	session, err := model.NewSession(llama.SessionOptions{Context: prompt + 96, Threads: b.threads})
	if err != nil {
		return err
	}
	defer session.Close()
	engine, err := generate.New(session, model.Vocab(), generate.Options{})
	if err != nil {
		return err
	}
	defer engine.Close()
	s := side{model: model, engine: engine}
	var took []float64
	for round := range b.rounds {
		ctx, cancel := context.WithCancel(ctx)
		var at time.Time
		time.AfterFunc(time.Duration(400+100*round)*time.Millisecond, func() { at = time.Now(); cancel() })
		var streamErr error
		for _, err := range engine.Stream(ctx, generate.Request{Prompt: s.prompt(prompt), MaxTokens: 1}) {
			streamErr = err
		}
		if !errors.Is(streamErr, context.Canceled) {
			return fmt.Errorf("a prefill of %d tokens was over before it could be cancelled", prompt)
		}
		// The stream ends at once; the evaluation has ended when the next one begins.
		if _, err := s.run(generate.Request{Prompt: s.prompt(1), MaxTokens: 1}); err != nil {
			return err
		}
		took = append(took, time.Since(at).Seconds())
	}
	fmt.Printf("  %-46s %10.3f s until the next request has its token\n", fmt.Sprintf("a prefill of %d tokens cancelled", prompt), measure.Median(took))
	return nil
}
