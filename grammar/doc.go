// Package grammar says which tokens may come next so that a text follows a
// grammar or a JSON schema.
//
// [Parse] reads a grammar in GBNF, llama.cpp's notation; [ParseSchema] makes
// one of a JSON schema. [Grammar.Matcher] binds it to a vocabulary. The matcher
// is what sampler.Config's Constraint wants:
//
//	schema, err := grammar.ParseSchema(`{"type": "object", "properties": {"name": {"type": "string"}}}`)
//	...
//	rules, err := grammar.Parse(schema.GBNF(), "root")
//	...
//	matcher, err := rules.Matcher(grammar.NewVocabulary(model.Vocab()))
//	...
//	config.Constraint = matcher
//
// # How it works
//
// A grammar is compiled into a graph of nodes over bytes. The state of a text
// is the set of all ways to read it: the nodes it may be at, each with the
// rules that it may be in. States are found once and remembered with where each byte leads, so
// that a token is looked up about as fast as its bytes are read, and all tokens
// of a vocabulary, which share their beginnings, in about a millisecond, once
// for each state.
//
// The text is always a beginning of a valid one, also within a character that
// is cut over several tokens. Where nothing may come but the end, only the
// tokens that end a text are allowed.
//
// # Hostile grammars
//
// No grammar takes more than a bounded amount of memory and time. One that is
// too large, too deeply nested, left-recursive or without an end is refused by
// [Parse] or [Grammar.Matcher]; one with tens of thousands of ways to go on at
// once ends its text with [ErrAmbiguous].
//
// # Concurrency
//
// A Grammar, a Schema and a Vocabulary do not change. A [Matcher] belongs to
// one goroutine at a time; its clones may be used by others.
package grammar
