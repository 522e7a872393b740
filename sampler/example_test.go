package sampler_test

import (
	"fmt"
	"slices"

	"github.com/sortes-llm/sortes/sampler"
)

func Example() {
	c := sampler.Default()
	c.TopK, c.Temperature = 3, 0.7
	s, err := sampler.New(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	logits := []float32{2, 1, 0.5, 0, -1, -3} // from a model, indexed by token

	var d sampler.Dist
	if err := s.Dist(&d, logits, nil); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s)
	for i := range d.Len() {
		fmt.Printf("token %d: %.3f\n", d.Token(i), d.Prob(i))
	}

	var history []int32
	for pos := range 8 {
		token, err := s.Pick(logits, history, sampler.Draw{Seed: 3, Pos: pos})
		if err != nil {
			fmt.Println(err)
			return
		}
		history = append(history, token)
	}
	fmt.Println(history)
	// Output:
	// top_k(3) -> top_p(0.95) -> min_p(0.05) -> temperature(0.7) -> draw
	// token 0: 0.737
	// token 1: 0.177
	// token 2: 0.086
	// [0 0 2 2 1 0 2 0]
}

// A filter of one's own stands in the order by its name.
func ExampleStep() {
	odd := sampler.StepFunc(func(c *sampler.Candidates, _ []int32) error {
		c.Keep(func(x sampler.Candidate) bool { return x.ID%2 == 1 })
		return nil
	})
	order := sampler.DefaultOrder()
	c := sampler.Config{
		Temperature: 1,
		TopK:        2,
		Order:       slices.Insert(order, slices.Index(order, "top_k"), "odd"),
		Steps:       map[string]sampler.Step{"odd": odd},
	}
	s, err := sampler.New(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	var d sampler.Dist
	if err := s.Dist(&d, []float32{2, 1, 0.5, 0, -1, -3}, nil); err != nil {
		fmt.Println(err)
		return
	}
	for i := range d.Len() {
		fmt.Printf("token %d: %.3f\n", d.Token(i), d.Prob(i))
	}
	// Output:
	// token 1: 0.731
	// token 3: 0.269
}

// A trace says what each filter left.
func ExampleSampler_Trace() {
	s, err := sampler.New(sampler.Config{TopK: 4, TopP: 0.8, Temperature: 0.5})
	if err != nil {
		fmt.Println(err)
		return
	}
	trace := sampler.Trace{Top: 1}
	s.Trace(&trace)
	if _, err := s.Pick([]float32{2, 1, 0.5, 0, -1, -3}, nil, sampler.Draw{Seed: 3}); err != nil {
		fmt.Println(err)
		return
	}
	for _, step := range trace.Steps {
		fmt.Printf("%s: %d candidates, the first with %.3f\n", step.Name, step.Count, step.Top[0].Prob)
	}
	fmt.Printf("token %d of probability %.3f\n", trace.Token, trace.Prob)
	// Output:
	// logits: 6 candidates, the first with 0.561
	// top_k: 4 candidates, the first with 0.579
	// top_p: 3 candidates, the first with 0.629
	// temperature: 3 candidates, the first with 0.844
	// token 0 of probability 0.844
}

// With mirostat a sampler belongs to one sequence and hears of its tokens.
func ExampleSampler_Accept() {
	s, err := sampler.New(sampler.Config{Temperature: 1, Mirostat: 2, MirostatTau: 1, MirostatEta: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	logits := []float32{2, 1, 0.5, 0, -1, -3}
	for range 3 {
		var d sampler.Dist
		if err := s.Dist(&d, logits, nil); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(d.Len(), "tokens")
		s.Accept(0) // no surprise: the next may be more surprising
	}
	// Output:
	// 1 tokens
	// 3 tokens
	// 3 tokens
}

// Contrastive decoding prefers what a better model finds likely and a weaker
// one does not.
func ExampleContrast() {
	expert := []float32{3, 2.5, 1, 0}
	amateur := []float32{2, 0.5, 1.5, 0}
	row := make([]float32, 4)
	sampler.Contrast{Form: sampler.ContrastLogits, Alpha: 0.1, Beta: 1}.Logits(row, expert, amateur)
	fmt.Println(row)
	// Output: [4 4.5 0.5 -Inf]
}
