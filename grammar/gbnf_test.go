package grammar_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/grammar"
	"github.com/sortes-llm/sortes/internal/grammartest"
)

func TestNotation(t *testing.T) {
	for _, c := range []struct {
		gbnf string
		yes  []string
		no   []string
	}{
		{`root ::= "ab"`, []string{"ab"}, []string{"", "a", "abc", "b"}},
		{`root ::= ""`, []string{""}, []string{"a"}},
		{"root ::= \"a\" | \n  \"b\" # a comment\n\n# another\n", []string{"a", "b"}, []string{"", "ab"}},
		{"root ::= a b\r\na ::= [x-z]\r\nb ::= [^x-z]", []string{"xa", "y\n", "zé", "z😀"}, []string{"xx", "ax", "x", "z\xff"}},
		{`root ::= .`, []string{"a", "\n", "é", "日", "😀"}, []string{"", "ab", "\x80", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80"}},
		{`root ::= [a-]+ [\]\[\\\-] "\"\\\n\t\r\x41\u00e9\U0001F600"`, []string{"a-]\"\\\n\t\rAé😀", "--\"\\\n\t\rAé😀"[:0] + "-[\"\\\n\t\rAé😀"}, []string{"b"}},
		{`root ::= "a"* "b"+ "c"?`, []string{"b", "aabbc", "bc"}, []string{"", "a", "ac", "bcc"}},
		{`root ::= "a"{2} "b"{1,3} "c"{2,}`, []string{"aabcc", "aabbbccccc"}, []string{"abcc", "aabbbbcc", "aabc"}},
		{`root ::= ("a" | "b" "c")* "d"`, []string{"d", "abcad"}, []string{"abd", "bd"}},
		{`root ::= ("a"?)* "b"`, []string{"b", "aaab"}, []string{"a"}},
		{`root ::= ("a"{2}){2} "b"{0}`, []string{"aaaa"}, []string{"aa", "aaab"}},
		{`root ::= "a"{0,3}{2}`, []string{"", "a", "aaaaaa"}, []string{"aaaaaaa"}},
		{`root ::= "(" root ")" | "x"`, []string{"x", "((x))"}, []string{"(x", "()"}},
		{"root ::= list\nlist ::= item (\",\" item)*\nitem ::= [0-9]+ | \"[\" list? \"]\"", []string{"1", "[1,[2,[]],3]"}, []string{"[", "[,]", "1,"}},
		{"root ::= \"a\" (\"b\" never | \"c\")? | \"d\" (\"e\" never)* \"f\"\nnever ::= \"x\" never", []string{"a", "ac", "df"}, []string{"ab", "de", "abx"}},
		// One rule that may be empty, reached in two ways at once.
		{"root ::= y \"1\" | y \"2\"\ny ::= e \"z\"\ne ::= \"c\"?", []string{"z1", "z2", "cz1", "cz2"}, []string{"z", "c1", "zz"}},
		{`root ::= [¡-ÿ] [一-龥] [😀-😂]`, []string{"é日😁"}, []string{"a日😁", "é日x"}},
		{"root ::= [\\uD700-\\uE001]", []string{"\ud7ff", "\ue000"}, []string{"\xed\xa0\x80", "\ue002"}},
	} {
		for _, text := range c.yes {
			is, _ := follows(t, c.gbnf, text)
			assert.True(t, is, "%s: %q", c.gbnf, text)
		}
		for _, text := range c.no {
			is, _ := follows(t, c.gbnf, text)
			assert.False(t, is, "%s: %q", c.gbnf, text)
		}
	}
}

// What never comes to an end is not begun.
func TestNoWayLeadsNowhere(t *testing.T) {
	const gbnf = "root ::= \"a\" (\"b\" never | \"c\")? | \"d\" (\"e\" never)* \"f\" | \"x\" never\nnever ::= \"x\" never"
	for _, text := range []string{"ab", "de", "x"} {
		_, prefix := follows(t, gbnf, text)
		assert.False(t, prefix, text)
	}
}

func TestErrorsNameThePlace(t *testing.T) {
	deep := strings.Repeat("(", 300) + `"a"` + strings.Repeat(")", 300)
	for gbnf, want := range map[string]string{
		``:                               `grammar: the grammar does not contain a rule "root"`,
		`foo ::= "a"`:                    `grammar: the grammar does not contain a rule "root"`,
		`root = "a"`:                     `grammar: line 1, column 6: expecting ::= after root, found '='`,
		"root ::= \"a\"\nx ::= é":        `grammar: line 2, column 7: expecting the end of the line, found 'é'`,
		`root ::= "a`:                    `grammar: line 1, column 10: this literal has no end`,
		`root ::= [a`:                    `grammar: line 1, column 10: this set of characters has no end`,
		`root ::= []`:                    `grammar: line 1, column 10: an empty set of characters`,
		`root ::= [z-a]`:                 `grammar: line 1, column 11: the range z-a is reversed`,
		`root ::= "\q"`:                  `grammar: line 1, column 11: unknown escape: want \t, \r, \n, \\, \", \[, \], \-, \xHH, \uHHHH or \UHHHHHHHH`,
		`root ::= "é\x4"`:                `grammar: line 1, column 12: expecting 2 hexadecimal digits`,
		`root ::= "\UFFFFFFFF"`:          `grammar: line 1, column 11: U+FFFFFFFF is no character`,
		`root ::= "\uD800"`:              `grammar: line 1, column 11: U+D800 is half of a surrogate pair and no character`,
		`root ::= ("a"`:                  `grammar: line 1, column 14: expecting ')', found the end`,
		`root ::= *`:                     `grammar: line 1, column 10: expecting an item before *`,
		`root ::= "a"{3,2}`:              `grammar: line 1, column 13: at most 2 times, and at least 3`,
		`root ::= "a"{x}`:                `grammar: line 1, column 14: expecting a number, found 'x'`,
		`root ::= "a"{1`:                 `grammar: line 1, column 15: expecting '}', found the end`,
		`root ::= "a"{0,1000000}`:        `grammar: line 1, column 16: 1000000 repetitions: want at most 262144`,
		"root ::= a\na ::= b":            `grammar: line 2, column 7: undefined rule b`,
		"root ::= \"a\"\nroot ::= \"b\"": `grammar: line 2, column 1: the rule root is defined twice`,
		`root ::= root "a" | "b"`:        `grammar: line 1, column 1: left recursion: the rule root may begin with itself`,
		"root ::= a? b\na ::= \"x\"\nb ::= (a*) c | \"y\"\nc ::= root": `grammar: line 3, column 1: left recursion: the rule b may begin with itself`,
		"root ::= b root \"z\" | \"x\"\nb ::= c c\nc ::= \"\" | \"y\"": `grammar: line 1, column 1: left recursion: the rule root may begin with itself`,
		`root ::= "a" root`:                      `grammar: line 1, column 1: the rule root never comes to an end`,
		`root ::= ` + deep:                       `grammar: line 1, column 210: more than 200 parentheses within each other`,
		`root ::= "a"` + strings.Repeat("*", 50): `grammar: line 1, column 23: more than 10 repetitions of repetitions`,
		"root ::= \"\xff\"":                      `grammar: the grammar is not UTF-8`,
		`root ::= <[x]>`:                         `grammar: line 1, column 10: expecting the number of a token, as in <[1234]>`,
		`root ::= !x`:                            `grammar: line 1, column 11: expecting '<', found 'x'`,
	} {
		_, err := grammar.Parse(gbnf, "root")
		assert.EqualError(t, err, want, "%.60s", gbnf)
	}
}

// None of these may crash, hang or take all memory.
func TestHostileGrammars(t *testing.T) {
	w := mixed()
	v := grammar.NewVocabulary(w)
	var chain strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&chain, "r%d ::= r%d \"a\" | r%d \"b\"\n", i, i+1, i+1)
	}
	for name, c := range map[string]struct{ gbnf, wants string }{
		"a huge repetition":         {`root ::= ([a-z]{0,60000} | "x" [0-9]{0,60000}){0,100000}`, "the grammar is too large"},
		"a large repetition":        {`root ::= ([a-z]{0,6000} | "x" [0-9]{0,6000}){0,10000} "."`, "too ambiguous"},
		"nested repetitions":        {`root ::= (("a"{0,500}){0,500}){0,500}`, "too ambiguous"},
		"too many copies":           {`root ::= "a"{0,200000} "b"{0,200000}`, "the grammar is too large"},
		"exponential left corners":  {"root ::= r0\n" + chain.String() + `r3000 ::= "c"`, ""},
		"the same twice, for ever":  {`root ::= ([ ] | [ ])* "x"`, ""},
		"nested stars":              {`root ::= ((("a"*)*)*)* "b"`, ""},
		"exponentially many stacks": {`root ::= "a" root "b" | "a" root "c" | "a" root "d" | "x"`, ""},
	} {
		g, err := grammar.Parse(c.gbnf, "root")
		require.NoError(t, err, name)
		m, err := g.Matcher(v)
		if err == nil {
			for range 40 { // "a", or what else may come
				var may []int32
				if may, err = m.Allow(nil, []int32{'a', ' ', 'c', 'x'}); err != nil || len(may) == 0 {
					break
				}
				if _, err = m.Allow(nil, everything(w)); err != nil {
					break
				}
				if err = m.Accept(may[0]); err != nil {
					break
				}
			}
		}
		if c.wants == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.wants, name)
		}
	}
	_, err := grammar.Parse(strings.Repeat("#", 5<<20), "root")
	require.ErrorContains(t, err, "5242880 bytes of grammar")
}

