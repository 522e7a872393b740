package generate

import (
	"slices"
	"unicode/utf8"
)

// A text makes text of tokens. Let B be the bytes of all tokens that it was
// given, up to the first stop string. Then the texts of the tokens, joined,
// are strings.ToValidUTF8(B, "\uFFFD"), however B is cut into tokens.
//
// The bytes of a rune count for the token that holds the last of them. A token
// is settled when no byte of it can become part of a stop string or of a rune
// that is not complete; only then is its text known.
//
// Which stop string ends the text is decided byte by byte: it is the one that
// is complete first, and the longest of those that are complete at the same
// byte.
type text struct {
	stops   []stopString
	bytes   []byte  // not settled
	tokens  []Token // not settled, oldest first
	ends    []int   // where each of tokens ends in bytes
	head    []byte  // the settled text of tokens[0], which is not settled whole
	invalid bool    // the last settled byte was not UTF-8
}

func newText(stops []string) text {
	var t text
	for _, s := range stops {
		t.stops = append(t.stops, newStopString(s))
	}
	return t
}

// push adds a token and appends to dst those that are settled now, with their
// Text. A stop string that the token completes is returned; all tokens are
// settled then, and push must not be called again.
func (t *text) push(dst []Token, token Token) ([]Token, string) {
	stop, length := t.match(token.Bytes)
	if stop != "" {
		t.bytes = append(t.bytes, token.Bytes[:length]...)
		t.bytes = t.bytes[:len(t.bytes)-len(stop)]
	} else {
		t.bytes = append(t.bytes, token.Bytes...)
	}
	t.tokens = append(t.tokens, token)
	t.ends = append(t.ends, len(t.bytes))
	if stop != "" {
		for i, end := range t.ends {
			t.ends[i] = min(end, len(t.bytes))
		}
		return t.flush(dst), stop
	}

	held := 0
	for i := range t.stops {
		held = max(held, t.stops[i].matched)
	}
	return t.settle(dst, len(t.bytes)-held, false), ""
}

// flush settles all tokens: nothing follows.
func (t *text) flush(dst []Token) []Token {
	return t.settle(dst, len(t.bytes), true)
}

// match returns the stop string that bytes complete, and how many of them it
// takes.
func (t *text) match(bytes []byte) (stop string, length int) {
	if len(t.stops) == 0 {
		return "", 0
	}
	for i, b := range bytes {
		for j := range t.stops {
			s := &t.stops[j]
			if s.step(b) && len(s.bytes) > len(stop) {
				stop = s.bytes
			}
		}
		if stop != "" {
			return stop, i + 1
		}
	}
	return "", 0
}

// settle settles the runes that end within limit, and the tokens that end with
// them. With last set an incomplete rune is invalid, else it waits.
func (t *text) settle(dst []Token, limit int, last bool) []Token {
	at, settled := 0, 0
	pop := func() {
		token := t.tokens[settled]
		token.Text = string(t.head)
		dst = append(dst, token)
		t.head = t.head[:0]
		settled++
	}
	for at < limit {
		rest := t.bytes[at:]
		if !last && !utf8.FullRune(rest) {
			break
		}
		r, size := utf8.DecodeRune(rest)
		if at+size > limit {
			break
		}
		for t.ends[settled] < at+size {
			pop()
		}
		if r != utf8.RuneError || size > 1 {
			t.head = append(t.head, rest[:size]...)
			t.invalid = false
		} else if !t.invalid {
			t.head = append(t.head, "\uFFFD"...)
			t.invalid = true
		}
		at += size
	}
	for settled < len(t.tokens) && t.ends[settled] <= at {
		pop()
	}

	t.bytes = slices.Delete(t.bytes, 0, at)
	t.tokens = slices.Delete(t.tokens, 0, settled)
	t.ends = slices.Delete(t.ends, 0, settled)
	for i := range t.ends {
		t.ends[i] -= at
	}
	return dst
}

// A stopString looks for one stop string in a stream of bytes (Knuth, Morris
// and Pratt, 1977).
type stopString struct {
	bytes    string
	fallback []int // fallback[i]: the longest proper prefix of bytes that bytes[:i+1] ends in
	matched  int   // the longest prefix of bytes that the stream ends in
}

func newStopString(s string) stopString {
	fallback := make([]int, len(s))
	for i := 1; i < len(s); i++ {
		n := fallback[i-1]
		for n > 0 && s[n] != s[i] {
			n = fallback[n-1]
		}
		if s[n] == s[i] {
			n++
		}
		fallback[i] = n
	}
	return stopString{bytes: s, fallback: fallback}
}

// step reads a byte and reports whether the stop string ends in it. It must
// not be called again after that.
func (s *stopString) step(b byte) bool {
	for s.matched > 0 && s.bytes[s.matched] != b {
		s.matched = s.fallback[s.matched-1]
	}
	if s.bytes[s.matched] == b {
		s.matched++
	}
	return s.matched == len(s.bytes)
}
