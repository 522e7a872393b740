package grammar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Grammar is a set of rules in GBNF, llama.cpp's notation. It is made by
// [Parse], does not change, and is safe for concurrent use.
type Grammar struct {
	rules []rule
	root  int
}

// A rule is a name and its alternatives.
type rule struct {
	name string
	at   int // byte of the source where it, or else its first use, stands
	body []sequence
	set  bool // it has a definition
}

// A sequence is one alternative: items one behind the other.
type sequence []item

// An item is an element and how often it stands there.
type item struct {
	element
	min, max int // max is -1 for no bound
}

type kind uint8

const (
	kindText  kind = iota // a literal
	kindClass             // one character of a set
	kindRule              // a reference to a rule
	kindGroup             // alternatives in parentheses
	kindToken             // a token by its number or its text
)

type element struct {
	kind  kind
	at    int
	text  string
	class []runeRange
	rule  int
	group []sequence
	token tokenRef
}

// A tokenRef is <[id]> or <text>, or one of them after an exclamation mark:
// any token but that.
type tokenRef struct {
	id   int32  // where text is empty
	text string // the token's text with its angle brackets
	not  bool
}

type runeRange struct{ lo, hi rune }

// Limits of a grammar. They are far above what grammars need and keep a
// hostile one from taking memory and time.
const (
	maxSource  = 4 << 20
	maxNesting = 200
	maxNodes   = 1 << 18 // of the compiled grammar
)

// A SyntaxError says what is wrong with a grammar, and where.
type SyntaxError struct {
	Line, Column int // from 1; the column counts characters
	Message      string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("grammar: line %d, column %d: %s", e.Line, e.Column, e.Message)
}

// Parse reads a grammar. The texts that it describes are those of the rule
// called root. Errors of the text are a *[SyntaxError].
//
// The notation is that of llama.cpp (grammars/README.md there), read more
// strictly where llama.cpp takes something else than what is written: a rule
// that is defined twice, an empty or reversed set of characters, a left
// recursion through rules that may be empty are errors, and a number of
// repetitions is never rounded up to infinity. A literal and a set stand for
// characters: a text is valid UTF-8 in any case.
func Parse(gbnf, root string) (*Grammar, error) {
	p := &parser{src: gbnf, index: map[string]int{}}
	if len(gbnf) > maxSource {
		return nil, fmt.Errorf("grammar: %d bytes of grammar: want at most %d", len(gbnf), maxSource)
	}
	if !utf8.ValidString(gbnf) {
		return nil, fmt.Errorf("grammar: the grammar is not UTF-8")
	}
	if err := p.parse(); err != nil {
		return nil, err
	}
	g := &Grammar{rules: p.rules}
	i, ok := p.index[root]
	if !ok || !g.rules[i].set {
		return nil, fmt.Errorf("grammar: the grammar does not contain a rule %q", root)
	}
	g.root = i
	return g, p.check(g)
}

type parser struct {
	src   string
	pos   int
	depth int
	rules []rule
	index map[string]int
	err   error
}

// fail notes an error at a byte of the source; parsing ends.
func (p *parser) fail(at int, format string, args ...any) {
	if p.err != nil {
		return
	}
	before := p.src[:at]
	line := strings.Count(before, "\n") + 1
	before = before[strings.LastIndexByte(before, '\n')+1:]
	p.err = &SyntaxError{line, utf8.RuneCountInString(before) + 1, fmt.Sprintf(format, args...)}
}

// peek returns the next byte, 0 at the end or after an error.
func (p *parser) peek() byte {
	if p.err != nil || p.pos >= len(p.src) {
		return 0
	}
	return p.src[p.pos]
}

// found names what stands at the position, for messages.
func (p *parser) found() string {
	if p.pos >= len(p.src) {
		return "the end"
	}
	r, _ := utf8.DecodeRuneInString(p.src[p.pos:])
	if r == '\n' || r == '\r' {
		return "the end of the line"
	}
	return strconv.QuoteRune(r)
}

// space skips blanks and comments, and line ends where they mean nothing.
func (p *parser) space(lines bool) {
	for {
		switch c := p.peek(); {
		case c == ' ' || c == '\t' || lines && (c == '\r' || c == '\n'):
			p.pos++
		case c == '#':
			for c := p.peek(); c != 0 && c != '\r' && c != '\n'; c = p.peek() {
				p.pos++
			}
		default:
			return
		}
	}
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-'
}

