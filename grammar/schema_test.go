package grammar_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/grammar"
	"github.com/sortes-llm/sortes/internal/grammartest"
)

func schemaOf(t testing.TB, text string) *grammar.Schema {
	t.Helper()
	s, err := grammar.ParseSchema(text)
	require.NoError(t, err, "%s", text)
	return s
}

// Grammars worked out by hand.
func TestSchemaToGBNF(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type": "boolean", "title": "t", "description": "d", "default": true, "examples": [false], "$comment": "c"}`: `root ::= ("true" | "false")` + "\n",
		`{"type": "null"}`: `root ::= "null"` + "\n",
		`{"enum": ["a\"b", 1.50, null, {"x": [true, "é\n"]}]}`:         `root ::= ("\"a\\\"b\"" | "1.50" | "null" | "{\"x\":[true,\"é\\n\"]}")` + "\n",
		`{"const": "x", "type": ["string", "null"]}`:                   `root ::= "\"x\""` + "\n",
		`{"enum": ["a", 1, "long"], "type": "string", "maxLength": 2}`: `root ::= "\"a\""` + "\n",
		`{"type": "integer", "minimum": 0, "maximum": 255}`:            `root ::= ([0-9] | [1-9] [0-9] | ("1" [0-9]{2} | "2" ([0-4] [0-9] | "5" [0-5])))` + "\n",
		`{"type": "integer", "exclusiveMinimum": -3, "maximum": 1.5}`:  `root ::= ("-" [1-2] | [0-1])` + "\n",
		`{"type": "string", "pattern": "^[a-f\"]+(-\\d{2})?$"}`:        `root ::= "\"" (([a-f] | "\\\""))+ ("-" ([0-9]){2})? "\""` + "\n",
		`{"type": "string", "minLength": 2, "maxLength": 5000}`: `root ::= "\"" char{2,5000} "\""` + "\n" +
			`char ::= [^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" ([0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2}))` + "\n",
		`{"properties": {"b": {"const": 1}, "a": {"const": 2}, "c": {"const": 3}}, "required": ["a"]}`: `root ::= "{" ws ("\"b\":" ws "1" rest | "\"a\":" ws "2" ("," ws "\"c\":" ws "3")?) ws "}"` + "\n" +
			`rest ::= "," ws "\"a\":" ws "2" ("," ws "\"c\":" ws "3")?` + "\n" +
			`ws ::= (" " | "\n" " "{0,20})?` + "\n",
		`{"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}, "minItems": 1, "maxItems": 4}`: `root ::= "[" ws "1" ("," ws "2" ("," ws "3"){0,2})? ws "]"` + "\n" +
			`ws ::= (" " | "\n" " "{0,20})?` + "\n",
		`{"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}}}`: `root ::= def-tree` + "\n" +
			`def-tree ::= "[" ws (def-tree ("," ws def-tree)?)? ws "]"` + "\n" +
			`ws ::= (" " | "\n" " "{0,20})?` + "\n",
	} {
		got := schemaOf(t, schema).GBNF()
		assert.Equal(t, want, got, schema)
	}
}

