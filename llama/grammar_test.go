package llama

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/grammar"
)

func nativeOf(t testing.TB, v *Vocab, gbnf string) *nativeGrammar {
	t.Helper()
	g, err := newNativeGrammar(v, gbnf, "root", "")
	require.NoError(t, err)
	t.Cleanup(g.close)
	return g
}

// What llama.cpp's grammar does to the process of who does not check first.
func TestFenceGrammar(t *testing.T) {
	v := realModel(t).Vocab()
	tokens, err := v.Tokenize("a b", TokenizeOptions{})
	require.NoError(t, err)
	a, end := tokens[0], v.EndTokens()[0]
	const gbnf = `root ::= "aa"`
	b, err := v.Tokenize("b", TokenizeOptions{})
	require.NoError(t, err)

	t.Run("a token that the grammar does not allow", func(t *testing.T) {
		g := nativeOf(t, v, gbnf)
		require.EqualError(t, g.accept(b[0]), fmt.Sprintf("llama: token %d: the grammar does not allow it", b[0]))
		require.NoError(t, g.accept(a), "the check changes nothing")
		require.ErrorContains(t, g.acceptRaw(b[0]), "llama: accept a token: Unexpected empty grammar stack after accepting piece: b")
		require.ErrorIs(t, g.accept(a), errGrammarOver, "it is dead")
		_, err := g.allow(nil, []int32{a})
		require.ErrorIs(t, err, errGrammarOver)
		_, err = g.clone()
		require.ErrorIs(t, err, errGrammarOver)
	})
	t.Run("an end where none may be", func(t *testing.T) {
		g := nativeOf(t, v, gbnf)
		require.ErrorContains(t, g.accept(end), "the grammar does not allow it")
		requireAssertion(t, g.acceptRaw(end), "fatal error")
		require.ErrorIs(t, g.accept(a), errGrammarOver)

		done := nativeOf(t, v, gbnf)
		require.NoError(t, done.accept(a))
		require.NoError(t, done.accept(a))
		require.NoError(t, done.accept(end))
	})
	t.Run("a token outside the vocabulary", func(t *testing.T) {
		g := nativeOf(t, v, gbnf)
		for _, id := range []int32{-1, int32(v.Size())} {
			require.Equal(t, "llama: token outside the vocabulary", panicText(func() { _ = g.accept(id) }))
			n, err := g.clone()
			require.NoError(t, err)
			require.ErrorContains(t, n.acceptRaw(id), "vector::_M_range_check")
			n, err = g.clone()
			require.NoError(t, err)
			_, err = n.allowRaw(nil, []int32{id})
			require.ErrorContains(t, err, "vector::_M_range_check")
		}
		require.NoError(t, g.accept(a))
	})
	t.Run("a bad regular expression of a lazy grammar", func(t *testing.T) {
		_, err := newNativeGrammar(v, gbnf, "root", "[")
		require.ErrorContains(t, err, "llama: grammar: ")
		g, err := newNativeGrammar(v, gbnf, "root", "b(a)")
		require.NoError(t, err)
		defer g.close()
		require.NoError(t, g.accept(b[0]), "it waits")
		require.NoError(t, g.accept(a), "which is the beginning now")
		may, err := g.allow(nil, []int32{a, b[0], end})
		require.NoError(t, err)
		assert.Equal(t, []int32{a}, may)
	})
	t.Run("no grammar", func(t *testing.T) {
		// Package grammar says why; llama.cpp writes it to standard error.
		_, err := newNativeGrammar(v, `root ::= "a"`, "other", "")
		requireCode(t, err, 0, "grammar does not contain a 'other' symbol")
		_, err = newNativeGrammar(v, `root ::= root "a" | "b"`, "root", "")
		requireCode(t, err, 0, "left recursion detected")
	})
	// And the same asked of package grammar.
	rules, err := grammar.Parse(gbnf, "root")
	require.NoError(t, err)
	words := grammar.NewVocabulary(v)
	for _, id := range []int32{b[0], end, -1, int32(v.Size())} {
		m, err := rules.Matcher(words)
		require.NoError(t, err)
		require.ErrorIs(t, m.Accept(id), grammar.ErrRejected)
	}
}