func everything(w words) []int32 {
	all := make([]int32, len(w))
	for i := range all {
		all[i] = int32(i)
	}
	return all
}

func TestMatcherState(t *testing.T) {
	w := letters("<tool>", "ab")
	tool, ab := int32(256), int32(257)
	v := grammar.NewVocabulary(w)
	g, err := grammar.Parse(`root ::= "ab" "c"?`, "root")
	require.NoError(t, err)
	m, err := g.Matcher(v)
	require.NoError(t, err)
	may := func(m *grammar.Matcher) []int32 {
		ids, err := m.Allow(nil, everything(w))
		require.NoError(t, err)
		return ids
	}
	assert.Equal(t, []int32{'a', ab}, may(m))
	assert.False(t, m.Complete())
	clone := m.Clone().(*grammar.Matcher)
	require.NoError(t, clone.Accept(ab))
	assert.Equal(t, []int32{'a', ab}, may(m), "a clone goes its own way")
	assert.Equal(t, []int32{'c', w.end()}, may(clone))
	assert.True(t, clone.Complete())
	require.NoError(t, clone.Accept(w.end()))
	assert.Empty(t, may(clone))
	require.ErrorIs(t, clone.Accept('c'), grammar.ErrRejected)

	for id, text := range map[int32]string{
		w.end(): "grammar: token 258, which ends the text before it is complete: the grammar does not allow this token",
		'b':     `grammar: token 98, "b": the grammar does not allow this token`,
		tool:    `grammar: token 256, "": the grammar does not allow this token`,
		-1:      "grammar: token -1: the grammar does not allow this token",
		1 << 20: "grammar: token 1048576: the grammar does not allow this token",
	} {
		n := m.Clone().(*grammar.Matcher)
		require.EqualError(t, n.Accept(id), text)
		require.EqualError(t, n.Accept('a'), text, "and stays so")
		_, err := n.Allow(nil, []int32{'a'})
		require.EqualError(t, err, text)
		assert.False(t, n.Complete())
	}
	ids, err := m.Allow([]int32{7}, []int32{-5, 'b', 'a', 1 << 20})
	require.NoError(t, err)
	assert.Equal(t, []int32{7, 'a'}, ids)
}