// Documents that are of a schema's grammar, and others.
func TestSchemaDocuments(t *testing.T) {
	for _, c := range []struct {
		schema  string
		yes, no []string
	}{
		{`true`, []string{`{"a": [1, "x", null]}`, "-1.5e+3", `"\u00e9\n"`, "[\n  1,\n  {}\n]"}, []string{"", "{", " 1", "01", "[1,]", `{"a":1,}`, "\"\\ud800\"", "[\n\n1]", "[1 , 2]"}},
		{`{"type": ["string", "null"]}`, []string{`"x"`, "null"}, []string{"1", "{}"}},
		{`{"type": "number"}`, []string{"0", "-0.5", "1e9"}, []string{"01", "1.", ".5", "+1"}},
		{`{"type": "object"}`, []string{"{}", `{"a": 1, "b": {}}`}, []string{"[]", "1"}},
		{`{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["b"]}`,
			[]string{`{"a": 1, "b": "x"}`, `{"b": ""}`}, []string{`{"b": "", "a": 1}`, `{"a": 1}`, `{}`, `{"a": "1", "b": ""}`, `{"b": "", "c": 1}`, `{,"b":""}`}},
		{`{"type": "object", "properties": {"ab": {"type": "integer"}, "ac": false}, "additionalProperties": {"type": "string"}}`,
			[]string{`{}`, `{"ab": 1}`, `{"ab": 1, "x": "y", "a": "", "abc": ""}`, `{"": "x"}`}, []string{`{"ab": "x"}`, `{"x": "y", "ab": 1}`, `{"ac": ""}`, `{"x": 1}`, `{"\u0061b": ""}`}},
		{`{"type": "object", "required": ["k"], "additionalProperties": {"const": 1}}`, []string{`{"k":1}`, `{"k":1, "l":1}`}, []string{`{}`, `{"l":1}`, `{"k":2}`}},
		{`{"type": "object", "additionalProperties": {"const": 1}, "minProperties": 1, "maxProperties": 2}`, []string{`{"k":1}`, `{"k":1, "l":1}`}, []string{`{}`, `{"l":1,"k":1,"m":1}`}},
		{`{"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3}`, []string{"[true, false]", "[true,true,true]"}, []string{"[]", "[true]", "[true,true,true,true]", "[1,2]"}},
		{`{"type": "array", "prefixItems": [{"const": 1}, {"const": 2}]}`, []string{"[]", "[1]", "[1,2]"}, []string{"[2]", "[1,2,3]"}},
		{`{"type": "array", "prefixItems": [{"const": 1}], "minItems": 2}`, []string{"[1,5]", `[1,"x",{}]`}, []string{"[1]", "[]"}},
		{`{"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"const": 1}, {"const": 2}], "additionalItems": {"const": 3}}`, []string{"[1,2,3,3]", "[1]"}, []string{"[3]", "[1,2,4]"}},
		{`{"type": "string", "minLength": 1, "maxLength": 2}`, []string{`"a"`, `"\né"`, `"😀\u00e9"`}, []string{`""`, `"abc"`, `"\ud83d\ude00"`}},
		{`{"type": "string", "format": "date"}`, []string{`"2024-02-29"`, `"2023-12-31"`, `"2000-02-29"`}, []string{`"2023-02-29"`, `"1900-02-29"`, `"2023-04-31"`, `"2023-13-01"`, `"2023-00-10"`, `"2023-01-00"`}},
		{`{"type": "string", "format": "date-time"}`, []string{`"2024-02-29T23:59:59Z"`, `"2023-12-31T00:00:00.125+05:30"`}, []string{`"2023-02-29T00:00:00Z"`, `"2023-12-31T24:00:00Z"`, `"2023-12-31"`}},
		{`{"type": "string", "format": "uuid"}`, []string{`"123e4567-e89b-12d3-a456-426614174000"`}, []string{`"123e4567e89b12d3a456426614174000"`}},
		{`{"type": "string", "format": "ipv4"}`, []string{`"192.168.0.255"`}, []string{`"256.1.1.1"`, `"01.1.1.1"`, `"1.1.1"`}},
		{`{"type": "string", "format": "email"}`, []string{`"a.b@example.org"`}, []string{`"a@b"`, `"@x.y"`}},
		{`{"type": "string", "pattern": "^(?:a|b.)*[^\\n\\x20-\\x7e]?$"}`, []string{`""`, `"ab\"a"`, `"b\\\\a"`[:0] + `"b\\a"`, `"é"`, `"\t"`}, []string{`"b"`, `"c"`, `"\n"`}},
		{`{"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]}`, []string{"1", `"x"`}, []string{`"xy"`, "true"}},
		{`{"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}, "v": {"type": "integer"}}, "required": ["k"]},
			{"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]}]}`, []string{`{"k": "a", "v": 1}`, `{"k":"b"}`}, []string{`{"k":"b","v":1}`, `{"v":1}`}},
		{`{"allOf": [{"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]}, {"properties": {"a": {"maximum": 5}, "b": {"const": 1}}}]}`,
			[]string{`{"a": 4}`, `{"a":5,"b":1}`}, []string{`{"a":6}`, `{"a":2}`, `{"b":1}`}},
		{`{"allOf": [{"properties": {"a": {"const": 1}}, "additionalProperties": false}, {"properties": {"b": {"const": 1}}}]}`, []string{`{}`, `{"a":1}`}, []string{`{"b":1}`}},
		{`{"type": "integer", "anyOf": [{"maximum": 3, "minimum": 1}, {"minimum": 7, "maximum": 7}]}`, []string{"1", "3", "7"}, []string{"0", "4", "8"}},
		{`{"enum": [1, 2, 3], "anyOf": [{"minimum": 3}, {"const": 1}]}`, []string{"1", "3"}, []string{"2"}},
		{`{"$defs": {"n": {"type": ["object", "null"], "properties": {"next": {"$ref": "#/$defs/n"}, "v": {"type": "integer"}}, "required": ["v"], "additionalProperties": false}}, "$ref": "#/$defs/n"}`,
			[]string{`null`, `{"v":1}`, `{"next":{"next":null,"v":2},"v":1}`}, []string{`{"next":{},"v":1}`, `{}`}},
		{`{"type": "object", "properties": {"sub": {"$ref": "#"}}, "additionalProperties": false}`, []string{`{}`, `{"sub":{"sub":{}}}`}, []string{`{"sub":1}`}},
		{`{"items": {"$ref": "#/properties/a~1b%20c"}, "properties": {"a/b c": {"const": 1}}, "type": "array"}`, []string{"[1,1]"}, []string{"[2]"}},
		// A reference into a list, two whose names are spelled alike in a grammar, a long string.
		{`{"type": "array", "prefixItems": [{"const": 1}, {"type": "array", "items": {"$ref": "#/prefixItems/0"}}]}`, []string{"[1,[1,1]]"}, []string{"[1,[2]]"}},
		{`{"anyOf": [{"$ref": "#/$defs/a b"}, {"$ref": "#/$defs/a~1b"}], "$defs": {"a b": {"const": 1}, "a/b": {"const": 2}}}`, []string{"1", "2"}, []string{"3"}},
		{`{"type": "string", "maxLength": 3000}`, []string{`"` + strings.Repeat("é", 3000) + `"`}, []string{`"` + strings.Repeat("é", 3001) + `"`}},
	} {
		s := schemaOf(t, c.schema)
		for _, text := range c.yes {
			is, _ := follows(t, s.GBNF(), text)
			assert.True(t, is, "%s: %s\n%s", c.schema, text, s.GBNF())
			assert.NoError(t, s.Validate([]byte(text)), "%s: %s", c.schema, text)
		}
		for _, text := range c.no {
			is, _ := follows(t, s.GBNF(), text)
			assert.False(t, is, "%s: %s\n%s", c.schema, text, s.GBNF())
		}
	}
}

