package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGrammarFlags(t *testing.T) {
	args := []string{"-m", tiny, "-p", "the", "-n", "60", "-s", "3", "--no-perf"}
	const gbnf = `root ::= "yes" | "no" [0-9]{2}`
	want := text(t, append(args, "--grammar", gbnf)...)
	assert.Regexp(t, regexp.MustCompile(`^(yes|no\d\d)$`), want)
	file := filepath.Join(t.TempDir(), "rules.gbnf")
	require.NoError(t, os.WriteFile(file, []byte(gbnf+"\n"), 0o600))
	assert.Equal(t, want, text(t, append(args, "--grammar-file", file)...))

	const schema = `{"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 5}, "ok": {"type": "boolean"}}, "required": ["n", "ok"]}`
	want = text(t, append(args, "-j", schema)...)
	var document struct {
		N  int
		OK *bool
	}
	require.NoError(t, json.Unmarshal([]byte(want), &document), want)
	assert.True(t, document.N >= 1 && document.N <= 5 && document.OK != nil, want)
	require.NoError(t, os.WriteFile(file, []byte(schema), 0o600))
	assert.Equal(t, want, text(t, append(args, "-jf", file)...))
	assert.Equal(t, want, text(t, append(args, "--json-schema-file", file)...))
	for _, chain := range [][]string{{"--temp", "0"}, {"--top-k", "0"}, {"--top-k", "0", "--top-p", "1", "--min-p", "0"}} {
		got := text(t, append(append(args, "--json-schema", schema), chain...)...)
		require.NoError(t, json.Unmarshal([]byte(got), &document), got)
	}
}

func TestGrammarInTheStatistics(t *testing.T) {
	args := []string{"-m", tiny, "-p", "the", "-n", "20", "-s", "3"}
	r := gen(t, append(args, "--grammar", `root ::= "a"{3}`)...)
	_, _, _, finish, _ := stats(t, r)
	assert.Equal(t, "aaa", r.stdout)
	assert.Equal(t, "end token", finish)
	r = gen(t, append(args, "--grammar", `root ::= "a"{300}`)...)
	_, _, _, finish, _ = stats(t, r)
	assert.Equal(t, exitDone, r.status)
	assert.Equal(t, "max tokens, which cuts the text: the grammar is not complete", finish)
	r = gen(t, append(args, "--grammar", `root ::= "a"+`, "-l", "3-inf", "-l", "2-inf", "--json")...)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	assert.Contains(t, lines[len(lines)-1], `"complete":true`, "cut, but whole: %s", r.stderr)

	r = gen(t, append(args, "--grammar", `root ::= "a"`, "--explain")...)
	assert.Regexp(t, `--grammar +"?root ::= \\?"a\\?""? +flag`, r.stderr)
}

func TestGrammarErrors(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	args := []string{"-m", tiny, "-p", "the", "-n", "5"}
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--grammar", `root ::= "a"`, "-j", "{}"}, exitUsage, "gen: more than one grammar: give one of --grammar, --grammar-file, -j and -jf"},
		{[]string{"--grammar", `root ::= "a"`, "--ignore-eos"}, exitUsage, "gen: --ignore-eos with --grammar: the grammar says where the text ends; give one of them"},
		{[]string{"--grammar", ""}, exitUsage, `gen: --grammar "": want a grammar`},
		{[]string{"--grammar", "root ::= \"a\"\nx := 1"}, exitUsage, "gen: --grammar: line 2, column 3: expecting ::= after x, found ':'"},
		{[]string{"-j", `{"not": {}}`}, exitUsage, "gen: --json-schema: schema: #/not: the keyword not is not supported"},
		{[]string{"-j", `{`}, exitUsage, "gen: --json-schema: schema: the JSON ends too early"},
		{[]string{"-jf", none}, exitFailure, "gen: --json-schema-file " + none + ": no such file or directory"},
		{[]string{"--grammar", "root ::= <nothing>"}, exitUsage, "gen: --grammar: <nothing> is no token of this vocabulary"},
	} {
		r := gen(t, append(args, c.args...)...)
		assert.Equal(t, result{c.status, "", c.want + "\n"}, r)
	}
	r := gen(t, "-m", tiny, "-p", "the", "-n", "0", "--grammar", `root ::= "a"`)
	assert.Contains(t, r.stderr, "has no effect with -n 0")
}

// A real vocabulary, real pieces cut within characters, and documents that are
// checked by the validator.
func TestGrammarWithARealModel(t *testing.T) {
	_, err := os.Stat(modelPath)
	require.NoError(t, err, "run `make model`")
	const schema = `{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "born": {"type": "string", "format": "date"},
		"tags": {"type": "array", "items": {"enum": ["a", "b", "é"]}, "maxItems": 3}}, "required": ["name", "born", "tags"], "additionalProperties": false}`
	for _, seed := range []string{"1", "2", "3"} {
		r := gen(t, "-m", modelPath, "-p", "A person as JSON:\n", "-n", "120", "-s", seed, "-c", "512", "-j", schema)
		require.Equal(t, exitDone, r.status, r.stderr)
		_, _, _, finish, _ := stats(t, r)
		assert.Equal(t, "end token", finish, r.stdout)
		assert.True(t, json.Valid([]byte(r.stdout)), r.stdout)
	}
}