// Package grammar and llama.cpp allow the same tokens, step by step, on a real
// vocabulary. What differs by intent is left out: control tokens, which
// llama.cpp takes for their text, the byte 0, which it never allows, and bytes
// that are no UTF-8, which it may allow, or forbid where a character that
// begins so is excluded.
func TestGrammarAgainstLlamaCPP(t *testing.T) {
	v := realModel(t).Vocab()
	words := grammar.NewVocabulary(v)
	var all []int32
	for id := range int32(v.Size()) {
		if p := v.Piece(id); len(p) > 0 && !bytes.ContainsRune(p, 0) || v.IsEOG(id) {
			all = append(all, id)
		}
	}
	schema, err := grammar.ParseSchema(`{"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "number", "minimum": -3, "maximum": 12.5},
		"d": {"type": "string", "format": "date"}, "l": {"items": {"type": ["boolean", "null"]}, "type": "array"}}, "required": ["n", "l"], "additionalProperties": true}`)
	require.NoError(t, err)
	for name, gbnf := range map[string]string{
		"schema":     schema.GBNF(),
		"arithmetic": "root ::= (expr \"=\" term \"\\n\")+\nexpr ::= term ([-+*/] term)*\nterm ::= [0-9]+ | [a-z] [a-z0-9_]* | \"(\" expr \")\"",
		"characters": `root ::= [^\n\x41-\x5A]{3,20} "." | [а-я]+ "!" | .{2,5} "é"`,
		"choice":     `root ::= ("yes" | "no" | "maybe") (", " ("yes" | "no"))? "."`,
		"lists":      "root ::= item+\nitem ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"",
	} {
		rules, err := grammar.Parse(gbnf, "root")
		require.NoError(t, err, name)
		start, err := rules.Matcher(words)
		require.NoError(t, err, name)
		native := nativeOf(t, v, gbnf)
		r := rand.New(rand.NewPCG(9, 9))
		text := ""
		for step := range 12 {
			want, err := native.allow(nil, all)
			require.NoError(t, err)
			got, err := start.Allow(nil, all)
			require.NoError(t, err)
			theirs := map[int32]bool{}
			for _, id := range want {
				theirs[id] = true
			}
			var both []int32
			for _, id := range got {
				if theirs[id] && !v.IsEOG(id) {
					both = append(both, id)
				}
				if !theirs[id] { // half a character that may become one of [^...]
					require.False(t, utf8.Valid(v.Piece(id)), "%s, step %d: llama.cpp forbids token %d %q after %q", name, step, id, v.Piece(id), text)
				}
				delete(theirs, id)
			}
			for id := range theirs { // bytes that begin no character
				require.False(t, utf8.Valid(v.Piece(id)), "%s, step %d: only llama.cpp allows token %d %q after %q", name, step, id, v.Piece(id), text)
			}
			if len(both) == 0 {
				break
			}
			id := both[r.IntN(len(both))]
			text += string(v.Piece(id))
			require.NoError(t, native.accept(id))
			require.NoError(t, start.Accept(id))
		}
	}
}

// Inside a JSON string, where nearly all tokens are allowed: the time of one
// candidate, of all tokens for the first time and again, and of a token more.
func BenchmarkGrammar(b *testing.B) {
	v := realModel(b).Vocab()
	schema, err := grammar.ParseSchema(`{"type": "string"}`)
	require.NoError(b, err)
	all := make([]int32, v.Size())
	for id := range all {
		all[id] = int32(id)
	}
	quote, err := v.Tokenize("\"", TokenizeOptions{})
	require.NoError(b, err)
	word, err := v.Tokenize("word", TokenizeOptions{})
	require.NoError(b, err)
	rules, err := grammar.Parse(schema.GBNF(), "root")
	require.NoError(b, err)
	words := grammar.NewVocabulary(v)
	matcher := func(b *testing.B) *grammar.Matcher {
		m, err := rules.Matcher(words)
		require.NoError(b, err)
		require.NoError(b, m.Accept(quote[0]))
		return m
	}
	_, err = matcher(b).Allow(nil, all) // sorts the vocabulary
	require.NoError(b, err)
	native := nativeOf(b, v, schema.GBNF())
	require.NoError(b, native.accept(quote[0]))

	for name, tokens := range map[string][]int32{"one": word, "all": all} {
		b.Run(name+"/ours", func(b *testing.B) {
			m := matcher(b)
			var may []int32
			for b.Loop() {
				may, _ = m.Allow(may[:0], tokens)
			}
		})
		b.Run(name+"/llama.cpp", func(b *testing.B) {
			var may []int32
			for b.Loop() {
				may, _ = native.allow(may[:0], tokens)
			}
		})
	}
	b.Run("all for the first time/ours", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			m := matcher(b)
			b.StartTimer()
			_, _ = m.Allow(nil, all)
		}
	})
	b.Run("clone and accept/ours", func(b *testing.B) {
		m := matcher(b)
		for b.Loop() {
			_ = m.Clone().(*grammar.Matcher).Accept(word[0])
		}
	})
	b.Run("clone and accept/llama.cpp", func(b *testing.B) {
		for b.Loop() {
			n, _ := native.clone()
			_ = n.acceptRaw(word[0])
			n.close()
		}
	})
}
