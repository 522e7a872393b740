package speculative_test

import (
	"context"
	"fmt"

	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
	"github.com/sortes-llm/sortes/speculative"
)

// rows answers for a target whose logits are a function of the text.
type rows struct {
	sampler *sampler.Sampler
	text    []int32 // draft included
	start   int     // where the draft begins
	seed    uint64
}

func (r rows) Pick(i int) (int32, error) {
	prefix := r.text[:r.start+i]
	return r.sampler.Pick(logits(prefix), prefix, sampler.Draw{Seed: r.seed, Pos: len(prefix)})
}

func (r rows) Dist(dst *sampler.Dist, i int) error {
	prefix := r.text[:r.start+i]
	return r.sampler.DistAt(dst, logits(prefix), prefix, sampler.Draw{Seed: r.seed, Pos: len(prefix)})
}

func logits(prefix []int32) []float32 {
	row := make([]float32, 32)
	tablemodel.Hashed(7)(row, prefix)
	return row
}

// A small model drafts, here one that is the target itself, so that every draft
// stands and a round brings four tokens.
func Example() {
	s, _ := sampler.New(sampler.Default())
	drafter, _ := speculative.NewModel(tablemodel.New(tablemodel.Config{Logits: tablemodel.Hashed(7)}), speculative.ModelOptions{})
	var verifier speculative.Verifier
	const seed = 1
	text := []int32{3, 4}
	for range 3 {
		draft, err := drafter.Draft(context.Background(), speculative.Text{History: text, PromptLen: 2, Sampler: s, Seed: seed}, 3)
		if err != nil {
			fmt.Println(err)
			return
		}
		target := rows{s, append(text, draft.Tokens...), len(text), seed}
		k, next, err := verifier.Verify(speculative.Coupled, target, draft, sampler.Draw{Seed: seed, Pos: len(text)})
		if err != nil {
			fmt.Println(err)
			return
		}
		text = append(append(text, draft.Tokens[:k]...), next)
		fmt.Println(k, "of", len(draft.Tokens), "drafted tokens stand")
	}

	for i := 2; i < len(text); i++ { // plain decoding has the same text
		x, _ := s.Pick(logits(text[:i]), text[:i], sampler.Draw{Seed: seed, Pos: i})
		fmt.Print(x == text[i], " ")
	}
	// Output:
	// 3 of 3 drafted tokens stand
	// 3 of 3 drafted tokens stand
	// 3 of 3 drafted tokens stand
	// true true true true true true true true true true true true
}