// What cannot be put into a grammar is an error that says where.
func TestSchemaErrors(t *testing.T) {
	for schema, want := range map[string]string{
		`{`:                                    "the JSON ends too early",
		`{} {}`:                                "something follows the JSON",
		`{"type": "string", "type": "null"}`:   `"type" stands twice in an object`,
		`5`:                                    "",
		`{"type": "text"}`:                     "",
		`false`:                                "#: nothing is valid against it",
		`{"properties": {"a/b": {"not": {}}}}`: "#/properties/a~1b/not: the keyword not is not supported",
		`{"nullable": true}`:                   "#/nullable: the keyword nullable is not supported",
		`{"if": true}`:                         "#/if: the keyword if is not supported",
		`{"patternProperties": {}}`:            "#/patternProperties: the keyword patternProperties is not supported",
		`{"items": {"contains": {}}, "type": "array"}`:                              "#/items/contains: the keyword contains is not supported",
		`{"type": "array", "uniqueItems": true}`:                                    "#/uniqueItems: the keyword uniqueItems is not supported for more than one item",
		`{"type": "number", "multipleOf": 0.5}`:                                     "#/multipleOf: multipleOf 0.5 is not supported: want 1",
		`{"type": "string", "pattern": "abc"}`:                                      "#/pattern: the pattern abc: want one that begins with ^ and ends with $",
		`{"type": "string", "pattern": "^a\\bc$"}`:                                  `#/pattern: the pattern ^a\bc$: \b is not supported here`,
		`{"type": "string", "pattern": "^(?i)a$"}`:                                  "#/pattern: the pattern ^(?i)a$: (?i) is not supported",
		`{"type": "string", "pattern": "^a$", "minLength": 1}`:                      "#/pattern: the keyword pattern is not supported beside minLength or maxLength",
		`{"type": "string", "format": "hostname"}`:                                  "#/format: the format hostname is not supported: want date, time, date-time, uuid, ipv4 or email",
		`{"type": "string", "minLength": 1e9}`:                                      "#/minLength: 1e9: want at most 262144",
		`{"$ref": "#/$defs/x"}`:                                                     "",
		`{"$ref": "https://example.com/x.json"}`:                                    "",
		`{"$ref": "#"}`:                                                             "#: it refers to itself without end",
		`{"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}`: "#/$defs/a: it refers to itself without end",
		`{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}`: "it refers to itself without end",
		`{"oneOf": [{"type": "string"}, {"maxLength": 3}]}`:                         "#/oneOf: nothing shows that alternatives 0 and 1 exclude each other",
		`{"oneOf": [{"properties": {"a": true}, "required": ["a"], "type": "object"}, {"properties": {"b": true}, "required": ["b"], "type": "object"}]}`: "#/oneOf: nothing shows",
		`{"type": "object", "additionalProperties": {"type": "null"}, "minProperties": 2}`:                                                                "#: minProperties and maxProperties are not supported beside such properties",
		`{"type": "integer", "minimum": 3, "maximum": 2}`:                                                                                                 "#: nothing is valid against it",
		`{"type": "string", "minLength": 3, "maxLength": 2}`:                                                                                              "#: nothing is valid against it",
		`{"allOf": [{"type": "string"}, {"type": "null"}]}`:                                                                                               "#: nothing is valid against it",
		`{"type": "string", "enum": [1]}`:                                                                                                                 "#: nothing is valid against it",
		`{"minimum": 1e400}`:                                                                                                                              "#/minimum: 1e400 has too many digits for a grammar",
		strings.Repeat(`{"items":`, 300) + "true" + strings.Repeat("}", 300):                                                                              "nested more than 200 deep",
	} {
		_, err := grammar.ParseSchema(schema)
		require.Error(t, err, schema)
		assert.True(t, strings.HasPrefix(err.Error(), "grammar: schema: "+want) || strings.Contains(err.Error(), want), "%s: %v", schema, err)
		assert.NotContains(t, err.Error(), "\n")
	}
}

