// Command lint checks the rules of this repository that gofmt and go vet do
// not know: which package may import which, that C and unsafe stay in llama,
// and that every dependency is accounted for in the README. It reads the
// sources of every build tag and needs nothing built.
//
//	go run ./scripts/lint
package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/sortes-llm/sortes/"

// mayImport says what each package of the module may import of the module,
// beside internal/..., and which modules from outside. A package in a folder
// below follows the folder's rule. "*" is everything.
var mayImport = map[string][]string{
	"eval":        {},
	"sampler":     {"github.com/klauspost/cpuid"},
	"grammar":     {"github.com/santhosh-tekuri/jsonschema"},
	"chat":        {"github.com/ardanlabs/jinja"},
	"speculative": {"eval", "sampler"},
	"generate":    {"eval", "sampler", "speculative"},
	"llama":       {"eval", "github.com/klauspost/cpuid"},
	"internal":    {"eval"},
	"cmd":         {"*"},
	"bench":       {"*"},
	"scripts":     {"*"},
	"examples":    {"*"},
}

// testsMayImport is allowed in test files in addition.
var testsMayImport = []string{
	"github.com/stretchr/testify", "pgregory.net/rapid", "go.uber.org/goleak", "gonum.org/v1/gonum",
	"github.com/santhosh-tekuri/jsonschema",
	"grammar", // against llama.cpp's own, in llama
}

// cPackages may import "C" and unsafe.
var cPackages = []string{"llama"}

func main() {
	problems, err := check(os.DirFS("."))
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(1)
	}
	for _, p := range problems {
		fmt.Fprintln(os.Stderr, p)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

// check returns a line for each breach of the rules in the module at root.
func check(root fs.FS) ([]string, error) {
	var problems []string
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || name == "third_party" || d.Name() == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if problem := checkImport(name, imported); problem != "" {
				problems = append(problems, problem)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	unexplained, err := checkDependencies(root)
	return append(problems, unexplained...), err
}

// checkImport says what is wrong with an import of the file, or nothing.
func checkImport(file, imported string) string {
	folder := path.Dir(file)
	top, _, _ := strings.Cut(folder, "/")
	if imported == "C" || imported == "unsafe" {
		if !slices.Contains(cPackages, top) {
			return fmt.Sprintf("%s: imports %q, which only %s may", file, imported, strings.Join(cPackages, ", "))
		}
		return ""
	}
	allowed, known := mayImport[top]
	if !known {
		return fmt.Sprintf("%s: package %s has no rule in scripts/lint", file, folder)
	}
	if strings.HasSuffix(file, "_test.go") {
		allowed = slices.Concat(allowed, testsMayImport)
	}
	if !strings.Contains(strings.Split(imported, "/")[0], ".") || slices.Contains(allowed, "*") {
		return "" // the standard library, or all is allowed
	}
	wanted, ours := strings.CutPrefix(imported, module)
	if ours && (within(wanted, top) || within(wanted, "internal")) {
		return ""
	}
	for _, a := range allowed {
		if within(wanted, a) {
			return ""
		}
	}
	return fmt.Sprintf("%s: %s may not import %s (the rules are in scripts/lint)", file, top, imported)
}

// within reports whether an import path is dir or lies below it.
func within(imported, dir string) bool {
	return imported == dir || strings.HasPrefix(imported, dir+"/")
}

// checkDependencies wants a word in the README on every module that go.mod
// requires for the module's own sake.
func checkDependencies(root fs.FS) ([]string, error) {
	mod, err := fs.ReadFile(root, "go.mod")
	if err != nil {
		return nil, err
	}
	readme, err := fs.ReadFile(root, "README.md")
	if err != nil {
		return nil, err
	}
	var problems []string
	for line := range strings.Lines(string(mod)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) < 2 || !strings.Contains(fields[0], ".") || strings.Contains(line, "// indirect") {
			continue
		}
		if !strings.Contains(string(readme), fields[0]) {
			problems = append(problems, fmt.Sprintf("go.mod: the README does not say what %s is for", fields[0]))
		}
	}
	return problems, nil
}
