package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A Schema is a JSON schema that a grammar was made of. It is safe for
// concurrent use.
type Schema struct {
	gbnf      string
	validator *jsonschema.Schema
}

// ParseSchema reads a JSON schema (draft 2020-12, or the one that its $schema
// names) and makes the grammar of documents that are valid against it.
//
// The conversion is strict: what it cannot put into a grammar is an error that
// names the keyword and where it stands, never a grammar that lets more
// through. A grammar may let less through than the schema does:
//
//   - Members of an object come in the order in which properties lists them.
//     An object whose schema lists properties and does not mention
//     additionalProperties has no others; an array whose schema lists
//     prefixItems and does not mention items has no others.
//   - A schema without a type that has keywords of some types is of those
//     types.
//   - A number without bounds has at most 16 digits before the point and 16
//     behind it, and may have an exponent of three digits; with bounds it has
//     no exponent. Where one side has no bound, its integers have at most 16
//     digits, or one more than the bound on the other side.
//   - Blanks stand only behind an opening bracket, a comma or a colon and
//     before a closing bracket: nothing, one space, or a line break and at most
//     20 spaces, so that no text is blanks without end.
//   - A string has no escaped surrogate pairs: characters beyond U+FFFF stand
//     for themselves. The name of an additional member has no escapes.
//
// Of strings it knows minLength and maxLength, pattern where it is anchored
// (^...$) and regular, and the formats date, time, date-time, uuid, ipv4 and
// email. oneOf must have alternatives that exclude one another visibly: by
// their types, or by the constant of a required property.
func ParseSchema(text string) (*Schema, error) {
	root, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("grammar: schema: %w", err)
	}
	c := &converter{root: root, refs: map[string]string{}, names: map[string]bool{}}
	if c.compiler, err = newCompiler(text); err != nil {
		return nil, fmt.Errorf("grammar: schema: %w", err)
	}
	validator, err := c.compiler.Compile(schemaURL)
	if err != nil {
		return nil, fmt.Errorf("grammar: schema: %s", oneLine(err))
	}
	body, err := c.convert(at{root, "#"})
	if err == nil && body == "" {
		err = problem("#", "nothing is valid against it")
	}
	if err != nil {
		return nil, fmt.Errorf("grammar: schema: %w", err)
	}
	s := &Schema{gbnf: "root ::= " + body + "\n" + c.rules.String() + c.shared(), validator: validator}
	if _, err := Parse(s.gbnf, "root"); err != nil {
		var syntax *SyntaxError
		if errors.As(err, &syntax) && strings.HasPrefix(syntax.Message, "left recursion") || strings.Contains(err.Error(), "never comes to an end") {
			return nil, fmt.Errorf("grammar: schema: it refers to itself without end")
		}
		return nil, err
	}
	return s, nil
}

// GBNF returns the grammar. Its rule for a document is root.
func (s *Schema) GBNF() string { return s.gbnf }

// Validate reports how a document differs from the schema: nil for one that is
// valid. Formats count.
func (s *Schema) Validate(document []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return fmt.Errorf("grammar: no JSON document: %w", err)
	}
	if err := s.validator.Validate(value); err != nil {
		return fmt.Errorf("grammar: %s", oneLine(err))
	}
	return nil
}

const schemaURL = "mem:schema"

// noFiles refuses schemas from elsewhere.
type noFiles struct{}

func (noFiles) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to %s: want references within the schema (#/...)", url)
}

func newCompiler(text string) (*jsonschema.Compiler, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(noFiles{})
	return c, c.AddResource(schemaURL, doc)
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// An object is a JSON object with its members in order.
type object struct {
	keys   []string
	values map[string]any
}

func (o *object) get(key string) (any, bool) {
	if o == nil {
		return nil, false
	}
	v, ok := o.values[key]
	return v, ok
}

func (o *object) with(key string, value any) *object {
	if o.values == nil {
		o.values = map[string]any{}
	}
	if _, ok := o.values[key]; !ok {
		o.keys = append(o.keys, key)
	}
	o.values[key] = value
	return o
}

func (o *object) without(keys ...string) *object {
	n := &object{}
	for _, k := range o.keys {
		if !slices.Contains(keys, k) {
			n.with(k, o.values[k])
		}
	}
	return n
}

// maxDepth bounds how deep a schema is nested.
const maxDepth = 200

// decode reads JSON into *object, []any, string, json.Number, bool and nil.
func decode(text string) (any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	value, err := decodeValue(d, 0)
	if err != nil {
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = errors.New("the JSON ends too early")
		}
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows the JSON")
	}
	return value, nil
}

func decodeValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("it is nested more than %d deep", maxDepth)
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	case json.Delim('{'):
		o := &object{values: map[string]any{}}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			name := key.(string)
			if _, twice := o.values[name]; twice {
				return nil, fmt.Errorf("%q stands twice in an object", name)
			}
			v, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			o.with(name, v)
		}
		_, err := d.Token()
		return o, err
	}
	return token, nil
}

// plain turns a decoded value into what the validator takes.
func plain(v any) any {
	switch v := v.(type) {
	case *object:
		m := map[string]any{}
		for k, x := range v.values {
			m[k] = plain(x)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = plain(x)
		}
		return list
	}
	return v
}

// encode writes a value as JSON without blanks, members in order.
func encode(v any) string {
	switch v := v.(type) {
	case *object:
		parts := make([]string, len(v.keys))
		for i, k := range v.keys {
			parts[i] = quoteJSON(k) + ":" + encode(v.values[k])
		}
		return "{" + strings.Join(parts, ",") + "}"
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = encode(x)
		}
		return "[" + strings.Join(parts, ",") + "]"
	case string:
		return quoteJSON(v)
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return "null"
}

func quoteJSON(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		b.WriteString(escapeJSON(r))
	}
	b.WriteByte('"')
	return b.String()
}

// escapeJSON spells a character within a JSON string.
func escapeJSON(r rune) string {
	switch {
	case r == '"' || r == '\\':
		return `\` + string(r)
	case r == '\n':
		return `\n`
	case r == '\t':
		return `\t`
	case r == '\r':
		return `\r`
	case r < 0x20:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return string(r)
}

// A schemaError names the keyword and its place.
type schemaError struct{ path, message string }

func (e *schemaError) Error() string { return e.path + ": " + e.message }

func problem(path, format string, args ...any) error {
	return &schemaError{path, fmt.Sprintf(format, args...)}
}

// step is one step further in a JSON pointer.
func stepPath(path, key string) string {
	return path + "/" + strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}
