package tinymodel

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sortes-llm/sortes/internal/gguf"
)

func read(t *testing.T, model []byte) *gguf.File {
	t.Helper()
	f, err := gguf.Read(bytes.NewReader(model), int64(len(model)))
	require.NoError(t, err)
	require.NoError(t, f.Check())
	return f
}

func data(f *gguf.File, model []byte, name string) []byte {
	i := slices.IndexFunc(f.Tensors, func(x gguf.Tensor) bool { return x.Name == name })
	at := f.DataOffset + f.Tensors[i].Offset
	return model[at : at+f.Tensors[i].Size]
}

func floats(b []byte) []float64 {
	var x []float64
	for ; len(b) > 0; b = b[4:] {
		x = append(x, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
	}
	return x
}

// The models are the same on every machine and day. Whoever changes one on
// purpose changes its sum here.
func TestModelsAreFixed(t *testing.T) {
	for name, c := range map[string]struct {
		model []byte
		sum   string
	}{
		"llama":   {Llama(Options{}), "69d4bc8a7f955f26"},
		"spm":     {Llama(Options{Tokenizer: SPM, Type: gguf.Q4_0, Seed: 7}), "fb336853d90332c6"},
		"window":  {SlidingWindow(Options{}), "2aae88bb579935d1"},
		"mamba":   {Recurrent(Options{}), "9312f77ad5c642f7"},
		"hybrid":  {Hybrid(Options{}), "b0c06154b1520bcc"},
		"encoder": {Encoder(Options{}), "886d11475c561598"},
		"adapter": {Adapter(Options{}), "b9ce642edb77fddb"},
		"draft":   {Llama(Options{Noise: 0.1}), "e07502025f089abf"},
	} {
		sum := sha256.Sum256(c.model)
		assert.Equal(t, c.sum, hex.EncodeToString(sum[:8]), name)
		assert.Less(t, len(c.model), 800<<10, name)
		read(t, c.model)
	}
}

func TestOptions(t *testing.T) {
	plain := Llama(Options{})
	assert.NotEqual(t, plain, Llama(Options{Seed: 1}))
	f := read(t, Llama(Options{Layers: 5}))
	layers, _ := f.Lookup("llama.block_count")
	assert.Equal(t, "5", layers.String())
	// The layers that both have are the same: a shallower draft of the same model.
	g := read(t, plain)
	for _, x := range g.Tensors {
		assert.Equal(t, data(g, plain, x.Name), data(f, Llama(Options{Layers: 5}), x.Name), x.Name)
	}
	kvHeads, _ := read(t, Hybrid(Options{Layers: 3})).Lookup("lfm2.attention.head_count_kv")
	assert.Equal(t, "[0, 2, 0]", kvHeads.String())
	small := read(t, Llama(Options{Type: gguf.Q4_0}))
	for _, x := range small.Tensors {
		want := gguf.F32
		if len(x.Shape) == 2 {
			want = gguf.Q4_0
		}
		assert.Equal(t, want, x.Type, x.Name)
	}
}

// Noise n leaves a correlation of 1/sqrt(1+n^2) and the variance as it is.
func TestNoise(t *testing.T) {
	const name, noise = "blk.0.ffn_up.weight", 0.75
	a, b := Llama(Options{}), Llama(Options{Noise: noise})
	x, y := floats(data(read(t, a), a, name)), floats(data(read(t, b), b, name))
	var xx, yy, xy float64
	for i := range x {
		xx += x[i] * x[i]
		yy += y[i] * y[i]
		xy += x[i] * y[i]
	}
	assert.InDelta(t, 1, yy/xx, 0.05)
	assert.InDelta(t, 0.8, xy/math.Sqrt(xx*yy), 0.02) // 1/1.25
	assert.Equal(t, floats(data(read(t, a), a, "output_norm.weight")), floats(data(read(t, b), b, "output_norm.weight")), "factors of one stay")
}

func TestSplit(t *testing.T) {
	m := Llama(Options{})
	whole := read(t, m)
	parts := Split(m, 3)
	var names []string
	for i, part := range parts {
		f := read(t, part)
		no, _ := f.Lookup("split.no")
		count, _ := f.Lookup("split.count")
		tensors, _ := f.Lookup("split.tensors.count")
		assert.Equal(t, []any{uint64(i), uint64(3), uint64(len(whole.Tensors))}, []any{must(no.Uint()), must(count.Uint()), must(tensors.Uint())})
		_, ok := f.Lookup("general.architecture")
		assert.Equal(t, i == 0, ok)
		for _, x := range f.Tensors {
			names = append(names, x.Name)
			assert.Equal(t, data(whole, m, x.Name), data(f, part, x.Name))
		}
	}
	var want []string
	for _, x := range whole.Tensors {
		want = append(want, x.Name)
	}
	assert.Equal(t, want, names)
	assert.Len(t, Split(m, 1), 1)
	for _, n := range []int{0, -1, 1000} {
		assert.PanicsWithValue(t, "tinymodel: not a model, or not in so many parts", func() { Split(m, n) })
	}
	assert.Panics(t, func() { Split(nil, 1) })
}

func must(u uint64, ok bool) uint64 {
	if !ok {
		panic("not a number")
	}
	return u
}

func TestSave(t *testing.T) {
	dir := t.TempDir()
	path := Save(dir, "m.gguf", []byte("model"))
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "model", string(b))
	assert.Panics(t, func() { Save(dir+"/none", "m.gguf", nil) })
	assert.Equal(t, dir+"/m-00001-of-00002.gguf", SaveSplit(dir, "m", [][]byte{{1}, {2}}))
	b, err = os.ReadFile(dir + "/m-00002-of-00002.gguf")
	require.NoError(t, err)
	assert.Equal(t, []byte{2}, b)
}

func TestTokens(t *testing.T) {
	for _, tok := range []Tokenizer{BPE, SPM} {
		f := read(t, Llama(Options{Tokenizer: tok}))
		list, _ := f.Lookup("tokenizer.ggml.tokens")
		kinds, _ := f.Lookup("tokenizer.ggml.token_type")
		var texts []string
		for e := range list.All() {
			s, _ := e.Text()
			texts = append(texts, s)
		}
		assert.Len(t, texts, Vocab)
		assert.Equal(t, Vocab, kinds.Len())
		assert.Equal(t, []string{"<unk>", "<s>", "</s>", "<|im_end|>", "<tool>"}, texts[:5])
		seen := map[string]bool{}
		for _, s := range texts {
			assert.False(t, seen[s], s)
			seen[s] = true
		}
		byteToken := func(c byte) string { return texts[Byte+int32(c)] }
		the := texts[slices.Index(texts, "the")+12]
		if tok == BPE {
			// As bytes_to_unicode of GPT-2 has them.
			for c, r := range map[byte]rune{0: 0x100, '\t': 0x109, '\n': 0x10a, ' ': 0x120, '!': '!', '~': '~', 127: 0x121, 160: 0x142, 161: 161, 173: 0x143, 174: 174, 255: 255} {
				assert.Equal(t, string(r), byteToken(c))
			}
			assert.Equal(t, "Ġthe", the)
		} else {
			assert.Equal(t, "<0x00>", byteToken(0))
			assert.Equal(t, "<0x0A>", byteToken('\n'))
			assert.Equal(t, "\u2581", byteToken(' '))
			assert.Equal(t, "<0xFF>", byteToken(255))
			assert.Equal(t, "\u2581the", the)
		}
	}
}