// Of numbers with bounds exactly those that are within are of the grammar.
func TestSchemaNumberBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 0))
	bound := func() string {
		switch r.IntN(4) {
		case 0:
			return fmt.Sprint(r.IntN(5) - 2)
		case 1:
			return fmt.Sprintf("%d.%d", r.IntN(7)-3, r.IntN(100))
		case 2:
			return fmt.Sprintf("-0.%03d", r.IntN(1000))
		}
		return fmt.Sprint(r.IntN(2400) - 1200)
	}
	rat := func(s string) *big.Rat { x, _ := new(big.Rat).SetString(s); return x }
	for range rounds(150) {
		limits := map[string]any{"type": []string{"integer", "number"}[r.IntN(2)]}
		for _, keyword := range []string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"} {
			if r.IntN(3) == 0 {
				limits[keyword] = json.Number(bound())
			}
		}
		schema, _ := json.Marshal(limits)
		within := func(text string) bool {
			x := rat(text)
			for keyword, sign := range map[string]int{"minimum": 1, "exclusiveMinimum": 1, "maximum": -1, "exclusiveMaximum": -1} {
				if b, ok := limits[keyword].(json.Number); ok {
					cmp := x.Cmp(rat(b.String())) * sign
					if cmp < 0 || cmp == 0 && strings.HasPrefix(keyword, "exclusive") {
						return false
					}
				}
			}
			return true
		}
		s, err := grammar.ParseSchema(string(schema))
		if err != nil {
			require.ErrorContains(t, err, "nothing is valid", string(schema))
		}
		try := func(text string) {
			if err != nil {
				require.False(t, within(text), "%s: %s", schema, text)
				return
			}
			is, _ := follows(t, s.GBNF(), text)
			require.Equal(t, within(text), is, "%s: %s\n%s", schema, text, s.GBNF())
		}
		for _, keyword := range []string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"} {
			b, ok := limits[keyword].(json.Number)
			if !ok || rat(b.String()).Sign() == 0 && b[0] == '-' {
				continue
			}
			exact := b.String() // the bound itself, also with more zeros, and what is next to it
			whole := rat(exact).IsInt()
			if whole {
				exact = rat(exact).Num().String()
			} else if limits["type"] == "integer" {
				continue
			}
			try(exact)
			if limits["type"] == "number" {
				if whole {
					exact += "."
				}
				try(exact + "00")
				try(exact + "001")
			}
		}
		if limits["type"] == "integer" {
			for range 40 {
				try(fmt.Sprint(r.IntN(2600) - 1300))
			}
			for n := -5; n < 6; n++ {
				try(fmt.Sprint(n))
			}
			continue
		}
		for range 60 {
			text := fmt.Sprintf("%d.%0*d", r.IntN(8), 1+r.IntN(4), r.IntN(10))
			if r.IntN(2) == 0 {
				text = fmt.Sprintf("%d.%d", r.IntN(4), r.IntN(1000))
			}
			if r.IntN(3) == 0 {
				text = fmt.Sprint(1 + r.IntN(1300))
			}
			if r.IntN(2) == 0 && rat(text).Sign() > 0 {
				text = "-" + text
			}
			try(text)
		}
	}
}

