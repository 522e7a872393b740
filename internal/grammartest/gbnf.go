// Package grammartest makes random grammars and JSON schemas for tests.
package grammartest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Grammar makes a grammar in GBNF, and a function that reports whether a text
// is one of its. That is an implementation of its own: it reads the tree that
// the grammar was written from, tries everything, and knows nothing of bytes,
// tokens or states. The grammar may be left-recursive, which is an error of
// those who read it.
func Grammar(r *rand.Rand) (gbnf string, is func(text string) bool) {
	n := 1 + r.IntN(4)
	c := &recogniser{}
	gbnf = "root ::= r0\n"
	for i := range n {
		f := randomForm(r, i, n, 3)
		c.rules = append(c.rules, f)
		gbnf += fmt.Sprintf("r%d ::= %s\n", i, f)
	}
	return gbnf, func(text string) bool {
		c.text, c.memo = []rune(text), map[[2]int][]int{}
		return slices.Contains(c.ends(form{op: "ref"}, 0), len(c.text))
	}
}

type form struct {
	op       string // "text", "set", "ref", "seq", "alt", "times"
	text     string
	set      func(r rune) bool
	notation string
	rule     int
	sub      []form
	min, max int
}

func (f form) String() string {
	switch f.op {
	case "text", "set":
		return f.notation
	case "ref":
		return "r" + strconv.Itoa(f.rule)
	case "times":
		switch [2]int{f.min, f.max} {
		case [2]int{0, -1}:
			return f.sub[0].String() + "*"
		case [2]int{1, -1}:
			return f.sub[0].String() + "+"
		case [2]int{0, 1}:
			return f.sub[0].String() + "?"
		}
		return fmt.Sprintf("%s{%d,%d}", f.sub[0], f.min, f.max)
	}
	parts := make([]string, len(f.sub))
	for i, s := range f.sub {
		parts[i] = s.String()
	}
	return "(" + strings.Join(parts, map[string]string{"seq": " ", "alt": " | "}[f.op]) + ")"
}

// randomForm makes a tree of which rule is the number: it refers to later rules,
// and to any behind a character.
func randomForm(r *rand.Rand, rule, rules, depth int) form {
	n := r.IntN(7)
	if depth == 0 {
		n = r.IntN(3)
	}
	sub := func() form { return randomForm(r, rule, rules, depth-1) }
	switch n {
	case 0:
		text := []string{"a", "ab", "", "é", "日本", `"`, "\\", "😀", "xyz", "\n"}[r.IntN(10)]
		return form{op: "text", text: text, notation: strings.ReplaceAll(strconv.QuoteToGraphic(text), `\U0001f600`, "😀")}
	case 1:
		sets := []form{
			{notation: "[a-c]", set: func(r rune) bool { return r >= 'a' && r <= 'c' }},
			{notation: "[^a-c\\n]", set: func(r rune) bool { return (r < 'a' || r > 'c') && r != '\n' }},
			{notation: ".", set: func(rune) bool { return true }},
			{notation: "[é-日0-9]", set: func(r rune) bool { return r >= 'é' && r <= '日' || r >= '0' && r <= '9' }},
			{notation: "[\\U0001F5FF-\\U0001F700]", set: func(r rune) bool { return r >= 0x1f5ff && r <= 0x1f700 }},
		}
		f := sets[r.IntN(len(sets))]
		f.op = "set"
		return f
	case 2:
		if rule+1 < rules {
			return form{op: "ref", rule: rule + 1 + r.IntN(rules-rule-1)}
		}
		return form{op: "text", text: "z", notation: `"z"`}
	case 3:
		return form{op: "seq", sub: []form{sub(), sub()}}
	case 4:
		return form{op: "alt", sub: []form{sub(), sub()}}
	case 5: // recursion behind a character, with a way out
		inner := form{op: "seq", sub: []form{{op: "text", text: "(", notation: `"("`}, {op: "ref", rule: r.IntN(rules)}, {op: "text", text: ")", notation: `")"`}}}
		return form{op: "alt", sub: []form{inner, sub()}}
	}
	bounds := [][2]int{{0, -1}, {1, -1}, {0, 1}, {0, 3}, {2, 3}, {2, 2}}[r.IntN(6)]
	return form{op: "times", sub: []form{sub()}, min: bounds[0], max: bounds[1]}
}

type recogniser struct {
	rules []form
	text  []rune
	memo  map[[2]int][]int
}

// ends returns where a form that begins at i may end.
func (c *recogniser) ends(f form, i int) []int {
	switch f.op {
	case "text":
		n := utf8.RuneCountInString(f.text)
		if i+n <= len(c.text) && string(c.text[i:i+n]) == f.text {
			return []int{i + n}
		}
	case "set":
		if i < len(c.text) && f.set(c.text[i]) {
			return []int{i + 1}
		}
	case "ref":
		key := [2]int{f.rule, i}
		known, ok := c.memo[key]
		if !ok {
			c.memo[key] = nil
			known = c.ends(c.rules[f.rule], i)
			c.memo[key] = known
		}
		return known
	case "seq":
		at := []int{i}
		for _, s := range f.sub {
			at = c.each(at, s)
		}
		return at
	case "alt":
		var at []int
		for _, s := range f.sub {
			at = union(at, c.ends(s, i))
		}
		return at
	case "times":
		at := []int{i}
		for range f.min {
			at = c.each(at, f.sub[0])
		}
		reached := at
		for n := f.min; f.max < 0 || n < f.max; n++ {
			at = c.each(at, f.sub[0])
			more := union(reached, at)
			if len(more) == len(reached) && f.max < 0 {
				break
			}
			reached = more
		}
		return reached
	}
	return nil
}

func (c *recogniser) each(at []int, f form) []int {
	var all []int
	for _, i := range at {
		all = union(all, c.ends(f, i))
	}
	return all
}

func union(a, b []int) []int {
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}
