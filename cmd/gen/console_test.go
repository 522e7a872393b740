//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/tinymodel"
)

// consoleOf runs gen compare with lines on standard input.
func consoleOf(t *testing.T, lines []string, flags ...string) result {
	t.Helper()
	args := append([]string{"compare", "-m", tiny, "-c", "256", "-s", "4", "-n", "12"}, flags...)
	return genWith(t, strings.Join(lines, "\n")+"\n", args...)
}

func TestConsoleSettings(t *testing.T) {
	draft := tinyDraft(t, 0.05)
	r := consoleOf(t, []string{
		"/gamma 3", "/gamma", "/length 20", "/adaptive", "/seed 9",
		"/target", "/target", "/ngram", "/cascade",
		"/drafter " + draft, "/speculative", "/cascade", "/strategies plain, draft-block", "/drafter",
		"/processor greedy", "/processor multinomial 0.5", "/processor topk 0.7 5", "/processor nucleus 0.8 0.9", "/processor topknucleus 1 40 0.5",
		"/top_k_filler 2", "/set_ngramstorage onelevel 3", "/set_ngramstorage multilevel 5", "/reset_in_between", "/reset_in_between", "/cache", "/debug",
		"", "  ", "/quit", "/gamma 9",
	})
	assert.Equal(t, exitFailure, r.status, "one line failed")
	assert.Empty(t, r.stdout)
	assert.Equal(t, strings.Split(`gamma: 3
gamma: 3
length: 20
adaptive: off
seed: 9
target: off
target: on
ngram: off
gen: /cascade: cascade needs a draft model: /drafter FILE opens one
drafter: `+draft+`
speculative: on
speculative: off
cascade: on
strategies: plain,draft-block
drafter: `+draft+`
the filters that run: temperature(0) -> draw
the filters that run: temperature(0.5) -> draw
the filters that run: top_k(5) -> temperature(0.7) -> draw
the filters that run: top_p(0.9) -> temperature(0.8) -> draw
the filters that run: top_k(40) -> top_p(0.5) -> draw
top_k_filler: 2
set_ngramstorage: onelevel 3
set_ngramstorage: multilevel 5
reset_in_between: off
reset_in_between: on
cache: on
debug: on
gen: 1 line of standard input could not be carried out
`, "\n"), strings.Split(r.stderr, "\n"))
}

func TestConsoleBadLines(t *testing.T) {
	for line, want := range map[string]string{
		"/gama 3":                      "/gama: unknown command; did you mean /gamma? /help lists them",
		"/specultive":                  "/specultive: unknown command; did you mean /speculative? /help lists them",
		"/xyzzy":                       "/xyzzy: unknown command; /help lists them",
		"/":                            "/: unknown command; /help lists them; a prompt that begins with / is typed with //",
		"/gamma x":                     "/gamma: x: want 1 to 64 tokens",
		"/gamma 65":                    "/gamma: 65: want 1 to 64 tokens",
		"/gamma 1 2":                   "/gamma: 1 2: want one value",
		"/length 0":                    "/length: 0: want 1 or more, or -1 for no limit",
		"/length -3":                   "/length: -3: want -1 (no limit), -2 (until the context is full), or 0 and more",
		"/seed -2":                     "/seed: -2: want -1 (random) or a whole number from 0 to 18446744073709551615",
		"/target on":                   "/target: takes no value: it switches between on and off",
		"/debug 1":                     "/debug: takes no value: it switches between on and off",
		"/reset_in_between 1":          "/reset_in_between: takes no value: it switches between on and off",
		"/processor":                   "/processor: want a name: greedy, multinomial T, topk T K, nucleus T P, topknucleus T K P",
		"/processor argmax":            "/processor: argmax: want greedy, multinomial T, topk T K, nucleus T P, topknucleus T K P",
		"/processor nucleus 1":         "/processor: want nucleus T P",
		"/processor greedy 1":          "/processor: want greedy",
		"/processor nucleus 1 1.5":     "/processor: --top-p 1.5: want 0 to 1; 1 = off",
		"/processor topk nan 3":        "/processor: --temp nan: want 0 (greedy) or a positive number",
		"/top_k_filler 9":              "/top_k_filler: 9: want 0 (off) to 8 tokens",
		"/set_ngramstorage":            "/set_ngramstorage: want onelevel or multilevel, and a number from 2 to 33",
		"/set_ngramstorage basic 3":    "/set_ngramstorage: want onelevel or multilevel, and a number from 2 to 33",
		"/set_ngramstorage onelevel 1": "/set_ngramstorage: want onelevel or multilevel, and a number from 2 to 33",
		"/strategies fast":             "/strategies: want all, or each at most once of plain, draft,",
		"/strategies draft":            "/strategies: draft needs a draft model: /drafter FILE opens one",
		"/speculative":                 "/speculative: draft needs a draft model: /drafter FILE opens one",
		"/chat":                        "/chat: gen has no chat templates yet: prompts are taken as they are",
		"/drafter nowhere.gguf":        "check the path after /drafter",
		"/drafter " + tiny + ".x":      "check the path after /drafter",
		"caf\xe9":                      "the line is not UTF-8",
		strings.Repeat("x ", 300):      "and the context holds 256",
	} {
		// The session goes on, with the settings as they were.
		r := consoleOf(t, []string{line, "/gamma", "/processor greedy"})
		assert.Equal(t, exitFailure, r.status, line)
		assert.Empty(t, r.stdout, line)
		lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
		if assert.Len(t, lines, 4, "%q: %s", line, r.stderr) {
			assert.True(t, strings.HasPrefix(lines[0], "gen: "), lines[0])
			assert.Contains(t, lines[0], want)
			assert.Equal(t, "gamma: 16", lines[1])
			assert.Equal(t, "gen: 1 line of standard input could not be carried out", lines[3])
		}
	}
}

