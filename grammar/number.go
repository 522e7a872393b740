package grammar

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
)

// number returns the expression of the numbers that are valid at all of the
// places, of the whole ones only where whole is set.
func (c *converter) number(flat []at, whole bool) (string, error) {
	ones, err := multiple(flat)
	if err != nil {
		return "", err
	}
	whole = whole || ones
	var low, high *limit
	for _, p := range flat {
		o := p.schema.(*object)
		for _, keyword := range specific["number"] {
			v, ok := o.values[keyword].(json.Number)
			if !ok || keyword == "multipleOf" {
				continue
			}
			x, ok := new(big.Rat).SetString(v.String())
			if !ok || x.Num().BitLen() > 300 || x.Denom().BitLen() > 150 {
				return "", problem(stepPath(p.path, keyword), "%s has too many digits for a grammar", v)
			}
			l := &limit{x, strings.HasPrefix(keyword, "exclusive")}
			if strings.HasSuffix(strings.ToLower(keyword), "minimum") {
				low = tighter(low, l, 1)
			} else {
				high = tighter(high, l, -1)
			}
		}
	}
	if low == nil && high == nil {
		if whole {
			return c.use("integer"), nil
		}
		return c.use("number"), nil
	}
	if whole {
		return integers(low, high), nil
	}
	return decimals(low, high), nil
}

// A limit is a bound of a range, which open leaves out.
type limit struct {
	x    *big.Rat
	open bool
}

// tighter returns the one of two bounds that lets less through; sign is 1 for
// lower bounds and -1 for upper ones.
func tighter(a, b *limit, sign int) *limit {
	if a == nil {
		return b
	}
	if cmp := a.x.Cmp(b.x) * sign; cmp > 0 || cmp == 0 && a.open {
		return a
	}
	return b
}

func (l *limit) negated() *limit {
	if l == nil {
		return nil
	}
	return &limit{new(big.Rat).Neg(l.x), l.open}
}

// floor returns the largest whole number that is not above x.
func floor(x *big.Rat) *big.Int { return new(big.Int).Div(x.Num(), x.Denom()) }

var one = big.NewInt(1)

// reach is the largest whole number of a range whose other bound is x: one of
// 16 digits, or of one more than x has.
func reach(x *big.Int) *big.Int {
	digits := max(16, len(new(big.Int).Abs(x).String())+1)
	n := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil)
	return n.Sub(n, one)
}

// integers returns the expression of the whole numbers in a range, "" if there
// are none.
func integers(low, high *limit) string {
	var lo, hi *big.Int
	if low != nil {
		lo = floor(low.x)
		if !low.x.IsInt() || low.open {
			lo.Add(lo, one)
		}
	}
	if high != nil {
		hi = floor(high.x)
		if high.x.IsInt() && high.open {
			hi.Sub(hi, one)
		}
	}
	if lo == nil {
		lo = new(big.Int).Neg(reach(hi))
	}
	if hi == nil {
		hi = reach(lo)
	}
	var all []string
	if lo.Sign() < 0 {
		from, to := new(big.Int).Neg(hi), new(big.Int).Neg(lo)
		if from.Sign() <= 0 {
			from.Set(one)
		}
		if s := naturals(from, to); s != "" {
			all = append(all, `"-" `+s)
		}
	}
	if hi.Sign() >= 0 {
		if lo.Sign() < 0 {
			lo = new(big.Int)
		}
		if s := naturals(lo, hi); s != "" {
			all = append(all, s)
		}
	}
	return alternatives(all)
}

// naturals returns the expression of the whole numbers from lo, at least 0, to
// hi.
func naturals(lo, hi *big.Int) string {
	if lo.Cmp(hi) > 0 {
		return ""
	}
	a, b := lo.String(), hi.String()
	if len(a) == len(b) {
		return between(a, b)
	}
	all := []string{between(a, strings.Repeat("9", len(a)))}
	if n, m := len(a), len(b)-2; n <= m { // numbers with more digits than a and fewer than b
		all = append(all, "[1-9] [0-9]"+times(n, m))
	}
	all = append(all, between("1"+strings.Repeat("0", len(b)-1), b))
	return alternatives(all)
}

// between returns the expression of the strings of digits from a to b, which
// have the same length.
func between(a, b string) string {
	switch {
	case a == b:
		return quote(a)
	case a[0] == b[0]:
		n := 1
		for a[n] == b[n] {
			n++
		}
		return quote(a[:n]) + " " + between(a[n:], b[n:])
	}
	rest := len(a) - 1
	lo, hi := a[0], b[0]
	var all []string
	if strings.Trim(a[1:], "0") != "" {
		all = append(all, quote(a[:1])+" "+between(a[1:], strings.Repeat("9", rest)))
		lo++
	}
	last := ""
	if strings.Trim(b[1:], "9") != "" {
		last = quote(b[:1]) + " " + between(strings.Repeat("0", rest), b[1:])
		hi--
	}
	if lo <= hi {
		all = append(all, digits(lo, hi)+anyDigits(rest))
	}
	if last != "" {
		all = append(all, last)
	}
	return alternatives(all)
}

func digits(lo, hi byte) string {
	if lo == hi {
		return quote(string(lo))
	}
	return fmt.Sprintf("[%c-%c]", lo, hi)
}

