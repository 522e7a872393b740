package grammar

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// A member is a property of an object in a grammar.
type member struct {
	text     string // its name, the colon and its value
	required bool
}

// object returns the expression of the objects that are valid at all of the
// places.
func (c *converter) object(flat []at) (string, error) {
	var names []string
	mentions := false // whether additionalProperties is
	closed := false
	var additional []at
	for _, p := range flat {
		o := p.schema.(*object)
		if properties, ok := o.values["properties"].(*object); ok {
			for _, name := range properties.keys {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
		if s, ok := o.get("additionalProperties"); ok {
			mentions = true
			closed = closed || s == false
			additional = append(additional, at{s, stepPath(p.path, "additionalProperties")})
		}
	}
	must := required(flat)
	for _, name := range must {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	closed = closed || len(names) > 0 && !mentions

	var members []member
	count := 0
	for _, name := range names {
		var places []at
		for _, p := range flat {
			o := p.schema.(*object)
			properties, _ := o.values["properties"].(*object)
			if s, ok := properties.get(name); ok {
				places = append(places, at{s, stepPath(stepPath(p.path, "properties"), name)})
			} else if s, ok := o.get("additionalProperties"); ok {
				places = append(places, at{s, stepPath(p.path, "additionalProperties")})
			}
		}
		value, err := c.anyOr(places)
		if err != nil {
			return "", err
		}
		need := slices.Contains(must, name)
		switch {
		case value != "":
			members = append(members, member{quote(quoteJSON(name)+":") + " " + c.use("ws") + " " + value, need})
		case need:
			return "", nil
		}
		if need {
			count++
		}
	}
	extra := ""
	if !closed {
		value, err := c.anyOr(additional)
		if err != nil {
			return "", err
		}
		if value != "" {
			extra = c.otherName(names) + ` ":" ` + c.use("ws") + " " + value
		}
	}
	least, most, err := size(flat, "minProperties", "maxProperties")
	if err != nil {
		return "", err
	}
	place := flat[0].path
	switch {
	case most >= 0 && count > most:
		return "", nil
	case least <= count && (most < 0 || extra == "" && most >= len(members)):
	case len(members) == 0 && extra == "":
		return "", nil // it must have some and may have none
	case len(members) == 0 && least <= 1:
		// Names may repeat: more than one cannot be asked for.
		if most == 0 {
			return `"{" ` + c.use("ws") + ` "}"`, nil
		}
		return c.braces(c.list(extra, least, most)), nil
	default:
		return "", problem(place, "minProperties and maxProperties are not supported beside such properties")
	}
	return c.braces(c.members(members, extra)), nil
}

// anyOr is convert, and any value where there are no places.
func (c *converter) anyOr(places []at) (string, error) {
	if len(places) == 0 {
		return c.use("value"), nil
	}
	return c.convert(places...)
}

func (c *converter) braces(inner string) string {
	ws := c.use("ws")
	if inner == "" {
		return `"{" ` + ws + ` "}"`
	}
	return `"{" ` + ws + " " + inner + " " + ws + ` "}"`
}

// list returns an expression of least to most items with commas.
func (c *converter) list(item string, least, most int) string {
	if most == 0 {
		return ""
	}
	more := most
	if most > 0 {
		more--
	}
	text := item
	if most != 1 {
		text += ` ("," ` + c.use("ws") + " " + item + ")" + times(max(0, least-1), more)
	}
	if least == 0 {
		return "(" + text + ")?"
	}
	return text
}

// members returns the expression of the members in order, with commas between
// those that are there. The rest behind each optional member is a rule.
func (c *converter) members(members []member, extra string) string {
	comma := `"," ` + c.use("ws") + " "
	rests := make([]string, len(members)+1) // behind member i, with a comma before each
	if extra != "" {
		rests[len(members)] = "(" + comma + extra + ")*"
	}
	for i := len(members) - 1; i > 0; i-- {
		m := comma + members[i].text
		if !members[i].required {
			m = "(" + m + ")?"
		}
		rests[i] = strings.TrimSpace(m + " " + rests[i+1])
		if !members[i-1].required {
			rests[i] = c.rule("rest", rests[i])
		}
	}
	// The first member that is there: an optional one, up to the first that
	// must be.
	var firsts []string
	for i, m := range members {
		firsts = append(firsts, strings.TrimSpace(m.text+" "+rests[i+1]))
		if m.required {
			return alternatives(firsts)
		}
	}
	if extra != "" {
		firsts = append(firsts, extra+" "+rests[len(members)])
	}
	if len(firsts) == 0 {
		return ""
	}
	return "(" + strings.Join(firsts, " | ") + ")?"
}

// otherName returns the expression of a name that is none of these. It has no
// escapes, so that there is one way to spell it.
func (c *converter) otherName(names []string) string {
	if len(names) == 0 {
		return c.use("string")
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return strings.ContainsFunc(name, func(r rune) bool { return escapeJSON(r) != string(r) })
	})
	slices.Sort(names)
	return c.rule("other-name", `"\"" `+c.notOf(names)+` "\""`)
}

// notOf returns the expression of the rest of a name that is none of the rests,
// which are sorted.
func (c *converter) notOf(rests []string) string {
	plain := c.use("plain-char")
	if len(rests) == 0 {
		return plain + "*"
	}
	mayEnd := rests[0] != ""
	if !mayEnd {
		rests = rests[1:]
	}
	var firsts []rune
	groups := map[rune][]string{}
	for _, rest := range rests {
		r := []rune(rest)[0]
		if len(groups[r]) == 0 {
			firsts = append(firsts, r)
		}
		groups[r] = append(groups[r], rest[len(string(r)):])
	}
	other := `[^"\\\x00-\x1F`
	var all []string
	for _, r := range firsts {
		other += quoteClass(r)
		all = append(all, quote(string(r))+" "+c.notOf(groups[r]))
	}
	all = append(all, other+"] "+plain+"*")
	if mayEnd {
		return "(" + strings.Join(all, " | ") + ")?"
	}
	return "(" + strings.Join(all, " | ") + ")"
}

// array returns the expression of the arrays that are valid at all of the
// places.
func (c *converter) array(flat []at) (string, error) {
	least, most, err := size(flat, "minItems", "maxItems")
	if err != nil {
		return "", err
	}
	prefix := 0
	var rest []at
	mentions := false
	firsts := map[int][]at{} // what holds of the items at the front
	for _, p := range flat {
		o := p.schema.(*object)
		if o.values["uniqueItems"] == true && (most < 0 || most > 1) {
			return "", problem(stepPath(p.path, "uniqueItems"), "the keyword uniqueItems is not supported for more than one item")
		}
		list, path := o.values["prefixItems"], stepPath(p.path, "prefixItems")
		items, ok := o.get("items")
		itemsPath := stepPath(p.path, "items")
		if old, isList := items.([]any); isList { // before draft 2020-12
			list, path = old, itemsPath
			items, ok = o.get("additionalItems")
			itemsPath = stepPath(p.path, "additionalItems")
		}
		front, _ := list.([]any)
		prefix = max(prefix, len(front))
		for i, s := range front {
			firsts[i] = append(firsts[i], at{s, fmt.Sprintf("%s/%d", path, i)})
		}
		if ok {
			mentions = true
			rest = append(rest, at{items, itemsPath})
		}
	}
	if prefix > 0 && !mentions && least <= prefix && (most < 0 || most > prefix) {
		most = prefix
	}
	var items []string
	for i := range prefix {
		places := firsts[i]
		for _, p := range flat { // a shorter front elsewhere leaves it to its items
			o := p.schema.(*object)
			front, _ := o.values["prefixItems"].([]any)
			if s, ok := o.get("items"); ok && len(front) <= i {
				if old, isList := s.([]any); isList {
					if len(old) > i {
						continue
					}
					if s, ok = o.get("additionalItems"); !ok {
						continue
					}
					places = append(places, at{s, stepPath(p.path, "additionalItems")})
					continue
				}
				places = append(places, at{s, stepPath(p.path, "items")})
			}
		}
		item, err := c.anyOr(places)
		if err != nil {
			return "", err
		}
		if item == "" {
			if most < 0 || most > i {
				most = i
			}
			break
		}
		items = append(items, item)
	}
	more := ""
	if most < 0 || most > len(items) {
		if more, err = c.anyOr(rest); err != nil {
			return "", err
		}
		if more == "" {
			most = len(items)
		}
	}
	if most >= 0 && least > most {
		return "", nil
	}
	return c.brackets(items, more, least, most), nil
}

// brackets returns the expression of an array that begins with the items, as
// many as there are to be, and goes on with more.
func (c *converter) brackets(items []string, more string, least, most int) string {
	ws := c.use("ws")
	if most >= 0 && most < len(items) {
		items = items[:most]
	}
	inner := ""
	if more != "" {
		high := most
		if most >= 0 {
			high = most - len(items)
		}
		switch {
		case len(items) == 0:
			inner = c.list(more, least, most)
		case high != 0:
			inner = `("," ` + ws + " " + more + ")" + times(max(0, least-len(items)), high)
		}
	}
	for i := len(items) - 1; i >= 0; i-- {
		inner = strings.TrimSpace(items[i] + " " + inner)
		if i > 0 {
			inner = `"," ` + ws + " " + inner
		}
		if i >= least {
			inner = "(" + inner + ")?"
		}
	}
	if inner == "" {
		return `"[" ` + ws + ` "]"`
	}
	return `"[" ` + ws + " " + inner + " " + ws + ` "]"`
}

// string returns the expression of the strings that are valid at all of the
// places.
func (c *converter) string(flat []at) (string, error) {
	least, most, err := size(flat, "minLength", "maxLength")
	if err != nil {
		return "", err
	}
	if most >= 0 && least > most {
		return "", nil
	}
	inner, from := "", ""
	for _, p := range flat {
		o := p.schema.(*object)
		for _, keyword := range []string{"pattern", "format"} {
			value, ok := o.values[keyword].(string)
			if !ok || from == keyword+" "+value {
				continue
			}
			path := stepPath(p.path, keyword)
			switch {
			case from != "":
				return "", problem(path, "the keyword %s is not supported beside another pattern or format", keyword)
			case least > 0 || most >= 0:
				return "", problem(path, "the keyword %s is not supported beside minLength or maxLength", keyword)
			case keyword == "pattern":
				inner, err = pattern(value)
			default:
				inner, err = c.format(value)
			}
			if err != nil {
				return "", problem(path, "%v", err)
			}
			from = keyword + " " + value
		}
	}
	switch {
	case from != "":
		return strings.TrimSpace(`"\"" `+inner) + ` "\""`, nil
	case least == 0 && most < 0:
		return c.use("string"), nil
	case most == 0:
		return `"\"\""`, nil
	}
	return `"\"" ` + c.use("char") + times(least, most) + ` "\""`, nil
}

// multiple reports whether a conjunction wants whole numbers by multipleOf.
func multiple(flat []at) (whole bool, err error) {
	for _, p := range flat {
		v, ok := p.schema.(*object).values["multipleOf"].(json.Number)
		switch {
		case !ok:
		case v == "1" || v == "1.0":
			whole = true
		default:
			return false, problem(stepPath(p.path, "multipleOf"), "multipleOf %s is not supported: want 1", v)
		}
	}
	return whole, nil
}
