package main

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	const testify = "require github.com/stretchr/testify v1.0.0\n"
	for _, c := range []struct {
		name, file, imported string
		mod                  string
		want                 string
	}{
		{"the loop may see the samplers", "generate/a.go", "github.com/sortes-llm/sortes/sampler", "", ""},
		{"internal is for all", "llama/a.go", "github.com/sortes-llm/sortes/internal/gguf", "", ""},
		{"the standard library is for all", "sampler/a.go", "container/heap", "", ""},
		{"the command may see all", "cmd/gen/a.go", "github.com/urfave/cli/v2", "", ""},
		{"tests have their tools", "sampler/a_test.go", "github.com/stretchr/testify/assert", "", ""},
		{"C in llama", "llama/a.go", "C", "", ""},
		{"a module and its later versions", "llama/a.go", "github.com/klauspost/cpuid/v2", "", ""},
		{"samplers may not see the loop", "sampler/a.go", "github.com/sortes-llm/sortes/generate", "",
			"sampler/a.go: sampler may not import github.com/sortes-llm/sortes/generate (the rules are in scripts/lint)"},
		{"nor may their tests", "sampler/a_test.go", "github.com/sortes-llm/sortes/llama", "",
			"sampler/a_test.go: sampler may not import github.com/sortes-llm/sortes/llama (the rules are in scripts/lint)"},
		{"no tools of tests in the code", "sampler/a.go", "github.com/stretchr/testify/assert", "",
			"sampler/a.go: sampler may not import github.com/stretchr/testify/assert (the rules are in scripts/lint)"},
		{"a name that begins alike is another", "llama/a.go", "github.com/sortes-llm/sortes/evaluate", "",
			"llama/a.go: llama may not import github.com/sortes-llm/sortes/evaluate (the rules are in scripts/lint)"},
		{"no C elsewhere", "generate/a.go", "C", "", `generate/a.go: imports "C", which only llama may`},
		{"no unsafe elsewhere", "cmd/gen/a_test.go", "unsafe", "", `cmd/gen/a_test.go: imports "unsafe", which only llama may`},
		{"a new package needs a rule", "other/a.go", "fmt", "", "other/a.go: package other has no rule in scripts/lint"},
		{"a dependency needs a reason", "eval/a.go", "fmt", testify, "go.mod: the README does not say what github.com/stretchr/testify is for"},
		{"an indirect one does not", "eval/a.go", "fmt", "require (\n\ta.b/c v1.0.0 // indirect\n)\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			problems, err := check(fstest.MapFS{
				c.file:               {Data: []byte("package a\n\nimport _ \"" + c.imported + "\"\n")},
				"third_party/x/y.go": {Data: []byte("not Go")},
				"README.md":          {Data: []byte("")},
				"go.mod":             {Data: []byte("module m\n\ngo 1.26\n" + c.mod)},
			})
			require.NoError(t, err)
			if c.want == "" {
				assert.Empty(t, problems)
			} else {
				assert.Equal(t, []string{c.want}, problems)
			}
		})
	}
}
