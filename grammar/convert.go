package grammar

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A converter writes the rules of a schema. It works on conjunctions: lists of
// places in the schema that must all hold. An expression is the text of one
// item of GBNF, or several in parentheses; the empty one stands for "nothing is
// valid".
type converter struct {
	root     any
	compiler *jsonschema.Compiler
	refs     map[string]string // rule names of conjunctions that a $ref leads to
	names    map[string]bool   // of all rules
	rules    strings.Builder
	used     []string // shared rules
	work     int
}

// at is a schema and where it stands.
type at struct {
	schema any
	path   string
}

// Bounds of a conversion.
const (
	maxConversions = 20000
	maxGBNF        = maxSource / 2
)

// convert returns the expression of what is valid at all of the places.
func (c *converter) convert(places ...at) (string, error) {
	if c.work++; c.work > maxConversions || c.rules.Len() > maxGBNF {
		return "", problem(places[0].path, "the schema is too large for a grammar")
	}
	var flat []at
	named := ""
	for _, p := range places {
		if o, ok := p.schema.(*object); ok && named == "" {
			if ref, ok := o.values["$ref"].(string); ok {
				named = ref
			}
		}
		ok, err := c.flatten(&flat, p, nil)
		if !ok || err != nil {
			return "", err
		}
	}
	if named == "" {
		return c.union(flat)
	}
	var keys []string
	for _, p := range flat {
		if !saysNothing(p, "$ref", "allOf") { // those are flattened
			keys = append(keys, p.path)
		}
	}
	key := strings.Join(keys, " ")
	if name, ok := c.refs[key]; ok {
		return name, nil
	}
	name := c.name("def-" + named[strings.LastIndexByte(named, '/')+1:])
	c.refs[key] = name
	body, err := c.union(flat)
	if err == nil && body == "" {
		err = problem(places[0].path, "nothing is valid against %s", named)
	}
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&c.rules, "%s ::= %s\n", name, body)
	return name, nil
}

// name makes a name for a rule.
func (c *converter) name(want string) string {
	clean := strings.Map(func(r rune) rune {
		if r < 0x80 && isWord(byte(r)) {
			return r
		}
		return '-'
	}, want)
	clean = clean[:min(len(clean), 40)]
	name := clean
	for i := 2; c.names[name]; i++ {
		name = clean + "-" + strconv.Itoa(i)
	}
	c.names[name] = true
	return name
}

// rule makes a rule of an expression.
func (c *converter) rule(want, body string) string {
	name := c.name(want)
	fmt.Fprintf(&c.rules, "%s ::= %s\n", name, body)
	return name
}

// flatten appends a place to the conjunction, and those that its $ref and allOf
// lead to. It returns false where nothing is valid.
func (c *converter) flatten(flat *[]at, p at, chain []string) (bool, error) {
	if slices.Contains(chain, p.path) || len(chain) > maxDepth {
		return false, problem(p.path, "it refers to itself without end")
	}
	chain = append(chain, p.path)
	o, ok := p.schema.(*object)
	if !ok {
		return p.schema == true, nil
	}
	if slices.ContainsFunc(*flat, func(q at) bool { return q.path == p.path }) {
		return true, nil
	}
	*flat = append(*flat, p)
	if len(*flat) > maxDepth {
		return false, problem(p.path, "more than %d schemas hold together here", maxDepth)
	}
	if ref, ok := o.values["$ref"].(string); ok {
		target, err := c.resolve(ref, p.path)
		if err != nil {
			return false, err
		}
		if ok, err := c.flatten(flat, target, chain); !ok || err != nil {
			return ok, err
		}
	}
	list, _ := o.values["allOf"].([]any)
	for i, s := range list {
		if ok, err := c.flatten(flat, at{s, fmt.Sprintf("%s/allOf/%d", p.path, i)}, chain); !ok || err != nil {
			return ok, err
		}
	}
	return true, nil
}

// resolve follows a reference within the schema.
func (c *converter) resolve(ref, path string) (at, error) {
	here := stepPath(path, "$ref")
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok || pointer != "" && pointer[0] != '/' {
		return at{}, problem(here, "%s: want a reference within the schema (#/...)", ref)
	}
	target := at{c.root, "#"}
	if pointer == "" {
		return target, nil
	}
	for step := range strings.SplitSeq(pointer[1:], "/") {
		step = strings.ReplaceAll(strings.ReplaceAll(percentDecoded(step), "~1", "/"), "~0", "~")
		var next any
		found := false
		switch v := target.schema.(type) {
		case *object:
			next, found = v.values[step]
		case []any:
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(v) {
				next, found = v[i], true
			}
		}
		if !found {
			return at{}, problem(here, "%s leads nowhere", ref)
		}
		target = at{next, stepPath(target.path, step)}
	}
	switch target.schema.(type) {
	case *object, bool:
		return target, nil
	}
	return at{}, problem(here, "%s leads to no schema", ref)
}

