package grammar

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"
)

// pattern returns the expression of what stands between the quotes of a JSON
// string whose value matches a regular expression. It must be anchored at both
// ends. The syntax is that of package regexp, which the validator uses too.
func pattern(text string) (string, error) {
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return "", fmt.Errorf("the pattern %s: %w", text, err)
	}
	parts := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		parts = re.Sub
	}
	if len(parts) < 2 || parts[0].Op != syntax.OpBeginText || parts[len(parts)-1].Op != syntax.OpEndText {
		return "", fmt.Errorf("the pattern %s: want one that begins with ^ and ends with $", text)
	}
	var all []string
	for _, p := range parts[1 : len(parts)-1] {
		s, err := regular(p)
		if err != nil {
			return "", fmt.Errorf("the pattern %s: %w", text, err)
		}
		if s != "" {
			all = append(all, s)
		}
	}
	return strings.Join(all, " "), nil
}

// regular returns the expression of a part of a regular expression, "" for the
// empty one.
func regular(re *syntax.Regexp) (string, error) {
	if re.Flags&syntax.FoldCase != 0 && (re.Op == syntax.OpLiteral || re.Op == syntax.OpCharClass) {
		return "", errors.New("(?i) is not supported")
	}
	switch re.Op {
	case syntax.OpEmptyMatch:
		return "", nil
	case syntax.OpLiteral:
		var b strings.Builder
		for _, r := range re.Rune {
			b.WriteString(escapeJSON(r))
		}
		return quote(b.String()), nil
	case syntax.OpCharClass:
		var set []runeRange
		for i := 0; i < len(re.Rune); i += 2 {
			set = append(set, runeRange{re.Rune[i], re.Rune[i+1]})
		}
		return characters(normalise(set))
	case syntax.OpAnyCharNotNL:
		return characters(complement([]runeRange{{'\n', '\n'}}))
	case syntax.OpAnyChar:
		return characters(anyRune)
	case syntax.OpCapture:
		return regular(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		s, err := regular(re.Sub[0])
		if s == "" || err != nil {
			return "", err
		}
		least, most := re.Min, re.Max
		switch re.Op {
		case syntax.OpStar:
			least, most = 0, -1
		case syntax.OpPlus:
			least, most = 1, -1
		case syntax.OpQuest:
			least, most = 0, 1
		}
		return "(" + s + ")" + times(least, most), nil
	case syntax.OpConcat:
		var all []string
		for _, sub := range re.Sub {
			s, err := regular(sub)
			if err != nil {
				return "", err
			}
			if s != "" {
				all = append(all, s)
			}
		}
		return strings.Join(all, " "), nil
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			s, err := regular(sub)
			if err != nil {
				return "", err
			}
			if s == "" {
				s = `""`
			}
			all = append(all, s)
		}
		return alternatives(all), nil
	}
	return "", fmt.Errorf("%s is not supported here", re)
}

// characters returns the expression of one character of a set, as a JSON string
// spells it.
func characters(set []runeRange) (string, error) {
	var all []string
	plain := intersect(set, complement([]runeRange{{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}))
	if len(plain) > 0 {
		class := "["
		for i, r := range plain {
			if i == 0 && r.lo == '^' { // not the first of a set
				class += `\x5E`
				if r.lo == r.hi {
					continue
				}
				class += "-" + quoteClass(r.hi)
				continue
			}
			class += quoteClass(r.lo)
			if r.hi > r.lo {
				class += "-" + quoteClass(r.hi)
			}
		}
		all = append(all, class+"]")
	}
	for _, r := range intersect(set, []runeRange{{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}) {
		for x := r.lo; x <= r.hi; x++ {
			all = append(all, quote(escapeJSON(x)))
		}
	}
	if len(all) == 0 {
		return "", errors.New("a set that no character is in")
	}
	return alternatives(all), nil
}

// quoteClass spells a character within a set.
func quoteClass(r rune) string {
	switch {
	case strings.ContainsRune(`]\-[`, r):
		return `\` + string(r)
	case r < 0x20 || r == 0x7f:
		return fmt.Sprintf(`\x%02X`, r)
	case r > 0x7e:
		return fmt.Sprintf(`\U%08X`, r)
	}
	return string(r)
}