func TestRandomSchemas(t *testing.T) {
	w := mixed()
	v := grammar.NewVocabulary(w)
	converted, ended := 0, 0
	for seed := range uint64(rounds(250)) {
		r := rand.New(rand.NewPCG(seed, 2))
		text := grammartest.Schema(r)
		s, err := grammar.ParseSchema(text)
		if err != nil {
			require.Regexp(t, "nothing is valid|refers to itself without end|not supported beside", err.Error(), "seed %d: %s", seed, text)
			continue
		}
		converted++
		g, err := grammar.Parse(s.GBNF(), "root")
		require.NoError(t, err)
		m, err := g.Matcher(v)
		require.NoError(t, err)
		for range 2 {
			document, end := write(t, m, w, r, 200)
			if end {
				ended++
				require.NoError(t, s.Validate([]byte(document)), "seed %d: %s\n%s\n%s", seed, document, text, s.GBNF())
			}
		}
	}
	t.Logf("%d schemas, %d documents", converted, ended)
	require.Greater(t, converted, 170)
	require.Greater(t, ended, 170)
}

func FuzzSchema(f *testing.F) {
	for _, s := range []string{
		`true`, `{"type": ["integer", "null"], "minimum": -5.5}`, `{"properties": {"a": {"$ref": "#"}}, "required": ["b"], "additionalProperties": true}`,
		`{"oneOf": [{"const": 1}, {"enum": ["x"]}], "$defs": {}}`, `{"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "array", "prefixItems": [true], "items": false}}}`,
		`{"type": "string", "pattern": "^[^\"]{2}(a|)$"}`, `{"type": "string", "format": "date-time"}`, `{"type": "number", "exclusiveMaximum": 0.25}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := grammar.ParseSchema(text)
		if err != nil {
			return
		}
		g, err := grammar.Parse(s.GBNF(), "root")
		require.NoError(t, err)
		m, err := g.Matcher(byteVocabulary)
		if err != nil {
			return
		}
		document, end := write(t, m, letters(), rand.New(rand.NewPCG(1, 2)), 100)
		if end {
			require.NoError(t, s.Validate([]byte(document)), "%s", document)
		}
	})
}