func TestTokensByName(t *testing.T) {
	w := letters("<tool>", "ab")
	tool, ab := int32(256), int32(257)
	v := grammar.NewVocabulary(w)
	matcher := func(gbnf string) *grammar.Matcher {
		g, err := grammar.Parse(gbnf, "root")
		require.NoError(t, err)
		m, err := g.Matcher(v)
		require.NoError(t, err)
		return m
	}
	for _, gbnf := range []string{`root ::= <tool> "a"`, `root ::= <[256]> "a"`} {
		m := matcher(gbnf)
		ids, err := m.Allow(nil, everything(w))
		require.NoError(t, err)
		assert.Equal(t, []int32{tool}, ids)
		require.NoError(t, m.Accept(tool))
		require.NoError(t, m.Accept('a'))
		assert.True(t, m.Complete())
	}
	m := matcher(`root ::= !<[97]> | "a" "b" | "x" <tool>`)
	ids, err := m.Allow(nil, everything(w))
	require.NoError(t, err)
	assert.Len(t, ids, 258, "all but the end; a as the beginning of ab")
	require.NoError(t, m.Accept(ab))
	assert.True(t, m.Complete())

	for gbnf, want := range map[string]string{
		`root ::= <none>`:  "grammar: <none> is no token of this vocabulary",
		`root ::= <[300]>`: "grammar: <[300]> is no token of this vocabulary, which has 259",
		`root ::= <end>`:   "grammar: <[258]> ends a text: it comes by itself where the grammar is complete, and cannot be named",
	} {
		g, err := grammar.Parse(gbnf, "root")
		require.NoError(t, err)
		_, err = g.Matcher(v)
		require.EqualError(t, err, want)
	}
}

