package grammartest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
)

// Schema makes a JSON schema of the kind that people write, with references,
// also to itself. Nothing may be valid against it.
func Schema(r *rand.Rand) string {
	text, err := json.Marshal(map[string]any{
		"$defs": map[string]any{
			"d0": randomSchema(r, 1),
			"d1": map[string]any{"type": []string{"array", "null"}, "items": randomSchema(r, 1), "maxItems": 2},
		},
		"allOf": []any{randomSchema(r, 2)},
	})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// randomSchema makes a schema that people might write.
func randomSchema(r *rand.Rand, depth int) any {
	type m = map[string]any
	leaf := []func() any{
		func() any { return m{"type": "string"} },
		func() any { return m{"type": "string", "minLength": r.IntN(3), "maxLength": 3 + r.IntN(5)} },
		func() any {
			return m{"type": "string", "format": []string{"date", "time", "date-time", "uuid", "email", "ipv4"}[r.IntN(6)]}
		},
		func() any {
			return m{"type": "string", "pattern": []string{`^[a-z]{1,4}$`, `^\d+-\w*$`, `^(a|b"|c\\)+$`, `^[^x]?$`, `^$`, `^\s\S.é$`}[r.IntN(6)]}
		},
		func() any { return m{"type": "integer", "minimum": r.IntN(100) - 50} },
		func() any { return m{"type": "integer", "minimum": -r.IntN(100), "exclusiveMaximum": 1 + r.IntN(1000)} },
		func() any { return m{"type": "number", "minimum": -r.Float64(), "maximum": 2 * r.Float64()} },
		func() any { return m{"type": "number", "exclusiveMinimum": r.IntN(10)} },
		func() any { return m{"type": []string{"number", "null"}} },
		func() any { return m{"type": []string{"integer", "boolean"}} },
		func() any { return m{"enum": []any{"x", 1, nil, []int{1}, m{"a": "\""}}} },
		func() any { return m{"const": []any{"c", true, -3.5}[r.IntN(3)]} },
		func() any { return m{"$ref": "#/$defs/d" + fmt.Sprint(r.IntN(2))} },
		func() any { return true },
		func() any { return m{"minimum": 5, "description": "no type"} },
	}
	if depth == 0 {
		return leaf[r.IntN(len(leaf))]()
	}
	sub := func() any { return randomSchema(r, depth-1) }
	properties := func() (m, []string) {
		all, need := m{}, []string{}
		for _, name := range []string{"a", "b", "ab", `q"`, "é"}[:1+r.IntN(5)] {
			all[name] = sub()
			if r.IntN(2) == 0 {
				need = append(need, name)
			}
		}
		return all, need
	}
	switch r.IntN(9) {
	case 0, 1:
		all, need := properties()
		return m{"type": "object", "properties": all, "required": need, "additionalProperties": []any{false, true, sub()}[r.IntN(3)]}
	case 2:
		all, need := properties()
		return m{"type": "object", "properties": all, "required": append(need, "z")}
	case 3:
		return m{"type": "object", "additionalProperties": sub(), "maxProperties": 3}
	case 4:
		return m{"type": "array", "items": sub(), "minItems": r.IntN(3), "maxItems": 3 + r.IntN(2)}
	case 5:
		return m{"type": "array", "prefixItems": []any{sub(), sub()}, "items": []any{false, sub()}[r.IntN(2)], "minItems": r.IntN(4)}
	case 6:
		return m{"anyOf": []any{sub(), sub()}}
	case 7:
		a, need := properties()
		b, _ := properties()
		return m{"allOf": []any{m{"type": "object", "properties": a, "required": need}, m{"properties": b}}}
	}
	all, _ := properties()
	all["kind"] = m{"const": "one"}
	return m{"oneOf": []any{m{"type": "object", "properties": all, "required": []string{"kind"}},
		m{"type": "object", "properties": m{"kind": m{"const": "two"}}, "required": []string{"kind"}}, m{"type": "null"}}}
}