// Trees need a cache that can hold them, which is made at the start.
func TestConsoleTrees(t *testing.T) {
	draft := tinyDraft(t, 0.3)
	recurrent := tinymodel.Save(t.TempDir(), "recurrent.gguf", tinymodel.Recurrent(tinymodel.Options{}))
	r := consoleOf(t, []string{"/strategies draft,tree", "/gamma 3", "/gamma 4", "the", "/strategies all", "/drafter " + recurrent, "/strategies tree"},
		"-md", draft, "--spec-draft-widths", "2,2", "--json")
	assert.Equal(t, exitFailure, r.status)
	assert.Equal(t, 2, strings.Count(r.stdout, "\n"), r.stdout)
	assert.Contains(t, r.stdout, `{"strategy":"tree","rule":"coupled"`)
	assert.Equal(t, strings.Split(`strategies: draft,tree
gen: /gamma: 3: want at least 4, the tokens of --spec-draft-widths
gamma: 4
prompt: 2 tokens; seed: 4
strategies: `+strings.ReplaceAll(strategyNames(), " ", "")+`
drafter: `+recurrent+`
gen: /strategies: tree: there are no trees with mamba draft models, whose drafts are single tokens
gen: 2 lines of standard input could not be carried out
`, "\n"), strings.Split(r.stderr, "\n"))

	for _, c := range []struct{ flags, want string }{
		{"", "without --spec-draft-widths"},
		{"--spec-draft-widths 2", "without -md beside --spec-draft-widths on the command line"},
	} {
		r := consoleOf(t, []string{"/drafter " + draft, "/strategies tree", "/strategies all"}, strings.Fields(c.flags)...)
		assert.Contains(t, r.stderr, "gen: /strategies: tree: there are no trees "+c.want+"\n")
		assert.Contains(t, r.stderr, "\nstrategies: plain,draft,draft-block,draft-token,ngram,")
	}
}

// A prompt gets the text that gen writes with the same settings, and settings
// hold from one prompt to the next.
func TestConsolePrompts(t *testing.T) {
	want := func(flags ...string) string {
		return text(t, append([]string{"-m", tiny, "-c", "256"}, flags...)...)
	}
	rows := func(lines []string, flags ...string) []standing {
		r := consoleOf(t, lines, append(flags, "--json")...)
		require.Equal(t, exitDone, r.status, r.stderr)
		var all []standing
		for _, line := range strings.Split(strings.TrimSpace(r.stdout), "\n") {
			var row standing
			require.NoError(t, json.Unmarshal([]byte(line), &row))
			all = append(all, row)
		}
		return all
	}
	all := rows([]string{"the and", "/length 20", "/processor topk 0.7 5", "the and", `//the\nand`, "/strategies plain", "/seed 5", "/length 6", "the"}, "-md", tinyDraft(t, 0.05))
	require.Len(t, all, 13)
	for i, row := range all {
		flags := []string{"-p", "the and", "-n", "12", "-s", "4"}
		switch {
		case i >= 12:
			flags = []string{"-p", "the", "-n", "6", "-s", "5", "--temp", "0.7", "--samplers", "top_k;temperature", "--top-k", "5"}
		case i >= 8:
			flags = []string{"-p", "/the\nand", "-n", "20", "-s", "4", "--temp", "0.7", "--samplers", "top_k;temperature", "--top-k", "5"}
		case i >= 4:
			flags = []string{"-p", "the and", "-n", "20", "-s", "4", "--temp", "0.7", "--samplers", "top_k;temperature", "--top-k", "5"}
		}
		assert.Equal(t, want(flags...), row.Text, "%d %s", i, row.Strategy)
		assert.Equal(t, []string{"plain", "draft", "ngram", "cascade"}[i%4], row.Strategy)
	}
}