func percentDecoded(s string) string {
	for i := 0; i+2 < len(s); i++ {
		if s[i] == '%' {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				s = s[:i] + string([]byte{byte(n)}) + s[i+3:]
			}
		}
	}
	return s
}

// Keywords by what they speak of. Those that only tell something to a reader
// mean nothing here.
var (
	annotations = []string{"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples", "example",
		"deprecated", "readOnly", "writeOnly", "contentMediaType", "contentEncoding"}
	general  = []string{"$ref", "allOf", "anyOf", "oneOf", "type", "enum", "const"}
	specific = map[string][]string{
		"object": {"properties", "required", "additionalProperties", "minProperties", "maxProperties"},
		"array":  {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"},
		"string": {"minLength", "maxLength", "pattern", "format"},
		"number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
	}
)

func typeOf(keyword string) string {
	for name, keywords := range specific {
		if slices.Contains(keywords, keyword) {
			return name
		}
	}
	return ""
}

// union returns the expression of a conjunction without references.
func (c *converter) union(flat []at) (string, error) {
	for _, p := range flat {
		o := p.schema.(*object)
		for _, keyword := range o.keys {
			if !slices.Contains(annotations, keyword) && !slices.Contains(general, keyword) && typeOf(keyword) == "" {
				return "", problem(stepPath(p.path, keyword), "the keyword %s is not supported", keyword)
			}
		}
		for _, keyword := range []string{"anyOf", "oneOf"} {
			if branches, ok := o.values[keyword].([]any); ok {
				return c.branches(flat, p, keyword, branches)
			}
		}
	}
	if sayNothing(flat) {
		return c.use("value"), nil
	}
	if values, given, err := c.values(flat); given || err != nil {
		var all []string
		for _, v := range values {
			all = append(all, quote(encode(v)))
		}
		return alternatives(all), err
	}
	var all []string
	for _, name := range types(flat) {
		expression, err := c.typed(name, flat)
		if err != nil {
			return "", err
		}
		if expression != "" {
			all = append(all, expression)
		}
	}
	return alternatives(all), nil
}

// branches distributes a conjunction over the alternatives of an anyOf or a
// oneOf at one of its places.
func (c *converter) branches(flat []at, p at, keyword string, branches []any) (string, error) {
	// The rest of p keeps its path: what is checked against it is checked
	// against all of it.
	rest := slices.Clone(flat)
	i := slices.IndexFunc(rest, func(q at) bool { return q.path == p.path })
	rest[i] = at{p.schema.(*object).without(keyword), p.path}
	var lists [][]at
	var all []string
	for i, s := range branches {
		list := slices.Clone(rest)
		ok, err := c.flatten(&list, at{s, fmt.Sprintf("%s/%s/%d", p.path, keyword, i)}, nil)
		if err != nil {
			return "", err
		}
		if !ok {
			continue
		}
		lists = append(lists, list)
		var expression string
		if ref := onlyRef(s); ref && sayNothing(rest) {
			expression, err = c.convert(at{s, fmt.Sprintf("%s/%s/%d", p.path, keyword, i)})
		} else {
			if c.work++; c.work > maxConversions {
				return "", problem(p.path, "the schema is too large for a grammar")
			}
			expression, err = c.union(list)
		}
		if err != nil {
			return "", err
		}
		if expression != "" {
			all = append(all, expression)
		}
	}
	if keyword == "oneOf" {
		for i := range lists {
			for j := range i {
				if ok, err := c.exclusive(lists[j], lists[i]); !ok || err != nil {
					if err == nil {
						err = problem(stepPath(p.path, keyword), "nothing shows that alternatives %d and %d exclude each other: give them different types, "+
							"or a required property with different constants, or use anyOf", j, i)
					}
					return "", err
				}
			}
		}
	}
	return alternatives(all), nil
}

func onlyRef(schema any) bool {
	o, ok := schema.(*object)
	_, ref := o.get("$ref")
	return ok && ref && len(o.keys) == 1
}

// saysNothing reports whether a place has nothing but annotations and these
// keywords.
func saysNothing(p at, but ...string) bool {
	return !slices.ContainsFunc(p.schema.(*object).keys, func(k string) bool {
		return !slices.Contains(annotations, k) && !slices.Contains(but, k)
	})
}

func sayNothing(flat []at) bool {
	return !slices.ContainsFunc(flat, func(p at) bool { return !saysNothing(p, "$ref", "allOf") })
}

// values returns the values that enum and const name and that are valid at all
// of the places, and whether there is such a keyword.
func (c *converter) values(flat []at) (values []any, given bool, err error) {
	for _, p := range flat {
		o := p.schema.(*object)
		if list, ok := o.values["enum"].([]any); ok {
			values, given = list, true
			break
		}
		if v, ok := o.get("const"); ok {
			values, given = []any{v}, true
			break
		}
	}
	if !given {
		return nil, false, nil
	}
	values, err = c.valid(values, flat)
	return values, true, err
}

// valid returns those of the values that are valid at all of the places.
func (c *converter) valid(values []any, flat []at) ([]any, error) {
	var kept []any
	for _, v := range values {
		ok := true
		for _, p := range flat {
			validator, err := c.compiler.Compile(schemaURL + percentEncoded(p.path))
			if err != nil {
				return nil, problem(p.path, "%s", oneLine(err))
			}
			ok = ok && validator.Validate(plain(v)) == nil
		}
		if ok {
			kept = append(kept, v)
		}
	}
	return kept, nil
}

// percentEncoded makes a path a fragment of a URL.
func percentEncoded(path string) string {
	var b strings.Builder
	b.WriteByte('#')
	for i := 1; i < len(path); i++ {
		if ch := path[i]; isWord(ch) || strings.IndexByte("/~$_.", ch) >= 0 {
			b.WriteByte(ch)
		} else {
			fmt.Fprintf(&b, "%%%02X", ch)
		}
	}
	return b.String()
}

var allTypes = []string{"object", "array", "string", "number", "integer", "boolean", "null"}

// types returns the types that a conjunction allows. Without a type it is those
// that its keywords speak of, and without those all.
func types(flat []at) []string {
	var kept []string
	explicit := false
	for _, p := range flat {
		var here []string
		switch t := p.schema.(*object).values["type"].(type) {
		case string:
			here = []string{t}
		case []any:
			for _, x := range t {
				here = append(here, x.(string))
			}
		default:
			continue
		}
		if slices.Contains(here, "number") && !slices.Contains(here, "integer") {
			here = append(here, "integer")
		}
		if !explicit {
			kept, explicit = here, true
			continue
		}
		kept = slices.DeleteFunc(slices.Clone(kept), func(t string) bool { return !slices.Contains(here, t) })
	}
	if !explicit {
		for _, name := range allTypes {
			if slices.ContainsFunc(flat, func(p at) bool {
				return slices.ContainsFunc(p.schema.(*object).keys, func(k string) bool { return typeOf(k) == name })
			}) {
				kept = append(kept, name)
			}
		}
		if len(kept) == 0 {
			kept = allTypes
		}
	}
	if slices.Contains(kept, "number") {
		kept = slices.DeleteFunc(slices.Clone(kept), func(t string) bool { return t == "integer" })
	}
	return kept
}

// exclusive reports whether it is plain that no document is valid against both
// conjunctions.
func (c *converter) exclusive(a, b []at) (bool, error) {
	for _, pair := range [][2][]at{{a, b}, {b, a}} {
		if values, given, err := c.values(pair[0]); given || err != nil {
			if err != nil {
				return false, err
			}
			both, err := c.valid(values, pair[1])
			return len(both) == 0, err
		}
	}
	common := slices.DeleteFunc(slices.Clone(statedTypes(a)), func(t string) bool { return !slices.Contains(statedTypes(b), t) })
	if len(common) == 0 {
		return true, nil
	}
	if !slices.Equal(common, []string{"object"}) {
		return false, nil
	}
	for _, name := range required(a) {
		if slices.Contains(required(b), name) {
			if ok, err := c.differ(a, b, name); ok || err != nil {
				return ok, err
			}
		}
	}
	return forbids(a, required(b)) || forbids(b, required(a)), nil
}

// statedTypes is types, but that without a type all are possible.
func statedTypes(flat []at) []string {
	if !slices.ContainsFunc(flat, func(p at) bool { _, ok := p.schema.(*object).get("type"); return ok }) {
		return allTypes
	}
	kept := types(flat)
	if slices.Contains(kept, "number") {
		kept = append(slices.Clone(kept), "integer")
	}
	return kept
}

// differ reports whether both conjunctions name values of a property, and none
// that is valid in both.
func (c *converter) differ(a, b []at, name string) (bool, error) {
	var lists [2][]at
	for i, flat := range [][]at{a, b} {
		for _, p := range flat {
			if o, ok := p.schema.(*object).values["properties"].(*object); ok {
				if s, ok := o.get(name); ok {
					if ok, err := c.flatten(&lists[i], at{s, stepPath(stepPath(p.path, "properties"), name)}, nil); !ok || err != nil {
						return err == nil, err
					}
				}
			}
		}
	}
	for i := range lists {
		values, given, err := c.values(lists[i])
		if err != nil {
			return false, err
		}
		if given && len(lists[1-i]) > 0 {
			both, err := c.valid(values, lists[1-i])
			return len(both) == 0, err
		}
	}
	return false, nil
}

// forbids reports whether a conjunction allows none of the names somewhere.
func forbids(flat []at, names []string) bool {
	return slices.ContainsFunc(flat, func(p at) bool {
		o := p.schema.(*object)
		properties, _ := o.values["properties"].(*object)
		return o.values["additionalProperties"] == false && slices.ContainsFunc(names, func(name string) bool {
			_, ok := properties.get(name)
			return !ok
		})
	})
}

func required(flat []at) []string {
	var names []string
	for _, p := range flat {
		list, _ := p.schema.(*object).values["required"].([]any)
		for _, name := range list {
			if !slices.Contains(names, name.(string)) {
				names = append(names, name.(string))
			}
		}
	}
	return names
}

// typed returns the expression of the values of one type.
func (c *converter) typed(name string, flat []at) (string, error) {
	switch name {
	case "object":
		return c.object(flat)
	case "array":
		return c.array(flat)
	case "string":
		return c.string(flat)
	case "number", "integer":
		return c.number(flat, name == "integer")
	case "boolean":
		return `("true" | "false")`, nil
	}
	return `"null"`, nil
}

// size returns the larger of the lower bounds and the smaller of the upper ones,
// -1 where there is none.
func size(flat []at, lower, upper string) (least, most int, err error) {
	most = -1
	for _, p := range flat {
		o := p.schema.(*object)
		for _, keyword := range []string{lower, upper} {
			v, ok := o.values[keyword].(json.Number)
			if !ok {
				continue
			}
			x, ok := new(big.Rat).SetString(v.String())
			if !ok || !x.IsInt() || !x.Num().IsInt64() || x.Num().Int64() > maxNodes {
				if keyword == upper {
					continue // more than any text holds
				}
				return 0, 0, problem(stepPath(p.path, keyword), "%s: want at most %d", v, maxNodes)
			}
			if n := int(x.Num().Int64()); keyword == lower {
				least = max(least, n)
			} else if most < 0 || n < most {
				most = n
			}
		}
	}
	return least, most, nil
}

// times is the notation for a number of repetitions.
func times(least, most int) string {
	switch {
	case most < 0 && least == 0:
		return "*"
	case most < 0 && least == 1:
		return "+"
	case most < 0:
		return fmt.Sprintf("{%d,}", least)
	case least == 0 && most == 1:
		return "?"
	case least == most && least == 1:
		return ""
	case least == most:
		return fmt.Sprintf("{%d}", least)
	}
	return fmt.Sprintf("{%d,%d}", least, most)
}

// alternatives joins expressions; "" for none.
func alternatives(all []string) string {
	if len(all) <= 1 {
		return strings.Join(all, "")
	}
	return "(" + strings.Join(all, " | ") + ")"
}

// quote spells a text as a literal.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\x%02X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// Rules that are added where they are used.
var sharedRules = map[string]string{
	"ws":          `(" " | "\n" " "{0,20})?`,
	"char":        `[^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" ([0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2}))`,
	"string":      `"\"" char* "\""`,
	"plain-char":  `[^"\\\x00-\x1F]`,
	"number":      `"-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?`,
	"integer":     `"0" | "-"? [1-9] [0-9]{0,15}`,
	"value":       `any-object | any-array | string | number | "true" | "false" | "null"`,
	"any-object":  `"{" ws (string ":" ws value ("," ws string ":" ws value)*)? ws "}"`,
	"any-array":   `"[" ws (value ("," ws value)*)? ws "]"`,
	"date":        dateRule,
	"time":        timeRule,
	"email-label": `[a-zA-Z0-9] ([a-zA-Z0-9-]{0,20} [a-zA-Z0-9])?`,
	"email-atom":  `[a-zA-Z0-9_+-]{1,30}`,
	"octet":       `[0-9] | [1-9] [0-9] | "1" [0-9] [0-9] | "2" [0-4] [0-9] | "25" [0-5]`,
}

// sharedNeeds are the shared rules that shared rules use.
var sharedNeeds = map[string][]string{
	"string":     {"char"},
	"value":      {"any-object", "any-array", "string", "number"},
	"any-object": {"ws", "string", "value"},
	"any-array":  {"ws", "value"},
}

// use returns the name of a shared rule, which will be added.
func (c *converter) use(name string) string {
	if !slices.Contains(c.used, name) {
		c.used = append(c.used, name)
		for _, n := range sharedNeeds[name] {
			c.use(n)
		}
	}
	return name
}

func (c *converter) shared() string {
	var b strings.Builder
	for _, name := range c.used {
		fmt.Fprintf(&b, "%s ::= %s\n", name, sharedRules[name])
	}
	return b.String()
}
