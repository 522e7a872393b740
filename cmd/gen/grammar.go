package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/sortes-llm/sortes/grammar"
	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/sampler"
)

// grammarOptions are what the text must follow: one of the first four.
type grammarOptions struct {
	text, file         string // GBNF
	schema, schemaFile string // JSON schema

	flag    string // the one that was given
	rules   *grammar.Grammar
	json    *grammar.Schema  // nil for a grammar in GBNF
	matcher *grammar.Matcher // at the beginning of the text
}

// grammarFlags name what the text must follow. One of them may be given.
var grammarFlags = []string{"--grammar", "--grammar-file", "--json-schema", "--json-schema-file"}

// nonEmpty is a text that must not be empty.
func nonEmpty(p *string, want string) value {
	v := textValue(p)
	v.set = func(text string) error {
		if strings.TrimSpace(text) == "" {
			return errors.New(want)
		}
		*p = text
		return nil
	}
	return v
}

// resolveGrammar finds the flag that was given, of which there may be one.
func (o *options) resolveGrammar() error {
	given := 0
	for _, flag := range grammarFlags {
		if o.given(flag) {
			o.grammar.flag = flag
			given++
		}
	}
	switch {
	case given > 1:
		return badUsage("more than one grammar: give one of --grammar, --grammar-file, -j and -jf")
	case given > 0 && o.ignoreEOS:
		return badUsage("--ignore-eos with %s: the grammar says where the text ends; give one of them", o.grammar.flag)
	}
	return nil
}

// readGrammar reads the grammar or the schema.
func (a *app) readGrammar(g *grammarOptions) error {
	text := g.text + g.schema
	if name := g.file + g.schemaFile; name != "" {
		f, err := os.Open(name)
		if err == nil {
			defer f.Close()
			var read []byte
			read, err = a.readAll(f)
			text = string(read)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", g.flag, name, withoutPath(err))
		}
	}
	var err error
	switch {
	case g.schema+g.schemaFile != "":
		if g.json, err = grammar.ParseSchema(text); err == nil {
			g.rules, err = grammar.Parse(g.json.GBNF(), "root")
		}
	case g.text+g.file != "":
		g.rules, err = grammar.Parse(text, "root")
	}
	if err != nil {
		return badUsage("%s: %s", g.flag, strings.TrimPrefix(err.Error(), "grammar: "))
	}
	return nil
}

// bind puts the grammar, if there is one, before the chain.
func (g *grammarOptions) bind(v *llama.Vocab, c *sampler.Config) (err error) {
	if g.rules == nil {
		return nil
	}
	if g.matcher, err = g.rules.Matcher(grammar.NewVocabulary(v)); err != nil {
		return badUsage("%s: %s", g.flag, strings.TrimPrefix(err.Error(), "grammar: "))
	}
	c.Constraint = g.matcher
	return nil
}

// complete reports whether the tokens are a whole text of the grammar; nil
// without one.
func (g *grammarOptions) complete(ids []int32) *bool {
	if g.matcher == nil {
		return nil
	}
	m := g.matcher.Clone().(*grammar.Matcher)
	for _, id := range ids {
		_ = m.Accept(id) // what it refuses is not complete
	}
	complete := m.Complete()
	return &complete
}

// validate checks a text that has come to its end against the schema, by
// another way than the grammar.
func (g *grammarOptions) validate(text []byte) error {
	if g.json == nil {
		return nil
	}
	if err := g.json.Validate(text); err != nil {
		return fmt.Errorf("the text is not valid against the schema of %s: %w", g.flag, err)
	}
	return nil
}