func (p *parser) word() string {
	start := p.pos
	for isWord(p.peek()) {
		p.pos++
	}
	if p.pos == start {
		p.fail(start, "expecting the name of a rule, found %s", p.found())
	}
	return p.src[start:p.pos]
}

func (p *parser) parse() error {
	for p.space(true); p.err == nil && p.pos < len(p.src); p.space(true) {
		p.rule()
	}
	return p.err
}

func (p *parser) rule() {
	at := p.pos
	name := p.word()
	p.space(false)
	if p.err == nil && !strings.HasPrefix(p.src[p.pos:], "::=") {
		p.fail(p.pos, "expecting ::= after %s, found %s", name, p.found())
		return
	}
	p.pos += len("::=")
	p.space(true)
	body := p.alternatives(false)
	switch c := p.peek(); {
	case p.err != nil:
		return
	case p.pos < len(p.src) && c != '\n' && c != '\r':
		p.fail(p.pos, "expecting the end of the line, found %s", p.found())
		return
	}
	i := p.ref(name, at)
	if p.rules[i].set {
		p.fail(at, "the rule %s is defined twice", name)
		return
	}
	p.rules[i].at, p.rules[i].body, p.rules[i].set = at, body, true
}

// ref returns the number of the rule of a name.
func (p *parser) ref(name string, at int) int {
	i, ok := p.index[name]
	if !ok {
		i = len(p.rules)
		p.index[name] = i
		p.rules = append(p.rules, rule{name: name, at: at})
	}
	return i
}

func (p *parser) alternatives(nested bool) []sequence {
	if p.depth++; p.depth > maxNesting {
		p.fail(p.pos, "more than %d parentheses within each other", maxNesting)
	}
	defer func() { p.depth-- }()
	all := []sequence{p.sequence(nested)}
	for p.peek() == '|' {
		p.pos++
		p.space(true)
		all = append(all, p.sequence(nested))
	}
	return all
}

func (p *parser) sequence(nested bool) sequence {
	var items sequence
	repeats := 0 // behind the last item
	for {
		at := p.pos
		e := element{at: at}
		switch c := p.peek(); {
		case c == '"':
			e.kind, e.text = kindText, p.literal()
		case c == '[':
			e.kind, e.class = kindClass, p.class()
		case c == '.':
			p.pos++
			e.kind, e.class = kindClass, anyRune
		case c == '<' || c == '!':
			e.kind, e.token = kindToken, p.token()
		case c == '(':
			p.pos++
			p.space(true)
			e.kind, e.group = kindGroup, p.alternatives(true)
			if p.err == nil && p.peek() != ')' {
				p.fail(p.pos, "expecting ')', found %s", p.found())
			}
			p.pos++
		case isWord(c):
			e.kind = kindRule
			e.rule = p.ref(p.word(), at)
		case c == '*' || c == '+' || c == '?' || c == '{':
			if len(items) == 0 {
				p.fail(at, "expecting an item before %c", c)
				return nil
			}
			if repeats++; repeats > 10 {
				p.fail(at, "more than 10 repetitions of repetitions")
			}
			p.repeat(&items[len(items)-1])
			p.space(nested)
			continue
		default:
			return items
		}
		p.space(nested)
		items = append(items, item{e, 1, 1})
		repeats = 0
	}
}

// repeat reads what says how often an item stands there. What is repeated
// already becomes a group first.
func (p *parser) repeat(x *item) {
	at := p.pos
	low, high := 0, -1
	switch p.peek() {
	case '+':
		low = 1
	case '?':
		high = 1
	case '{':
		p.pos++
		p.space(true)
		low = p.number()
		high = low
		p.space(true)
		if p.peek() == ',' {
			p.pos++
			p.space(true)
			high = -1
			if c := p.peek(); '0' <= c && c <= '9' {
				high = p.number()
				p.space(true)
			}
		}
		if p.err == nil && p.peek() != '}' {
			p.fail(p.pos, "expecting '}', found %s", p.found())
		}
	}
	p.pos++
	if high >= 0 && high < low {
		p.fail(at, "at most %d times, and at least %d", high, low)
	}
	if x.min != 1 || x.max != 1 {
		x.element = element{kind: kindGroup, at: x.at, group: []sequence{{*x}}}
	}
	x.min, x.max = low, high
}

func (p *parser) number() int {
	start := p.pos
	for c := p.peek(); '0' <= c && c <= '9'; c = p.peek() {
		p.pos++
	}
	n, err := strconv.Atoi(p.src[start:p.pos])
	switch {
	case start == p.pos:
		p.fail(start, "expecting a number, found %s", p.found())
	case err != nil || n > maxNodes:
		p.fail(start, "%s repetitions: want at most %d", p.src[start:p.pos], maxNodes)
	}
	return n
}

