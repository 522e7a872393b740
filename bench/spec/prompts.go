package main

import (
	"embed"
	"fmt"
	"strings"
)

// The prompts are a file for each kind, one behind the other with a line
// between them that is a single %. They were written for this measurement.
//
//go:embed prompts/*.txt
var promptFiles embed.FS

// kinds are the kinds of prompts, those that repeat most of their prompt first.
var kinds = []string{"copy", "edit", "extraction", "summary", "translation", "arithmetic", "story", "chat"}

// copying are the kinds for which drafts from repetition are made.
var copying = kinds[:4]

const perKind = 8

// A prompt is one of them, as a user's message in the model's chat template.
type prompt struct {
	kind   string
	number int // in its kind, from 0
	text   string
	tokens []int32
}

// readPrompts returns the first n prompts of each of the kinds named.
func readPrompts(n int, named []string) ([]prompt, error) {
	var all []prompt
	for _, kind := range named {
		text, err := promptFiles.ReadFile("prompts/" + kind + ".txt")
		if err != nil {
			return nil, fmt.Errorf("%q is no kind of prompt: want some of %s", kind, strings.Join(kinds, ","))
		}
		messages := splitPrompts(string(text))
		if len(messages) < n {
			return nil, fmt.Errorf("prompts of kind %s: %d, want %d", kind, len(messages), n)
		}
		for i, message := range messages[:n] {
			all = append(all, prompt{kind: kind, number: i, text: chatML(message)})
		}
	}
	return all, nil
}

func splitPrompts(text string) []string {
	var prompts []string
	for p := range strings.SplitSeq(text, "\n%\n") {
		prompts = append(prompts, strings.TrimSpace(p))
	}
	return prompts
}

// chatML is a message in the template of SmolLM2-Instruct, written out here:
// there is no package for templates yet.
func chatML(message string) string {
	return "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n" +
		"<|im_start|>user\n" + message + "<|im_end|>\n<|im_start|>assistant\n"
}
