package generate

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// naiveText is the definition of a text: byte by byte over the whole of it.
func naiveText(b []byte, stops []string) (text, stop string) {
	for end := 1; end <= len(b); end++ {
		for _, s := range stops {
			if bytes.HasSuffix(b[:end], []byte(s)) && len(s) > len(stop) {
				stop = s
			}
		}
		if stop != "" {
			return strings.ToValidUTF8(string(b[:end-len(stop)]), "\uFFFD"), stop
		}
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), ""
}

func TestText(t *testing.T) {
	// Each entry of want are the texts of the tokens that are settled when the
	// piece of the same index has come; one more entry is what flush settles.
	type texts []string
	none := texts(nil)
	tests := []struct {
		name   string
		stops  []string
		pieces []string
		want   []texts
		stop   string
	}{
		{"plain", nil, []string{"a", "bc", "d"}, []texts{{"a"}, {"bc"}, {"d"}, none}, ""},
		{"no token", nil, nil, []texts{none}, ""},
		{"piece without bytes", nil, []string{"", "a", ""}, []texts{{""}, {"a"}, {""}, none}, ""},

		{"rune over two tokens", nil, []string{"x\xc3", "\xa9y"}, []texts{none, {"x", "éy"}, none}, ""},
		{"rune over three tokens", nil, []string{"\xe2", "\x82", "\xac"}, []texts{none, none, {"", "", "€"}, none}, ""},
		{"empty piece inside a rune", nil, []string{"\xe2", "", "\x82\xac"}, []texts{none, none, {"", "", "€"}, none}, ""},
		{"token ends a rune and begins one", nil, []string{"\xc3", "\xa9\xc3", "\xa9"}, []texts{none, {""}, {"é", "é"}, none}, ""},
		{"rune of four bytes", nil, []string{"\xf0\x9f", "\x98\x80!"}, []texts{none, {"", "😀!"}, none}, ""},

		{"rune cut by the end", nil, []string{"a", "\xe2\x82"}, []texts{{"a"}, none, {"\uFFFD"}}, ""},
		{"rune cut by other text", nil, []string{"\xe2\x82", "a"}, []texts{none, {"\uFFFD", "a"}, none}, ""},
		{"rune cut by a rune", nil, []string{"\xe2\x82", "\xc3", "\xa9"}, []texts{none, {"\uFFFD"}, {"", "é"}, none}, ""},
		{"bytes that begin nothing", nil, []string{"\xff", "\xff\xffa", "\xff"}, []texts{{"\uFFFD"}, {"a"}, {"\uFFFD"}, none}, ""},
		{"a lone continuation byte", nil, []string{"\x82", "a"}, []texts{{"\uFFFD"}, {"a"}, none}, ""},
		{"U+FFFD itself", nil, []string{"\uFFFD\uFFFD"}, []texts{{"\uFFFD\uFFFD"}, none}, ""},
		{"U+FFFD and then not UTF-8", nil, []string{"\uFFFD", "\xff"}, []texts{{"\uFFFD"}, {"\uFFFD"}, none}, ""},

		{"stop is a token", []string{"##"}, []string{"a", "##"}, []texts{{"a"}, {""}}, "##"},
		{"stop inside a token", []string{"#"}, []string{"a", "b#c"}, []texts{{"a"}, {"b"}}, "#"},
		{"stop over two tokens", []string{"##"}, []string{"a#", "#b"}, []texts{none, {"a", ""}}, "##"},
		{"stop over three tokens", []string{"END"}, []string{"xE", "N", "D"}, []texts{none, none, {"x", "", ""}}, "END"},
		{"head of a stop, then other text", []string{"END"}, []string{"xE", "N", "E"}, []texts{none, none, {"xE", "N"}, {"E"}}, ""},
		{"head of a stop at the end", []string{"END"}, []string{"EN"}, []texts{none, {"EN"}}, ""},
		{"head of a stop again", []string{"aab"}, []string{"aa", "a", "b"}, []texts{none, none, {"a", "", ""}}, "aab"},
		{"the stop overlaps itself", []string{"abab"}, []string{"abaab", "ab"}, []texts{none, {"aba", ""}}, "abab"},
		{"stop at the start", []string{"a"}, []string{"abc"}, []texts{{""}}, "a"},
		{"stop is a newline", []string{"\n"}, []string{"a", "\n\n"}, []texts{{"a"}, {""}}, "\n"},
		{"only the first stop", []string{"#"}, []string{"a#b#"}, []texts{{"a"}}, "#"},
		{"stop with a rune", []string{"é"}, []string{"a\xc3", "\xa9"}, []texts{none, {"a", ""}}, "é"},
		{"stop begins like another rune", []string{"é"}, []string{"\xc3", "\xa8"}, []texts{none, {"", "è"}, none}, ""},
		{"empty pieces after held text", []string{"##"}, []string{"#", "", "a"}, []texts{none, none, {"#", "", "a"}, none}, ""},
		{"rune cut by a stop", []string{"#"}, []string{"a\xe2", "#"}, []texts{none, {"a\uFFFD", ""}}, "#"},
		{"bytes that are not UTF-8 before a stop's head", []string{"##"}, []string{"\xff#", "a"}, []texts{none, {"\uFFFD#", "a"}, none}, ""},

		{"two stops, the first complete", []string{"bc", "c"}, []string{"abc"}, []texts{{"a"}}, "bc"},
		{"two stops, the first to be complete wins", []string{"abcd", "bc"}, []string{"abcd"}, []texts{{"a"}}, "bc"},
		{"two stops complete at one byte, the longest wins", []string{"d", "abcd", "cd"}, []string{"xabcd"}, []texts{{"x"}}, "abcd"},
		{"two stops, one a head of the other", []string{"abc", "ab"}, []string{"a", "b"}, []texts{none, {"", ""}}, "ab"},
		{"two stops, the longest overlap is held", []string{"xyz", "z!"}, []string{"wxyz"}, []texts{{"w"}}, "xyz"},
		{"two stops, the longest head is held", []string{"b!", "abc"}, []string{"a", "b", "d"}, []texts{none, none, {"a", "b", "d"}, none}, ""},
		{"the same stop twice", []string{"#", "#"}, []string{"#"}, []texts{{""}}, "#"},
		{"stop that begins inside a rune", []string{"\xac!"}, []string{"€", "!"}, []texts{none, {"\uFFFD", ""}}, "\xac!"},
		{"head of a stop that begins inside a rune", []string{"\xac!"}, []string{"€", "a"}, []texts{none, {"€", "a"}, none}, ""},
		{"stop that is not UTF-8", []string{"\xac"}, []string{"€"}, []texts{{"\uFFFD"}}, "\xac"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a := newText(test.stops)
			stop := ""
			var all, joined string
			next := int32(0)
			check := func(i int, got []Token) {
				require.Less(t, i, len(test.want))
				var texts texts
				for _, token := range got {
					assert.Equal(t, next, token.ID, "tokens in order")
					assert.Equal(t, test.pieces[next], string(token.Bytes))
					next++
					texts = append(texts, token.Text)
					joined += token.Text
				}
				assert.Equal(t, test.want[i], texts, "after piece %d", i)
			}
			for i, piece := range test.pieces {
				require.Empty(t, stop, "a piece after the end")
				all += piece
				var got []Token
				got, stop = a.push(nil, Token{ID: int32(i), Bytes: []byte(piece)})
				check(i, got)
			}
			if stop == "" {
				check(len(test.pieces), a.flush(nil))
			}
			assert.Equal(t, test.stop, stop)
			assert.Equal(t, len(test.pieces), int(next), "every token is settled")

			// The table agrees with the definition.
			wantText, wantStop := naiveText([]byte(all), test.stops)
			assert.Equal(t, wantText, joined)
			assert.Equal(t, wantStop, stop)
		})
	}
}

