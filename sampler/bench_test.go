package sampler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// benchRows returns rows like those of a model: normally distributed, a few
// tokens far above the rest.
func benchRows(n int) [][]float32 {
	r := rand.New(rand.NewPCG(1, 2))
	rows := make([][]float32, 4)
	for i := range rows {
		rows[i] = make([]float32, n)
		for j := range rows[i] {
			rows[i][j] = float32(r.NormFloat64() * 3)
		}
		for j := range 20 {
			rows[i][r.IntN(n)] = float32(18 - j/2)
		}
	}
	return rows
}

func BenchmarkPick(b *testing.B) {
	penalised := Default()
	penalised.RepeatPenalty, penalised.FrequencyPenalty = 1.1, 0.1
	history := make([]int32, 500)
	for i := range history {
		history[i] = int32(i * 7)
	}
	for _, bench := range []struct {
		name string
		c    Config
	}{
		{"greedy", Config{}},
		{"default", Default()},
		{"penalties", penalised},
		{"top_k=1000", Config{Temperature: 0.8, TopK: 1000}},
		{"min_p", Config{Temperature: 0.8, MinP: 0.05}},
		{"top_p", Config{Temperature: 0.8, TopP: 0.95}},
		{"temperature", Config{Temperature: 0.8}},
		{"dry", Config{Temperature: 0.8, TopK: 40, DRYMultiplier: 0.8, DRYBase: 1.75, DRYAllowedLength: 2, DRYLastN: 1024, DRYBreakers: [][]int32{{13}}}},
		{"dynamic", Config{Temperature: 0.8, DynTempRange: 0.5}},
		{"top_n_sigma", Config{Temperature: 0.8, TopNSigma: 1}},
		{"typ_p", Config{Temperature: 0.8, TypicalP: 0.95}},
		{"eta", Config{Temperature: 0.8, Eta: 0.001}},
		{"top_a", Config{Temperature: 0.8, TopA: 0.1}},
		{"tfs", Config{Temperature: 0.8, TailFreeZ: 0.95}},
		{"mirostat", Config{Temperature: 0.8, Mirostat: 2, MirostatTau: 5, MirostatEta: 0.1}},
		{"adaptive_p", Config{Temperature: 0.8, AdaptiveTarget: 0.3, AdaptiveDecay: 0.9}},
		{"inverse", Config{Temperature: 0.8, DrawMethod: DrawInverse}},
	} {
		for _, n := range []int{49152, 128256, 262144} {
			b.Run(fmt.Sprintf("%s/%d", bench.name, n), func(b *testing.B) {
				s, err := New(bench.c)
				if err != nil {
					b.Fatal(err)
				}
				rows, i := benchRows(n), 0
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.Pick(rows[i%len(rows)], history, Draw{Pos: i}); err != nil {
						b.Fatal(err)
					}
					i++
				}
			})
		}
	}
}

// Rows without a favourite, of which top-p and typical keep most tokens.
func BenchmarkPickFlat(b *testing.B) {
	const n = 128256
	r := rand.New(rand.NewPCG(1, 2))
	row := make([]float32, n)
	for i := range row {
		row[i] = float32(r.NormFloat64())
	}
	for _, bench := range []struct {
		name string
		c    Config
	}{
		{"top_p", Config{Temperature: 1, TopP: 0.95}},
		{"typ_p", Config{Temperature: 1, TypicalP: 0.95}},
		{"tfs", Config{Temperature: 1, TailFreeZ: 0.95}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			s, err := New(bench.c)
			if err != nil {
				b.Fatal(err)
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Pick(row, nil, Draw{Pos: i}); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

func BenchmarkDist(b *testing.B) {
	for _, bench := range []struct {
		name string
		c    Config
	}{
		{"default", Default()},
		{"top_p", Config{Temperature: 0.8, TopP: 0.95}},
		{"temperature", Config{Temperature: 0.8}},
	} {
		for _, n := range []int{49152, 128256, 262144} {
			b.Run(fmt.Sprintf("%s/%d", bench.name, n), func(b *testing.B) {
				s, err := New(bench.c)
				if err != nil {
					b.Fatal(err)
				}
				var d Dist
				rows, i := benchRows(n), 0
				b.ReportAllocs()
				for b.Loop() {
					if err := s.Dist(&d, rows[i%len(rows)], nil); err != nil {
						b.Fatal(err)
					}
					i++
				}
			})
		}
	}
}

// Rows whose order or values suit a running threshold badly.
func BenchmarkPickAdverse(b *testing.B) {
	const n = 128256
	ascending, equal, masked := make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range n {
		ascending[i] = float32(i) * 20 / n
		masked[i] = float32(math.Inf(-1))
	}
	masked[n/2] = 1
	for name, row := range map[string][]float32{"ascending": ascending, "equal": equal, "masked": masked} {
		for _, bench := range []struct {
			name string
			c    Config
		}{{"default", Default()}, {"temperature", Config{Temperature: 0.8}}} {
			b.Run(name+"/"+bench.name, func(b *testing.B) {
				s, _ := New(bench.c)
				i := 0
				for b.Loop() {
					if _, err := s.Pick(row, nil, Draw{Pos: i}); err != nil {
						b.Fatal(err)
					}
					i++
				}
			})
		}
	}
}

func BenchmarkLogProb(b *testing.B) {
	row := benchRows(128256)[0]
	for b.Loop() {
		LogProb(row, 5)
	}
}

func BenchmarkTopLogProbs(b *testing.B) {
	row := benchRows(128256)[0]
	var dst []TokenLogProb
	for b.Loop() {
		dst = TopLogProbs(dst[:0], row, 20)
	}
}
