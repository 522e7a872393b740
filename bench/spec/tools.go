package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sortes-llm/sortes/bench/internal/measure"
)

// tools runs llama.cpp's own programs on the same files and prompts.
type tools struct {
	folder        string
	target, draft string
	threads       int
	tokens        int
}

// A tool is one way of them to draft; n is the length of a draft.
type tool struct {
	name    string
	program string
	args    func(t *tools, n int) []string
	lengths []int // that the best is looked for among; the first is llama.cpp's default
}

// ngram reports whether a tool drafts from repetition.
func (t tool) ngram() bool { return t.program == "llama-lookup" || strings.HasPrefix(t.name, "ngram-") }

var allTools = []tool{
	{"speculative-simple", "llama-speculative-simple", func(t *tools, n int) []string {
		// Without --poll 0 the threads of target and draft spin against each
		// other: a third of the speed, where a build has no OpenMP.
		return []string{"-md", t.draft, "--spec-type", "draft-simple", "--poll", "0", "--spec-draft-n-max", strconv.Itoa(n)}
	}, []int{3, 1, 2, 4, 6}},
	{"lookup", "llama-lookup", func(_ *tools, n int) []string {
		return []string{"--spec-draft-n-max", strconv.Itoa(n)}
	}, []int{3, 7, 15}},
	{"ngram-simple", "llama-speculative-simple", func(_ *tools, n int) []string {
		return []string{"--spec-type", "ngram-simple", "--spec-ngram-simple-size-m", strconv.Itoa(n)}
	}, []int{48, 7, 15}},
	{"ngram-mod", "llama-speculative-simple", func(_ *tools, n int) []string {
		args := []string{"--spec-type", "ngram-mod", "--spec-ngram-mod-n-max", strconv.Itoa(n)}
		if n < 48 { // the least that it drafts by default
			args = append(args, "--spec-ngram-mod-n-min", strconv.Itoa(n))
		}
		return args
	}, []int{64, 7, 15}},
	{"ngram-cache", "llama-speculative-simple", func(_ *tools, n int) []string {
		return []string{"--spec-type", "ngram-cache", "--spec-draft-n-max", strconv.Itoa(n)}
	}, []int{3, 7}},
}

var lookaheadTool = tool{name: "lookahead", program: "llama-lookahead", args: func(*tools, int) []string { return nil }}

// run writes a text with a tool.
func (t *tools) run(ctx context.Context, tool tool, n int, p prompt, temperature float64, seed uint64) (measurement, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	threads := strconv.Itoa(t.threads) // without -tb, which with --poll makes a second pool
	args := append([]string{
		"-m", t.target, "-p", p.text, "--no-escape", "-n", strconv.Itoa(t.tokens), "-c", strconv.Itoa(contextSize),
		"-t", threads, "--temp", strconv.FormatFloat(temperature, 'g', -1, 64), "--seed", strconv.FormatUint(seed, 10),
	}, tool.args(t, n)...)
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(t.folder, tool.program), args...)
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return measurement{}, fmt.Errorf("%s: %w: %s", tool.program, err, measure.LastLine(stderr.String()))
	}
	figures, err := parseTool(stderr.String())
	if err != nil {
		return measurement{}, fmt.Errorf("%s: %w", tool.program, err)
	}
	if figures.prompt != len(p.tokens) {
		return measurement{}, fmt.Errorf("%s: a prompt of %d tokens, where ours has %d", tool.program, figures.prompt, len(p.tokens))
	}
	return measurement{
		Length: n, Tokens: figures.tokens, Seconds: figures.seconds,
		Drafted: figures.drafted, Accepted: figures.accepted,
	}, nil
}

// toolFigures are what llama.cpp's programs say at their end.
type toolFigures struct {
	prompt, tokens    int
	seconds           float64 // for the tokens, the prompt not counted
	drafted, accepted int
}

var (
	encodedLine  = regexp.MustCompile(`encoded\s+(\d+) tokens in`)
	decodedLine  = regexp.MustCompile(`decoded\s+(\d+) tokens in\s+([0-9.]+) seconds`)
	draftedLine  = regexp.MustCompile(`n_drafted\s*=\s*(\d+)`)
	acceptedLine = regexp.MustCompile(`n_accept\s*=\s*(\d+)`)
)

func parseTool(log string) (f toolFigures, err error) {
	decoded := decodedLine.FindStringSubmatch(log)
	encoded := encodedLine.FindStringSubmatch(log)
	if decoded == nil || encoded == nil {
		return f, fmt.Errorf("no figures in its output, which ends with %q", measure.LastLine(log))
	}
	number := func(s string) int {
		n, e := strconv.Atoi(s)
		if e != nil {
			err = e
		}
		return n
	}
	f.prompt, f.tokens = number(encoded[1]), number(decoded[1])
	if f.seconds, err = strconv.ParseFloat(strings.TrimSpace(decoded[2]), 64); err != nil {
		return f, err
	}
	if m := draftedLine.FindStringSubmatch(log); m != nil {
		f.drafted = number(m[1])
	}
	if m := acceptedLine.FindStringSubmatch(log); m != nil {
		f.accepted = number(m[1])
	}
	if err == nil && !(f.seconds > 0 && f.tokens > 0) {
		err = fmt.Errorf("%d tokens in %v seconds", f.tokens, f.seconds)
	}
	return f, err
}