// rounds is n, or 20 times that under `make stress`.
func rounds(n int) int {
	if os.Getenv("SORTES_STRESS") != "" {
		return 20 * n
	}
	return n
}

func TestRandomGrammarsAgainstAnIndependentRecogniser(t *testing.T) {
	w := mixed()
	v := grammar.NewVocabulary(w)
	ended, wrong := 0, 0
	for seed := range uint64(rounds(250)) {
		r := rand.New(rand.NewPCG(seed, 1))
		gbnf, is := grammartest.Grammar(r)
		g, err := grammar.Parse(gbnf, "root")
		if err != nil {
			require.ErrorContains(t, err, "left recursion", gbnf) // behind what may be empty, or inside parentheses
			continue
		}
		m, err := g.Matcher(v)
		require.NoError(t, err)
		for range 2 {
			text, end := write(t, m, w, r, 200)
			require.True(t, utf8.ValidString(text) || !end)
			if !end {
				continue
			}
			ended++
			require.True(t, is(text), "seed %d: %q is not of\n%s", seed, text, gbnf)

			// And the other way round: a text that differs a little.
			runes := []rune(text)
			if len(runes) == 0 || len(runes) > 60 {
				continue
			}
			i := r.IntN(len(runes))
			switch r.IntN(3) {
			case 0:
				runes = slices.Delete(runes, i, i+1)
			case 1:
				runes = slices.Insert(runes, i, []rune("ab(é1")[r.IntN(5)])
			default:
				runes[i] = []rune("ab)é1")[r.IntN(5)]
			}
			got, _ := follows(t, gbnf, string(runes))
			require.Equal(t, is(string(runes)), got, "seed %d: %q and\n%s", seed, string(runes), gbnf)
			if !got {
				wrong++
			}
		}
	}
	t.Logf("%d texts came to an end, %d changed ones were wrong", ended, wrong)
	require.Greater(t, ended, 200)
	require.Greater(t, wrong, 30)
}

// The cache is emptied when it is full: what is allowed stays the same.
func TestFullCache(t *testing.T) {
	w := mixed()
	g, err := grammar.Parse(`root ::= "{" ([a-z]{1,9} (":" root)? ","){0,3000} "}"`, "root")
	require.NoError(t, err)
	v := grammar.NewVocabulary(w)
	m, err := g.Matcher(v)
	require.NoError(t, err)
	fresh, err := g.Matcher(v)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(5, 5))
	for range 300 {
		grammar.Forget(m)
		a, err := m.Allow(nil, everything(w))
		require.NoError(t, err)
		b, err := fresh.Allow(nil, everything(w))
		require.NoError(t, err)
		require.Equal(t, b, a)
		id := a[r.IntN(len(a))]
		if id == w.end() {
			break
		}
		require.NoError(t, m.Accept(id))
		require.NoError(t, fresh.Accept(id))
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`root ::= "a"`, "root ::= ([a-z] | \"\\x41\"){2,3}* # c\n", "root ::= <[1]> !<x> . r\nr ::= \"b\"?", `root ::= "\`, `root ::= [`, `root ::= ("a"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, gbnf string) {
		g, err := grammar.Parse(gbnf, "root")
		if err != nil {
			return
		}
		m, err := g.Matcher(byteVocabulary)
		if err != nil {
			return
		}
		r := rand.New(rand.NewPCG(1, 1))
		for range 5 {
			may, err := m.Allow(nil, everything(letters()))
			if err != nil {
				require.ErrorIs(t, err, grammar.ErrAmbiguous)
				return
			}
			if len(may) == 0 {
				return // a token that does not exist
			}
			if m.Accept(may[r.IntN(len(may))]) != nil {
				t.Fatal("an allowed token is rejected")
			}
		}
	})
}
