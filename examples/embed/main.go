// Embed is the smallest program around sortes: embed MODEL.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/sortes-llm/sortes/generate"
	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/sampler"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: embed MODEL")
	}
	ctx := context.Background()
	model := must(llama.Open(ctx, os.Args[1], llama.ModelOptions{}))
	defer model.Close()
	session := must(model.NewSession(llama.SessionOptions{Context: 2048}))
	defer session.Close()
	engine := must(generate.New(session, model.Vocab(), generate.Options{}))
	defer engine.Close()
	prompt := must(model.Vocab().Tokenize("Once upon a time", llama.TokenizeOptions{AddSpecial: true, ParseSpecial: true}))
	request := generate.Request{Prompt: prompt, MaxTokens: 64, Sampling: sampler.Default(), Seed: 1}
	for token, err := range engine.Stream(ctx, request) {
		fmt.Print(must(token, err).Text)
	}
	fmt.Println()
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