func TestConsoleShowsTexts(t *testing.T) {
	want := text(t, "-m", tiny, "-c", "256", "-p", "the", "-n", "12", "-s", "4")
	r := consoleOf(t, []string{"the", "/ngram", "/debug", "the"})
	require.Equal(t, exitDone, r.status, r.stderr)
	table := r.stdout[strings.Index(r.stdout, "strategy"):]
	assert.True(t, strings.HasPrefix(r.stdout, "plain:\n"+want+"\n\nngram:\n"+want+"\n\nstrategy  "), r.stdout)
	assert.Contains(t, table, "\nplain:\n"+want+"\n\nstrategy  ")
	assert.Equal(t, 12, strings.Count(r.stderr, "  plain      "), "debug lists the tokens: %s", r.stderr)
	assert.Contains(t, r.stderr, "plain: 12 tokens, 0 of the prompt from the cache; 0 passes, 0 with a draft\n")

	r = consoleOf(t, []string{"/target", "/ngram", "the"})
	assert.Equal(t, exitFailure, r.status)
	assert.Contains(t, r.stderr, "gen: nothing is on that could generate")
}

// With /cache on a text starts from what the last one left. With
// /reset_in_between off texts draft from earlier ones, each strategy from its
// own.
func TestConsoleKeeps(t *testing.T) {
	long := strings.Repeat("the and ", 40)
	r := consoleOf(t, []string{"/strategies plain", "/debug", "/cache", long, long, "/cache", long}, "-c", "512")
	require.Equal(t, exitDone, r.status, r.stderr)
	var cached []string
	for line := range strings.Lines(r.stderr) {
		if _, rest, ok := strings.Cut(line, "plain: 12 tokens, "); ok {
			cached = append(cached, strings.Fields(rest)[0])
		}
	}
	require.Len(t, cached, 3)
	assert.Equal(t, "0", cached[0])
	assert.Equal(t, "81", cached[1], "all but the last token: %s", r.stderr)
	assert.Equal(t, "0", cached[2])

	drafted := func(lines ...string) int {
		r := consoleOf(t, append([]string{"/strategies ngram", "/adaptive"}, lines...), "--json", "-n", "20")
		require.Equal(t, exitDone, r.status, r.stderr)
		all := strings.Split(strings.TrimSpace(r.stdout), "\n")
		var row standing
		require.NoError(t, json.Unmarshal([]byte(all[len(all)-1]), &row))
		return row.Accepted
	}
	once := drafted("the and")
	assert.Equal(t, once, drafted("the and", "the and"), "nothing is kept")
	assert.Greater(t, drafted("/reset_in_between", "the and", "the and"), max(once, 10), "the same text again stands there already")
	assert.Equal(t, once, drafted("/reset_in_between", "the and", "/reset_in_between", "the and"))
}

func TestConsoleReplacesTheDraft(t *testing.T) {
	bad := tinymodel.Save(t.TempDir(), "recurrent.gguf", tinymodel.Encoder(tinymodel.Options{}))
	first, second := tinyDraft(t, 0.05), tinyDraft(t, 0.05)
	r := consoleOf(t, []string{"/drafter " + first, "the", "/drafter " + bad, "the", "/drafter " + second, "the", "/drafter"})
	assert.Equal(t, exitFailure, r.status)
	assert.Contains(t, r.stderr, "gen: 1 line of standard input")
	assert.Equal(t, 3, strings.Count(r.stdout, "\ndraft   "), "%s%s", r.stdout, r.stderr)
	assert.Contains(t, r.stderr, "drafter: "+second+"\ngen: 1 line")
}

func TestConsoleHelp(t *testing.T) {
	r := consoleOf(t, []string{"/gamma 5", "/help"})
	require.Equal(t, exitDone, r.status, r.stderr)
	for _, name := range []string{"speculative", "ngram", "drafter FILE", "target", "gamma N", "length N", "processor NAME ...", "top_k_filler N", "set_ngramstorage KIND N", "reset_in_between", "cache", "debug", "help", "quit"} {
		assert.Contains(t, r.stderr, "\n/"+name+" ")
	}
	assert.Contains(t, r.stderr, "tokens of a draft at most (now 5)")
}

// A session is gen compare with a console on a pipe, while it runs.
type session struct {
	*exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr lockedBuffer
}

