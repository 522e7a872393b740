package speculative

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func newIndex(t *testing.T, o IndexOptions) *Index {
	t.Helper()
	x, err := NewIndex(o)
	require.NoError(t, err)
	return x
}

func addAll(x *Index, tokens ...int32) {
	for _, t := range tokens {
		x.Add(t)
	}
}

func TestFind(t *testing.T) {
	for name, c := range map[string]struct {
		options IndexOptions
		added   []int32
		text    []int32 // the text added, where nil
		want    Match
		none    bool
	}{
		"nothing known":     {text: []int32{1}, none: true},
		"no text":           {added: []int32{1, 2}, text: []int32{}, none: true},
		"one token":         {added: []int32{1}, none: true},
		"never continued":   {added: []int32{1, 2, 3}, none: true},
		"a context of one":  {added: []int32{1, 2, 1}, want: Match{Next: 2, Length: 1, Seen: 1, Votes: 1}},
		"equal pair":        {added: []int32{7, 7, 7}, want: Match{Next: 7, Length: 2, Seen: 1, Votes: 1}},
		"order counts":      {added: []int32{1, 2, 9, 2, 1}, want: Match{Next: 2, Length: 1, Seen: 1, Votes: 1}},
		"longest wins":      {added: []int32{1, 2, 3, 9, 2, 4, 5, 2, 4, 1, 2}, want: Match{Next: 3, Length: 2, Seen: 1, Votes: 1}},
		"one vote":          {added: []int32{1, 2, 1, 2, 1, 3, 1}, want: Match{Next: 3, Length: 1, Seen: 1, Votes: 1}, options: IndexOptions{MaxContext: 1, Votes: 1}},
		"votes against age": {added: []int32{1, 2, 8, 1, 2, 9, 1, 3, 1}, want: Match{Next: 2, Length: 1, Seen: 3, Votes: 2}},
		"a tie is the last": {added: []int32{1, 2, 8, 1, 3, 9, 1}, want: Match{Next: 3, Length: 1, Seen: 2, Votes: 1}},
		"last votes only":   {added: []int32{1, 2, 8, 1, 2, 9, 1, 3, 4, 1, 3, 5, 1}, want: Match{Next: 3, Length: 1, Seen: 2, Votes: 2}, options: IndexOptions{Votes: 2}},
		"length goes on": {
			added: []int32{1, 2, 3, 4, 5, 9, 1, 2, 3, 4}, options: IndexOptions{MaxContext: 2},
			want: Match{Next: 5, Length: 4, Seen: 1, Votes: 1},
		},
		"one level": {added: []int32{1, 2, 3, 4, 2}, options: IndexOptions{MinContext: 2, MaxContext: 2}, none: true},
		"window":    {added: []int32{1, 2, 3, 4, 5, 1}, options: IndexOptions{Window: 5}, none: true},
		"window holds it": {
			added: []int32{1, 2, 3, 4, 5, 1}, options: IndexOptions{Window: 6},
			want: Match{Next: 2, Length: 1, Seen: 1, Votes: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t, c.options)
			addAll(x, c.added...)
			text := c.text
			if text == nil {
				text = c.added
			}
			got, ok := x.Find(text)
			assert.Equal(t, !c.none, ok)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestEndTextSeparates(t *testing.T) {
	x := newIndex(t, IndexOptions{})
	addAll(x, 1, 2)
	x.EndText()
	x.EndText() // a second one changes nothing
	addAll(x, 3, 1)
	_, ok := x.Find([]int32{2})
	assert.False(t, ok, "3 did not follow from 2")
	m, ok := x.Find([]int32{3, 1})
	assert.True(t, ok)
	assert.Equal(t, Match{Next: 2, Length: 1, Seen: 1, Votes: 1}, m)
	assert.Equal(t, 5, x.Len())

	x.Reset()
	assert.Zero(t, x.Len())
	_, ok = x.Find([]int32{1})
	assert.False(t, ok)
}

func TestAddRefusesSeparators(t *testing.T) {
	assert.PanicsWithValue(t, "speculative: token below 0 added to an Index", func() { newIndex(t, IndexOptions{}).Add(-1) })
}

func TestIndexOptions(t *testing.T) {
	for want, o := range map[string]IndexOptions{
		"speculative: MinContext is -1: it must be in [1, 32], or 0 for the default":           {MinContext: -1},
		"speculative: MaxContext is 33: it must be in [1, 32], or 0 for the default":           {MaxContext: 33},
		"speculative: Window is 268435457: it must be in [1, 268435456], or 0 for the default": {Window: 1<<28 + 1},
		"speculative: Votes is 65: it must be in [1, 64], or 0 for the default":                {Votes: 65},
		"speculative: Vocab is -2: it must be in [1, 2147483647], or 0 for the default":        {Vocab: -2},
		"speculative: MinContext is 5: it must be at most MaxContext, which is 4":              {MinContext: 5, MaxContext: 4},
	} {
		_, err := NewIndex(o)
		assert.EqualError(t, err, want)
	}
	x := newIndex(t, IndexOptions{MinContext: 12})
	assert.Equal(t, 12, x.options.MaxContext)
}

// Two contexts whose hashes agree in all that the table looks at are still told
// apart.
func TestHashesThatAgree(t *testing.T) {
	x := newIndex(t, IndexOptions{MinContext: 2, MaxContext: 2})
	one, other := []int32{39935, 6153}, []int32{18044, 44245}
	x.hash(one, 2)
	h := x.hashes[2]
	x.hash(other, 2)
	require.Equal(t, tag(h), tag(x.hashes[2]), "found by trying")
	require.Equal(t, h%512, x.hashes[2]%512)

	addAll(x, one...)
	x.Add(1)
	_, ok := x.Find(other)
	assert.False(t, ok)
	addAll(x, other...)
	x.Add(2)
	for context, next := range map[*[]int32]int32{&one: 1, &other: 2} {
		m, ok := x.Find(*context)
		assert.True(t, ok)
		assert.Equal(t, Match{Next: next, Length: 2, Seen: 1, Votes: 1}, m)
	}
}

// searched is what Find is to answer, by looking through all that was added.
func searched(added []int32, o IndexOptions, text []int32) (Match, bool) {
	added = added[max(0, len(added)-o.Window):]
	matches := func(at, m int) bool {
		if m > len(text) || m > at {
			return false
		}
		for i := 1; i <= m; i++ {
			if added[at-i] != text[len(text)-i] {
				return false
			}
		}
		return true
	}
	for m := o.MaxContext; m >= o.MinContext; m-- {
		votes, last := map[int32]int{}, map[int32]int{}
		var order []int32
		seen := 0
		for at := len(added) - 1; at >= 0 && seen < o.Votes; at-- {
			next := added[at]
			if next == separator || !matches(at, m) {
				continue
			}
			if votes[next] == 0 {
				order, last[next] = append(order, next), at
			}
			votes[next]++
			seen++
		}
		if seen == 0 {
			continue
		}
		best := order[0]
		for _, next := range order {
			if votes[next] > votes[best] {
				best = next
			}
		}
		length := m
		for length < 32 && matches(last[best], length+1) {
			length++
		}
		return Match{Next: best, Length: length, Seen: seen, Votes: votes[best]}, true
	}
	return Match{}, false
}

func TestFindEqualsASearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := IndexOptions{
			MinContext: rapid.IntRange(1, 3).Draw(t, "min"),
			Window:     rapid.IntRange(1, 700).Draw(t, "window"),
			Votes:      rapid.IntRange(1, 10).Draw(t, "votes"),
		}
		o.MaxContext = o.MinContext + rapid.IntRange(0, 6).Draw(t, "more")
		x, err := NewIndex(o)
		require.NoError(t, err)
		symbols := rapid.Int32Range(1, 6).Draw(t, "symbols")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var added, text []int32
		for range rapid.IntRange(1, 900).Draw(t, "tokens") {
			if rng.IntN(100) == 0 {
				x.EndText()
				if len(text) > 0 {
					added = append(added, separator)
				}
				text = text[:0]
			}
			if len(added) > 40 && rng.IntN(20) == 0 { // a stretch once more
				from := rng.IntN(len(added) - 40)
				for _, s := range added[from : from+40] {
					if s != separator {
						x.Add(s)
						added, text = append(added, s), append(text, s)
					}
				}
			}
			s := rng.Int32N(symbols)
			x.Add(s)
			added, text = append(added, s), append(text, s)
			if rng.IntN(4) == 0 {
				want, found := searched(added, o, text)
				got, ok := x.Find(text)
				require.Equal(t, found, ok)
				require.Equal(t, want, got)
			}
		}
		require.Equal(t, min(len(added), o.Window), x.Len())
	})
}