// anyDigits returns n digits of any value, with a blank before them.
func anyDigits(n int) string {
	if n == 0 {
		return ""
	}
	return " [0-9]" + times(n, n)
}

// fraction is the part of a number behind the point, at most 16 digits more
// than a bound has.
const (
	anyFraction  = `("." [0-9]{1,16})?`
	moreDigits   = `[0-9]{0,16}`
	zeroFraction = `("." "0"{1,16})?`
)

// decimals returns the expression of the numbers in a range, without exponents,
// "" if there are none.
func decimals(low, high *limit) string {
	zero := &limit{x: new(big.Rat)}
	var all []string
	if low == nil || low.x.Sign() < 0 {
		// The mirror image of a range above zero. Zero itself has no sign.
		from := high.negated()
		if from == nil || from.x.Sign() < 0 || from.x.Sign() == 0 {
			from = &limit{x: new(big.Rat), open: true}
		}
		if s := positives(from, low.negated()); s != "" {
			all = append(all, `"-" `+s)
		}
	}
	if high == nil || high.x.Sign() >= 0 {
		from := low
		if from == nil || from.x.Sign() < 0 {
			from = zero
		}
		if s := positives(from, high); s != "" {
			all = append(all, s)
		}
	}
	return alternatives(all)
}

// positives returns the expression of the numbers in a range from 0 or above.
func positives(low, high *limit) string {
	a := floor(low.x)
	lowTail := &tail{fractionOf(low.x), low.open}
	var b *big.Int
	var highTail *tail
	if high == nil {
		b = reach(a)
	} else {
		b, highTail = floor(high.x), &tail{fractionOf(high.x), high.open}
	}
	switch a.Cmp(b) {
	case 1:
		return ""
	case 0:
		return withFraction(quote(a.String()), lowTail, highTail)
	}
	var all []string
	first, last := a, b
	if lowTail.digits != "" || lowTail.open {
		if s := withFraction(quote(a.String()), lowTail, nil); s != "" {
			all = append(all, s)
		}
		first = new(big.Int).Add(a, one)
	}
	ending := ""
	if highTail != nil {
		ending = withFraction(quote(b.String()), nil, highTail)
		last = new(big.Int).Sub(b, one)
	}
	if s := naturals(first, last); s != "" {
		all = append(all, s+" "+anyFraction)
	}
	if ending != "" {
		all = append(all, ending)
	}
	return alternatives(all)
}

// fractionOf returns the digits behind the point of a number not below 0, which
// are finite, without zeros at the end.
func fractionOf(x *big.Rat) string {
	n, _ := x.FloatPrec()
	_, digits, _ := strings.Cut(x.FloatString(n), ".")
	return digits
}

// A tail is a bound of the digits behind the point, from some digit on: 0.digits.
// It has no zeros at the end.
type tail struct {
	digits string
	open   bool
}

// head returns the first digit of a tail, and the tail behind it.
func (t *tail) head() (byte, *tail) {
	if t.digits == "" {
		return '0', t
	}
	return t.digits[0], &tail{t.digits[1:], t.open}
}

// endsIn reports whether no more digits are in the range.
func endsIn(low, high *tail) bool {
	return (low == nil || low.digits == "" && !low.open) && (high == nil || high.digits != "" || !high.open)
}

// withFraction returns the expression of a whole part and the fractions from
// low to high; nil is no bound.
func withFraction(whole string, low, high *tail) string {
	digits := fractions(low, high)
	switch {
	case digits == "" && !endsIn(low, high):
		return ""
	case digits == "":
		return whole
	case endsIn(low, high):
		return whole + ` ("." ` + digits + ")?"
	}
	return whole + ` "." ` + digits
}

// fractions returns the expression of one digit or more in a range, "" if there
// are none.
func fractions(low, high *tail) string {
	if low != nil && low.digits == "" && !low.open {
		low = nil
	}
	switch {
	case low == nil && high == nil:
		return "[0-9]{1,16}"
	case high != nil && high.digits == "": // nothing but zeros
		if high.open || low != nil {
			return ""
		}
		return `"0"{1,16}`
	case low != nil && low.digits == "" && high == nil: // anything but zeros
		return `"0"{0,15} [1-9] ` + moreDigits
	}
	from, to := byte('0'), byte('9')
	var lowRest, highRest *tail
	if low != nil {
		from, lowRest = low.head()
	}
	if high != nil {
		to, highRest = high.head()
	}
	var all []string
	add := func(digit byte, low, high *tail) {
		rest := fractions(low, high)
		switch {
		case rest != "" && endsIn(low, high):
			all = append(all, quote(string(digit))+" ("+rest+")?")
		case rest != "":
			all = append(all, quote(string(digit))+" "+rest)
		case endsIn(low, high):
			all = append(all, quote(string(digit)))
		}
	}
	switch {
	case from > to:
		return ""
	case from == to && low != nil && high != nil:
		add(from, lowRest, highRest)
		return alternatives(all)
	}
	if low != nil {
		add(from, lowRest, nil)
		from++
	}
	if high != nil {
		to--
	}
	if from <= to {
		all = append(all, digits(from, to)+" "+moreDigits)
	}
	if high != nil {
		add(to+1, nil, highRest)
	}
	return alternatives(all)
}