// A lockedBuffer may be looked at while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// awaitError waits until standard error has a text.
func (s *session) awaitError(t *testing.T, text string) {
	t.Helper()
	for range 6000 {
		if strings.Contains(s.stderr.String(), text) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("gen does not say %q:\n%s", text, s.stderr.String())
}

func startSession(t *testing.T, args ...string) *session {
	t.Helper()
	s := &session{Cmd: exec.Command(program, append([]string{"compare", "-m", tiny, "-c", "102400", "--override-kv", "llama.context_length=int:102400", "-n", "-1", "--ignore-eos", "-s", "1", "--strategies", "plain"}, args...)...)}
	var err error
	s.in, err = s.StdinPipe()
	require.NoError(t, err)
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	s.Stdout, s.Stderr, s.out = writer, &s.stderr, bufio.NewReader(reader)
	require.NoError(t, s.Start())
	writer.Close()
	t.Cleanup(func() {
		_ = s.Process.Kill()
		reader.Close()
	})
	return s
}

func (s *session) say(t *testing.T, lines string) {
	t.Helper()
	_, err := io.WriteString(s.in, lines)
	require.NoError(t, err)
}

// await reads standard output up to a text.
func (s *session) await(t *testing.T, text string) {
	t.Helper()
	var got []byte
	for !bytes.HasSuffix(got, []byte(text)) {
		b, err := s.out.ReadByte()
		require.NoError(t, err, "%s", got)
		got = append(got, b)
	}
}

func (s *session) status(t *testing.T) int {
	t.Helper()
	_, _ = io.Copy(io.Discard, s.out)
	_ = s.Wait()
	require.True(t, s.ProcessState.Exited(), "%v\n%s", s.ProcessState, s.stderr.String())
	return s.ProcessState.ExitCode()
}

// An interrupt ends the text under way, again and again, and not the session.
func TestConsoleInterrupts(t *testing.T) {
	s := startSession(t)
	for range 3 {
		s.say(t, "the\n")
		s.await(t, "plain:\n")
		_, err := s.out.Peek(1)
		require.NoError(t, err)
		require.NoError(t, s.Process.Signal(os.Interrupt))
	}
	s.say(t, "/length 3\nthe\n/quit\n")
	s.await(t, "strategy ")
	assert.Equal(t, exitDone, s.status(t))
	assert.Equal(t, 3, strings.Count(s.stderr.String(), "gen: interrupted\n"), s.stderr.String())
	assert.NotContains(t, s.stderr.String(), "llama.cpp")
}

// In place of a line two interrupts in a row end it, and SIGTERM does at once.
func TestConsoleEnds(t *testing.T) {
	s := startSession(t)
	s.say(t, "/length 2\nthe\n")
	s.await(t, "max tokens\n") // from here on it waits for a line
	s.awaitError(t, "seed: 1\n")
	require.NoError(t, s.Process.Signal(os.Interrupt))
	s.awaitError(t, "(once more, or Ctrl-D, ends gen)\n")
	require.NoError(t, s.Process.Signal(os.Interrupt))
	assert.Equal(t, exitInterrupted, s.status(t))

	for _, busy := range []bool{false, true} {
		s := startSession(t)
		s.say(t, "/length 2\nthe\n")
		s.awaitError(t, "seed: 1\n")
		if busy {
			s.say(t, "/length -1\nthe\n")
			s.await(t, "plain:\n")
		}
		require.NoError(t, s.Process.Signal(syscall.SIGTERM))
		assert.Equal(t, exitInterrupted, s.status(t))
		assert.Contains(t, s.stderr.String(), "gen: interrupted\n")
	}
}

func TestConsoleOutputClosed(t *testing.T) {
	s := startSession(t)
	cmd := exec.Command("sh", "-c", `printf 'the\nthe\n' | "$0" compare -m "$1" -c 512 -n 200 -s 1 | head -c 1`, program, tiny)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Run())
	assert.NotContains(t, stderr.String(), "gen: ")
	s.in.Close()
	assert.Equal(t, exitDone, s.status(t), "the end of the input")
}

// TestCompareOnRealModels is short: the texts of the coupled strategies are
// plain's, or leave it with a note.
func TestCompareOnRealModels(t *testing.T) {
	draft := filepath.Join(filepath.Dir(realModel(t)), "SmolLM2-135M-Instruct-Q4_0.gguf")
	if _, err := os.Stat(draft); err != nil {
		draft = realModel(t) // only `make models` has the other
	}
	r := gen(t, "compare", "-m", realModel(t), "-md", draft, "-c", "512", "-p", realPrompts[0], "-n", "16", "-s", "3", "--repeat", "1", "--json")
	require.Equal(t, exitDone, r.status, r.stderr)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	require.Len(t, lines, 4)
	for _, line := range lines {
		var row standing
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		if row.Same != nil && !*row.Same {
			assert.Contains(t, r.stderr, row.Strategy+": the text leaves plain's")
		}
	}
}