// Numbers of tokens wrap around, and what was found before is found after.
func TestIndexWrapsAround(t *testing.T) {
	x := newIndex(t, IndexOptions{Window: 100})
	x.n -= 50
	rng := rand.New(rand.NewPCG(1, 2))
	var added []int32
	for range 400 {
		s := rng.Int32N(4)
		x.Add(s)
		added = append(added, s)
		want, found := searched(added, x.options, added)
		got, ok := x.Find(added)
		require.Equal(t, found, ok)
		require.Equal(t, want, got)
	}
}

func TestIndexDoesNotAllocateOnceFull(t *testing.T) {
	x := newIndex(t, IndexOptions{Window: 1 << 10})
	rng := rand.New(rand.NewPCG(1, 2))
	text := make([]int32, 0, 1<<14)
	add := func() {
		s := rng.Int32N(50)
		text = append(text, s)
		x.Add(s)
		x.Find(text)
	}
	for range 2000 {
		add()
	}
	assert.Zero(t, testing.AllocsPerRun(1000, add))
}

func TestSaveAndLoad(t *testing.T) {
	x := newIndex(t, IndexOptions{Window: 5000, Vocab: 40})
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 7000 {
		x.Add(rng.Int32N(40))
		if i%1000 == 7 {
			x.EndText()
		}
	}
	var file bytes.Buffer
	require.NoError(t, x.Save(&file))
	assert.Equal(t, 28+4*5000, file.Len())

	y, err := LoadIndex(bytes.NewReader(file.Bytes()), IndexOptions{Window: 5000, Vocab: 40})
	require.NoError(t, err)
	for range 500 {
		text := []int32{rng.Int32N(40), rng.Int32N(40), rng.Int32N(40)}
		want, found := x.Find(text)
		got, ok := y.Find(text)
		require.Equal(t, found, ok)
		require.Equal(t, want, got)
	}
	var again bytes.Buffer
	require.NoError(t, y.Save(&again))
	assert.Equal(t, file.Bytes(), again.Bytes())

	short, err := LoadIndex(bytes.NewReader(file.Bytes()), IndexOptions{Window: 100})
	require.NoError(t, err)
	assert.Equal(t, 100, short.Len())
	assert.Equal(t, 40, short.options.Vocab, "the file's")
}

