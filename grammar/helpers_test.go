package grammar_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/grammar"
)

// words is a vocabulary: its tokens are these texts, and the last one ends a
// text.
type words []string

func (w words) Size() int           { return len(w) }
func (w words) IsEOG(id int32) bool { return int(id) == len(w)-1 }
func (w words) Piece(id int32) []byte {
	if w.IsEOG(id) || w[id] == "<tool>" {
		return nil
	}
	return []byte(w[id])
}
func (w words) SpecialPiece(id int32) []byte { return []byte(w[id]) }

func (w words) end() int32 { return int32(len(w) - 1) }

// letters has a token for each byte.
func letters(more ...string) words {
	var w words
	for b := range 256 {
		w = append(w, string([]byte{byte(b)}))
	}
	return append(append(w, more...), "<end>")
}

// mixed is letters with words, pieces of JSON and cut characters.
func mixed() words {
	r := rand.New(rand.NewPCG(3, 3))
	w := letters("the", " the", "and", `"name"`, `": `, `", "`, `"}`, `{"`, `[{"`, "\": \"", "true", "false", "null", "123", "000", "  ", "\n  ", "    ",
		"-02-", ":00", "T1", "ab", "abc", "aaa", "aaaaaaaaaaaaaaaa", "é", "ü", "日本", "本語", "\xe6\x97", "\xa5", "\xf0\x9f", "\x98\x80", "}}", "]]", "\\n", "\\u00", "<tool>")
	for range 300 {
		b := make([]rune, 1+r.IntN(4))
		for i := range b {
			b[i] = []rune(`abcxyz019"{}[],:. -\éß`)[r.IntN(22)]
		}
		if s := string(b); !slices.Contains(w, s) {
			w = slices.Insert(w, len(w)-1, s)
		}
	}
	return w
}

var byteVocabulary = grammar.NewVocabulary(letters())

// follows reports whether a text is one of the grammar's, byte by byte, and
// whether it can become one.
func follows(t testing.TB, gbnf, text string) (is, prefix bool) {
	t.Helper()
	g, err := grammar.Parse(gbnf, "root")
	require.NoError(t, err, "%s", gbnf)
	m, err := g.Matcher(byteVocabulary)
	require.NoError(t, err, "%s", gbnf)
	for _, b := range []byte(text) {
		if m.Accept(int32(b)) != nil {
			return false, false
		}
	}
	return m.Complete(), true
}

// write lets a matcher write a text of at most so many tokens: any that are
// allowed, with a liking for those that close something. It returns the text
// and whether it has ended.
func write(t testing.TB, m *grammar.Matcher, w words, r *rand.Rand, most int) (text string, ended bool) {
	t.Helper()
	m = m.Clone().(*grammar.Matcher)
	all := make([]int32, len(w))
	for i := range all {
		all[i] = int32(i)
	}
	for range most {
		may, err := m.Allow(nil, all)
		require.NoError(t, err)
		require.NotEmpty(t, may, "a way that leads nowhere: %q", text)
		require.Equal(t, m.Complete(), slices.Contains(may, w.end()))
		if m.Complete() && r.IntN(3) == 0 || len(may) == 1 && may[0] == w.end() {
			require.NoError(t, m.Accept(w.end()))
			rest, err := m.Allow(nil, all)
			require.NoError(t, err)
			require.Empty(t, rest, "nothing follows the end")
			return text, true
		}
		may = slices.DeleteFunc(may, func(id int32) bool { return id == w.end() })
		id := may[r.IntN(len(may))]
		if closers := slices.DeleteFunc(slices.Clone(may), func(id int32) bool {
			return w[id] != `"` && w[id] != "}" && w[id] != "]" && w[id] != ":" && w[id] != `"}`
		}); len(closers) > 0 && r.IntN(2) == 0 {
			id = closers[r.IntN(len(closers))]
		}
		alone, err := m.Clone().(*grammar.Matcher).Allow(nil, []int32{id})
		require.NoError(t, err)
		require.Len(t, alone, 1, "a token alone and among all")
		require.NoError(t, m.Accept(id))
		text += string(w.Piece(id))
	}
	return text, false
}
