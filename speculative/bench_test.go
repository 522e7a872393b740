package speculative

import (
	"fmt"
	"testing"

	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
)

// BenchmarkVerify judges a draft of 4 tokens, of a vocabulary of 49,152: what
// the rules cost beside each other.
func BenchmarkVerify(b *testing.B) {
	const vocab = 49152
	row, other := make([]float32, vocab), make([]float32, vocab)
	tablemodel.Hashed(1)(row, nil)
	near(tablemodel.Hashed(1))(other, nil)
	for name, config := range map[string]sampler.Config{"default": sampler.Default(), "temperature": {Temperature: 1}} {
		for _, rule := range []Rule{Coupled, Block, Token} {
			b.Run(fmt.Sprint(name, "/", rule), func(b *testing.B) {
				s, err := sampler.New(config)
				if err != nil {
					b.Fatal(err)
				}
				var v Verifier
				text := []int32{1, 2, 3}
				d := Draft{Dists: make([]sampler.Dist, 4)}
				for i := range 4 {
					x, err := rule.Draw(&d.Dists[i], s, other, text, 1, 3)
					if err != nil {
						b.Fatal(err)
					}
					text = append(text, x)
				}
				d.Tokens = text[3:]
				target := &samplerTarget{logits: func([]float32, []int32) {}, row: row, sampler: s, text: text, start: 3}
				seed := uint64(0)
				for b.Loop() {
					target.done, target.seed = 0, seed
					_, _, err := v.Verify(rule, target, d, sampler.Draw{Seed: seed, Pos: 3})
					if err != nil {
						b.Fatal(err)
					}
					seed++
				}
			})
		}
	}
}