func TestSaveRefusesTokensOutsideTheVocabulary(t *testing.T) {
	x := newIndex(t, IndexOptions{Vocab: 3})
	addAll(x, 2, 3)
	var file bytes.Buffer
	assert.EqualError(t, x.Save(&file), "speculative: save index: it holds token 3: IndexOptions.Vocab is 3, and must be above all tokens, or 0 if not known")
	assert.Zero(t, file.Len())
}

func TestLoadRefuses(t *testing.T) {
	x := newIndex(t, IndexOptions{Vocab: 10})
	addAll(x, 1, 2, 3)
	var file bytes.Buffer
	require.NoError(t, x.Save(&file))
	good := file.Bytes()
	changed := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	for want, c := range map[string]struct {
		file    []byte
		options IndexOptions
	}{
		"speculative: not a usable n-gram index: the header is incomplete: EOF":                     {file: nil},
		"speculative: not a usable n-gram index: the header is incomplete: unexpected EOF":          {file: good[:27]},
		`speculative: not a usable n-gram index: it does not begin with "sortesNG"`:                 {file: changed(0, 'x')},
		"speculative: not a usable n-gram index: the checksum of the header is wrong":               {file: changed(12, 11)},
		"speculative: not a usable n-gram index: it is for a vocabulary of 10, not of 11":           {file: good, options: IndexOptions{Vocab: 11}},
		"speculative: not a usable n-gram index: it ends 3 tokens early: unexpected EOF":            {file: good[:len(good)-1]},
		"speculative: not a usable n-gram index: token 10 outside the vocabulary of 10":             {file: changed(32, 10)},
		"speculative: not a usable n-gram index: token -2130706431 outside the vocabulary of 10":    {file: changed(31, 0x81)},
		"speculative: not a usable n-gram index: the checksum of the tokens is wrong":               {file: changed(32, 9)},
		"speculative: not a usable n-gram index: token -5 outside the vocabulary of 0":              {file: headed(1, 0, 1, 0, []byte{251, 255, 255, 255})},
		"speculative: not a usable n-gram index: it has version 2: this program reads 1":            {file: headed(2, 0, 0, 0, nil)},
		"speculative: not a usable n-gram index: 268435457 tokens: it must be at most 268435456":    {file: headed(1, 0, 1<<28+1, 0, nil)},
		"speculative: not a usable n-gram index: a vocabulary of 2147483648: it must be below 2^31": {file: headed(1, 1<<31, 0, 0, nil)},
	} {
		_, err := LoadIndex(bytes.NewReader(c.file), c.options)
		assert.EqualError(t, err, want)
		assert.ErrorIs(t, err, ErrIndexFile)
	}
	_, err := LoadIndex(bytes.NewReader(good), IndexOptions{Votes: -1})
	assert.EqualError(t, err, "speculative: Votes is -1: it must be in [1, 64], or 0 for the default")
}