func (p *parser) literal() string {
	start := p.pos
	var text strings.Builder
	for p.pos++; p.err == nil && p.peek() != '"'; {
		if p.pos >= len(p.src) {
			p.fail(start, "this literal has no end")
			return ""
		}
		at := p.pos
		r := p.char()
		if r >= 0xd800 && r <= 0xdfff {
			p.fail(at, "U+%X is half of a surrogate pair and no character", r)
		}
		text.WriteRune(r)
	}
	p.pos++
	return text.String()
}

// anyRune is every character that UTF-8 can spell.
var anyRune = []runeRange{{0, 0xd7ff}, {0xe000, utf8.MaxRune}}

func (p *parser) class() []runeRange {
	start := p.pos
	p.pos++
	not := p.peek() == '^'
	if not {
		p.pos++
	}
	var set []runeRange
	for p.err == nil && p.peek() != ']' {
		if p.pos >= len(p.src) {
			p.fail(start, "this set of characters has no end")
			return nil
		}
		at := p.pos
		r := runeRange{lo: p.char()}
		r.hi = r.lo
		if p.peek() == '-' && !strings.HasPrefix(p.src[p.pos:], "-]") {
			p.pos++
			if p.pos >= len(p.src) {
				p.fail(start, "this set of characters has no end")
				return nil
			}
			r.hi = p.char()
		}
		if r.hi < r.lo {
			p.fail(at, "the range %s is reversed", p.src[at:min(p.pos, len(p.src))])
		}
		set = append(set, r)
	}
	if p.err == nil && len(set) == 0 {
		p.fail(start, "an empty set of characters")
	}
	p.pos++
	set = normalise(set)
	if not {
		set = complement(set)
	}
	if p.err == nil && len(set) == 0 {
		p.fail(start, "a set that no character is in")
	}
	return set
}

// normalise sorts ranges, joins those that touch, and leaves out surrogates.
func normalise(set []runeRange) []runeRange {
	slices.SortFunc(set, func(a, b runeRange) int { return int(a.lo) - int(b.lo) })
	var joined []runeRange
	for _, r := range set {
		if n := len(joined); n > 0 && r.lo <= joined[n-1].hi+1 {
			joined[n-1].hi = max(joined[n-1].hi, r.hi)
		} else {
			joined = append(joined, r)
		}
	}
	return intersect(joined, anyRune)
}

func intersect(a, b []runeRange) []runeRange {
	var both []runeRange
	for _, x := range a {
		for _, y := range b {
			if lo, hi := max(x.lo, y.lo), min(x.hi, y.hi); lo <= hi {
				both = append(both, runeRange{lo, hi})
			}
		}
	}
	return both
}

