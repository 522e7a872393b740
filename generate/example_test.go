package generate_test

import (
	"context"
	"fmt"
	"log"

	"github.com/sortes-llm/sortes/generate"
	"github.com/sortes-llm/sortes/internal/tablemodel"
	"github.com/sortes-llm/sortes/sampler"
)

// The model here is a table of eight tokens; with package llama it is a
// Session, and the vocabulary its Model's.
func Example() {
	vocab := tablemodel.Vocab{
		Pieces: []string{"<s>", "</s>", "Lots", " are", " drawn", ".", "\n", "\nHuman:"},
		EOG:    []int32{1},
	}
	model := tablemodel.New(tablemodel.Config{
		Vocab:  len(vocab.Pieces),
		Logits: tablemodel.Script(1, 2, 3, 4, 5, 7), // what follows one token of prompt
	})

	engine, err := generate.New(model, vocab, generate.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()

	var stats generate.Stats
	stream := engine.Stream(context.Background(), generate.Request{
		Prompt:    []int32{0},
		MaxTokens: 100,
		Sampling:  sampler.Default(),
		Seed:      42,
		Stop:      []string{"\nHuman:"},
		Stats:     &stats,
	})
	for token, err := range stream {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	fmt.Printf("\n%d tokens, %s %q\n", stats.Generated, stats.Finish, stats.Stop)
	// Output:
	// Lots are drawn.
	// 5 tokens, stop string "\nHuman:"
}