// FuzzLoadIndex hands over any file, with a right checksum of the header too:
// it is refused or gives an index that works, and memory goes by what is there.
func FuzzLoadIndex(f *testing.F) {
	x, err := NewIndex(IndexOptions{Vocab: 10})
	require.NoError(f, err)
	addAll(x, 1, 2, 3, 1, 2)
	x.EndText()
	var file bytes.Buffer
	require.NoError(f, x.Save(&file))
	f.Add(file.Bytes())
	f.Add(file.Bytes()[:20])
	f.Add(headed(1, 0, 1<<28, 0, nil))
	f.Add(headed(1, 5, 2, 0, []byte{1, 0, 0, 0, 255, 255, 255, 255}))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, mended(b)} {
			x, err := LoadIndex(bytes.NewReader(b), IndexOptions{Window: 64})
			if err != nil {
				require.Nil(t, x)
				continue
			}
			require.LessOrEqual(t, x.Len(), 64)
			x.Find([]int32{1, 2})
			addAll(x, 0, 0)
			var out bytes.Buffer
			require.NoError(t, x.Save(&out))
			_, err = LoadIndex(&out, IndexOptions{Window: 64})
			require.NoError(t, err)
		}
	})
}

// headed makes a file with a right checksum of its header.
func headed(version, vocab, count, sum uint32, tokens []byte) []byte {
	b := []byte(indexMagic)
	for _, v := range []uint32{version, vocab, count, sum} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return append(binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b)), tokens...)
}

// mended makes the checksums of a file right.
func mended(b []byte) []byte {
	if len(b) < indexHeader {
		return b
	}
	b = bytes.Clone(b)
	copy(b, indexMagic)
	binary.LittleEndian.PutUint32(b[8:], indexVersion)
	binary.LittleEndian.PutUint32(b[20:], crc32.ChecksumIEEE(b[indexHeader:]))
	binary.LittleEndian.PutUint32(b[24:], crc32.ChecksumIEEE(b[:24]))
	return b
}