// FuzzText cuts bytes into tokens and compares the text with its definition.
func FuzzText(f *testing.F) {
	f.Add([]byte("hello, END of text"), []byte{3, 1, 0, 2}, "END\x00, ")
	f.Add([]byte("a\xe2\x82\xacb\xe2\x82"), []byte{2, 1}, "")
	f.Add([]byte("ababababac"), []byte{1}, "abac\x00bab\x00aba")
	f.Add([]byte("\xff\xf0\x9f\x98\x80\xff\xffx"), []byte{1, 0, 0, 1}, "\x98\x80\x00x")
	f.Fuzz(func(t *testing.T, all, cuts []byte, joinedStops string) {
		if len(all) > 1<<10 || len(cuts) > 1<<6 || len(joinedStops) > 1<<8 {
			return // too slow
		}
		var stops []string
		for _, s := range strings.Split(joinedStops, "\x00") {
			if s != "" {
				stops = append(stops, s)
			}
		}
		wantText, wantStop := naiveText(all, stops)

		a := newText(stops)
		var got []Token
		stop, pushed := "", 0
		for rest := all; len(rest) > 0 && stop == ""; pushed++ {
			n := len(rest)
			if len(cuts) > 0 {
				n = min(n, int(cuts[pushed%len(cuts)])%8)
				if n == 0 && pushed%len(cuts) == 0 {
					n = 1 // get on, whatever the cuts are
				}
			}
			got, stop = a.push(got, Token{ID: int32(pushed), Bytes: rest[:n]})
			rest = rest[n:]
			if before := all[:len(all)-len(rest)]; len(stops) == 0 && utf8.Valid(before) {
				if len(got) != pushed+1 {
					t.Errorf("%q: %d tokens of %d are settled where nothing is open", before, len(got), pushed+1)
				}
			}
		}
		if stop == "" {
			got = a.flush(got)
		}

		if len(got) != pushed {
			t.Fatalf("%d tokens came out of %d", len(got), pushed)
		}
		var text strings.Builder
		for i, token := range got {
			if int(token.ID) != i {
				t.Fatalf("token %d is number %d", i, token.ID)
			}
			if !utf8.ValidString(token.Text) {
				t.Errorf("token %d: %q is not UTF-8", i, token.Text)
			}
			text.WriteString(token.Text)
		}
		if text.String() != wantText || stop != wantStop {
			t.Errorf("got %q and stop %q, want %q and %q", text.String(), stop, wantText, wantStop)
		}
	})
}
