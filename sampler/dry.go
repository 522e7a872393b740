package sampler

import (
	"bytes"
	"fmt"
	"math"
	"slices"
)

// dry lowers the tokens that would lengthen a repetition: one that repeats at
// least allowed tokens loses multiplier * base^(length - allowed) ("don't
// repeat yourself", p-e-w; llama.cpp's llama_sampler_dry). No repetition
// reaches over a breaker. As in llama.cpp the prompt counts.
type dry struct {
	multiplier, base float64
	allowed, lastN   int
	exponent         int // the highest that does not overflow a float32; 0: none
	breakers         map[int32][][]int32
}

func newDRY(c *Config) (Step, error) {
	f := dry{multiplier: c.DRYMultiplier, base: c.DRYBase, allowed: c.DRYAllowedLength, lastN: c.DRYLastN}
	switch {
	case !(f.multiplier >= 0 && finite(f.multiplier)):
		return nil, badValue("the DRY multiplier", f.multiplier, "a finite number, 0 or more")
	case !(f.base >= 0 && finite(f.base)):
		return nil, badValue("the DRY base", f.base, "a finite number, 1 or more")
	case f.allowed < 0:
		return nil, badValue("the DRY allowed length", f.allowed, "0 or more tokens")
	case f.lastN < 0:
		return nil, badValue("the DRY window", f.lastN, "0 or more tokens")
	case f.multiplier == 0:
		return nil, nil
	case f.base < 1:
		return nil, badValue("the DRY base", f.base, "1 or more, since the DRY multiplier is set")
	case f.lastN == 0:
		return nil, badValue("the DRY window", f.lastN, "1 token or more, since the DRY multiplier is set")
	}
	if f.base > 1.000001 {
		f.exponent = int(math.Log(math.MaxFloat32) / math.Log(f.base))
	}
	f.breakers = map[int32][][]int32{}
	for _, b := range c.DRYBreakers {
		if len(b) == 0 {
			return nil, badValue("a DRY breaker", b, "one token or more")
		}
		f.breakers[b[0]] = append(f.breakers[b[0]], slices.Clone(b[1:]))
	}
	return f, nil
}

func (f dry) Apply(c *Candidates, history []int32) error {
	window := history[max(0, len(history)-f.lastN):]
	limit := f.limit(window)
	if len(window) <= f.allowed || limit < f.allowed {
		return nil
	}

	// For each token the longest repetition that it would lengthen, plus 1.
	c.counts = slices.Grow(c.counts[:0], len(c.row))[:len(c.row)]
	c.window = c.window[:0]
	c.matches = suffixMatches(c.matches, window)
	for back, n := range c.matches {
		n := min(int(n), limit)
		if back == 0 || n < f.allowed {
			continue
		}
		token := window[len(window)-back]
		if uint(token) >= uint(len(c.counts)) {
			continue
		}
		if c.counts[token] == 0 {
			c.window = append(c.window, token)
		}
		c.counts[token] = max(c.counts[token], int32(n)+1)
	}
	for _, token := range c.window {
		n := int(c.counts[token]) - 1 - f.allowed
		c.counts[token] = 0
		logit, ok := c.Logit(token)
		if !ok || f.breaks(token) {
			continue
		}
		if f.exponent > 0 {
			n = min(n, f.exponent)
		}
		penalty := f.multiplier * math.Pow(f.base, float64(n)) * c.temp
		c.SetLogit(token, float32(float64(logit)-penalty))
	}
	return nil
}

func (f dry) String() string {
	n := 0
	for _, tails := range f.breakers {
		n += len(tails)
	}
	return fmt.Sprintf("multiplier %v, base %v, allowed length %d, last %d, breakers: %d", f.multiplier, f.base, f.allowed, f.lastN, n)
}

// breaks reports whether a token is a breaker of its own.
func (f dry) breaks(token int32) bool {
	for _, tail := range f.breakers[token] {
		if len(tail) == 0 {
			return true
		}
	}
	return false
}

// limit returns how many tokens stand behind the last breaker.
func (f dry) limit(window []int32) int {
	if len(f.breakers) == 0 {
		return len(window)
	}
	for i, token := range slices.Backward(window) {
		longest := -1
		for _, tail := range f.breakers[token] {
			rest := window[i+1:]
			if len(tail) > longest && len(tail) <= len(rest) && slices.Equal(tail, rest[:len(tail)]) {
				longest = len(tail)
			}
		}
		if longest >= 0 {
			return len(window) - 1 - i - longest
		}
	}
	return len(window)
}

// suffixMatches returns for each number of tokens that are cut off the end of
// the window how many at the new end are those at the old. It is the Z
// algorithm (Gusfield 1997) from right to left, and uses the memory of z.
func suffixMatches(z, window []int32) []int32 {
	n := len(window)
	at := func(i int) int32 { return window[n-1-i] }
	z = slices.Grow(z[:0], n)[:n]
	z[0] = int32(n)
	left, right := 0, 0 // the match that reaches furthest is [left, right)
	for i := 1; i < n; i++ {
		m := 0
		if i < right {
			m = min(right-i, int(z[i-left]))
		}
		for i+m < n && at(m) == at(i+m) {
			m++
		}
		if i+m > right {
			left, right = i, i+m
		}
		z[i] = int32(m)
	}
	return z
}

// DRYBreakers returns the token sequences in which a text can appear, for
// Config.DRYBreakers: each token whose piece contains the text, and each whose
// piece ends in the text's beginning, followed by the tokens of the text's
// rest, 20 at most. It is llama.cpp's expansion of a sequence breaker, and
// looks at every piece of the vocabulary.
//
// The text has 1 to 40 bytes. Piece returns the bytes of a token, specials
// included; tokenize must not add specials. Its error is returned.
func DRYBreakers(text string, vocabulary int, piece func(token int32) []byte, tokenize func(text string) ([]int32, error)) ([][]int32, error) {
	if len(text) == 0 || len(text) > 40 {
		return nil, fmt.Errorf("sampler: the DRY breaker %q has %d bytes, want 1 to 40", text, len(text))
	}
	tails := make([][]int32, len(text)) // by the number of bytes before them
	var breakers [][]int32
	for token := range int32(vocabulary) {
		p := piece(token)
		if bytes.Contains(p, []byte(text)) {
			breakers = append(breakers, []int32{token})
			continue
		}
		for n := min(len(p), len(text)-1); n > 0; n-- {
			if string(p[len(p)-n:]) != text[:n] {
				continue
			}
			if tails[n] == nil {
				tail, err := tokenize(text[n:])
				if err != nil {
					return nil, fmt.Errorf("sampler: the DRY breaker %q: %w", text, err)
				}
				tails[n] = append([]int32{}, tail[:min(len(tail), 20)]...)
			}
			breakers = append(breakers, append([]int32{token}, tails[n]...))
		}
	}
	return breakers, nil
}