func complement(set []runeRange) []runeRange {
	var rest []runeRange
	next := rune(0)
	for _, r := range set {
		if r.lo > next {
			rest = append(rest, runeRange{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= utf8.MaxRune {
		rest = append(rest, runeRange{next, utf8.MaxRune})
	}
	return intersect(rest, anyRune)
}

// char reads one character of a literal or a set.
func (p *parser) char() rune {
	r, size := utf8.DecodeRuneInString(p.src[p.pos:])
	at := p.pos
	p.pos += size
	if r != '\\' {
		return r
	}
	digits := 0
	switch c := p.peek(); c {
	case 't':
		r = '\t'
	case 'r':
		r = '\r'
	case 'n':
		r = '\n'
	case '\\', '"', '[', ']', '-':
		r = rune(c)
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	default:
		p.fail(at, `unknown escape: want \t, \r, \n, \\, \", \[, \], \-, \xHH, \uHHHH or \UHHHHHHHH`)
	}
	p.pos++
	if digits == 0 {
		return r
	}
	end := min(p.pos+digits, len(p.src))
	n, err := strconv.ParseUint(p.src[p.pos:end], 16, 32)
	if err != nil || end-p.pos < digits {
		p.fail(at, "expecting %d hexadecimal digits", digits)
		return 0
	}
	p.pos = end
	if n > utf8.MaxRune {
		p.fail(at, "U+%X is no character", n)
		return 0
	}
	return rune(n)
}

func (p *parser) token() (ref tokenRef) {
	start := p.pos
	if p.peek() == '!' {
		ref.not = true
		p.pos++
	}
	if p.peek() != '<' {
		p.fail(p.pos, "expecting '<', found %s", p.found())
		return ref
	}
	text := p.src[p.pos:]
	end := strings.IndexByte(text, '>')
	if end < 0 {
		p.fail(start, "expecting '>' behind a token")
		return ref
	}
	text = text[:end+1]
	p.pos += len(text)
	inner := text[1:end]
	if !strings.HasPrefix(inner, "[") {
		ref.text = text
		return ref
	}
	number, ok := strings.CutSuffix(inner[1:], "]")
	n, err := strconv.ParseUint(number, 10, 31)
	if !ok || err != nil {
		p.fail(start, "expecting the number of a token, as in <[1234]>")
	}
	ref.id = int32(n)
	return ref
}

// check looks at the rules as a whole: all are defined, none begins with
// itself, and the root can end.
func (p *parser) check(g *Grammar) error {
	for _, r := range g.rules {
		if !r.set {
			p.fail(r.at, "undefined rule %s", r.name)
			return p.err
		}
	}
	empty := g.fixpoint(func(done []bool, x item) bool {
		return x.min == 0 || x.kind == kindText && x.text == "" || x.kind == kindRule && done[x.rule]
	})
	if cycle := g.leftRecursion(empty); cycle >= 0 {
		p.fail(g.rules[cycle].at, "left recursion: the rule %s may begin with itself", g.rules[cycle].name)
		return p.err
	}
	if ends := g.productive(); !ends[g.root] {
		p.fail(g.rules[g.root].at, "the rule %s never comes to an end", g.rules[g.root].name)
	}
	return p.err
}

// productive tells the rules that some text matches.
func (g *Grammar) productive() []bool {
	return g.fixpoint(func(done []bool, x item) bool {
		return x.min == 0 || x.kind != kindRule && x.kind != kindGroup || x.kind == kindRule && done[x.rule]
	})
}

// fixpoint returns the rules that have an alternative all of whose items hold,
// given the rules that do; a group holds where an alternative of it does.
func (g *Grammar) fixpoint(holds func(done []bool, x item) bool) []bool {
	done := make([]bool, len(g.rules))
	var any func(body []sequence) bool
	any = func(body []sequence) bool {
		return slices.ContainsFunc(body, func(s sequence) bool {
			return !slices.ContainsFunc(s, func(x item) bool {
				return !holds(done, x) && !(x.kind == kindGroup && any(x.group))
			})
		})
	}
	// Which rules use a rule: only those have to be looked at again.
	users := make([][]int, len(g.rules))
	for i, r := range g.rules {
		eachRule(r.body, func(used int) { users[used] = append(users[used], i) })
	}
	work := make([]int, len(g.rules))
	for i := range work {
		work[i] = i
	}
	for len(work) > 0 {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		if !done[i] && any(g.rules[i].body) {
			done[i] = true
			work = append(work, users[i]...)
		}
	}
	return done
}

func eachRule(body []sequence, f func(rule int)) {
	for _, s := range body {
		for _, x := range s {
			if x.kind == kindRule {
				f(x.rule)
			}
			eachRule(x.group, f)
		}
	}
}

// leftRecursion returns a rule that may begin with itself, or -1.
func (g *Grammar) leftRecursion(empty []bool) int {
	begins := make([][]int, len(g.rules)) // the rules that a rule may begin with
	for i, r := range g.rules {
		var walk func(body []sequence) (mayBeEmpty bool)
		walk = func(body []sequence) bool {
			some := false
			for _, s := range body {
				all := true
				for _, x := range s {
					skip := x.min == 0
					switch {
					case x.kind == kindRule && x.max != 0:
						begins[i] = append(begins[i], x.rule)
						skip = skip || empty[x.rule]
					case x.kind == kindGroup && x.max != 0:
						skip = walk(x.group) || skip
					case x.kind == kindText && x.text == "":
						skip = true
					}
					if !skip {
						all = false
						break
					}
				}
				some = some || all
			}
			return some
		}
		walk(r.body)
	}
	// Depth first, with a stack of our own: a chain of rules may be long.
	const unseen, open, closed = 0, 1, 2
	state := make([]uint8, len(g.rules))
	type frame struct{ rule, next int }
	for start := range g.rules {
		if state[start] != unseen {
			continue
		}
		stack := []frame{{start, 0}}
		state[start] = open
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if top.next == len(begins[top.rule]) {
				state[top.rule] = closed
				stack = stack[:len(stack)-1]
				continue
			}
			to := begins[top.rule][top.next]
			top.next++
			switch state[to] {
			case open:
				return to
			case unseen:
				state[to] = open
				stack = append(stack, frame{to, 0})
			}
		}
	}
	return -1
}
