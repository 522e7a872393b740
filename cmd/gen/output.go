package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/sortes-llm/sortes/generate"
	"github.com/sortes-llm/sortes/llama"
)

// An output writes a text as it is generated.
type output interface {
	prompt(text string) error
	token(t generate.Token) error
	end(s summary) error
}

// A summary is the statistics of a text.
type summary struct {
	Finish          string  `json:"finish"`
	Stop            string  `json:"stop,omitempty"`
	EndToken        *int32  `json:"end_token,omitempty"`
	Seed            uint64  `json:"seed"`
	PromptTokens    int     `json:"prompt_tokens"`
	CachedTokens    int     `json:"cached_tokens"`
	GeneratedTokens int     `json:"generated_tokens"`
	LoadSeconds     float64 `json:"load_seconds"`
	PromptSeconds   float64 `json:"prompt_seconds"`
	PromptRate      float64 `json:"prompt_tokens_per_second"`
	GenerateSeconds float64 `json:"generate_seconds"`
	GenerateRate    float64 `json:"generated_tokens_per_second"`
}

func newSummary(s generate.Stats, load time.Duration) summary {
	sum := summary{
		Finish: string(s.Finish), Stop: s.Stop, Seed: s.Seed,
		PromptTokens: s.Prompt, CachedTokens: s.Cached, GeneratedTokens: s.Generated,
		LoadSeconds:   load.Seconds(),
		PromptSeconds: s.PromptTime.Seconds(), PromptRate: s.PromptRate(),
		GenerateSeconds: s.GenerateTime.Seconds(), GenerateRate: s.GenerateRate(),
	}
	if s.Generated == 0 && (s.Finish == generate.Cancelled || s.Finish == generate.Failed) {
		sum.PromptRate = 0 // nobody knows how far it got
	}
	if s.Finish == generate.EndToken {
		sum.EndToken = &s.EndToken
	}
	return sum
}

// line is the summary for a reader.
func (s summary) line() string {
	finish := s.Finish
	if s.Stop != "" {
		finish += fmt.Sprintf(" %q", s.Stop)
	}
	cached := ""
	if s.CachedTokens > 0 {
		cached = fmt.Sprintf(" (%d from the cache)", s.CachedTokens)
	}
	return fmt.Sprintf("prompt: %d tokens%s, %.1f tokens/s; generated: %d tokens, %.1f tokens/s; load: %.2f s; finish: %s; seed: %d",
		s.PromptTokens, cached, s.PromptRate, s.GeneratedTokens, s.GenerateRate, s.LoadSeconds, finish, s.Seed)
}

// A textOutput writes nothing but the text. Each token is one write, so that
// it is seen at once.
type textOutput struct {
	w       io.Writer
	colour  bool // of the prompt
	midLine bool // the last line is not ended
}

func (o *textOutput) write(text string) error {
	if text == "" {
		return nil
	}
	o.midLine = !strings.HasSuffix(text, "\n")
	_, err := io.WriteString(o.w, text)
	return err
}

func (o *textOutput) prompt(text string) error {
	if o.colour {
		text = "\x1b[33m" + text + "\x1b[0m"
	}
	return o.write(text)
}

func (o *textOutput) token(t generate.Token) error { return o.write(t.Text) }

func (o *textOutput) end(summary) error { return nil }

// A jsonOutput writes a line with an object for each token, and one with the
// summary.
type jsonOutput struct {
	encoder *json.Encoder
	vocab   *llama.Vocab
	probs   bool
	object  jsonToken
}

type jsonToken struct {
	Index   int       `json:"index"`
	ID      int32     `json:"id"`
	Text    string    `json:"text"`
	LogProb *float64  `json:"logprob,omitempty"`
	Top     []jsonTop `json:"top,omitempty"`
}

type jsonTop struct {
	ID      int32   `json:"id"`
	Text    string  `json:"text"`
	LogProb float64 `json:"logprob"`
}

func newJSONOutput(w io.Writer, v *llama.Vocab, probs bool) *jsonOutput {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return &jsonOutput{encoder: encoder, vocab: v, probs: probs}
}

func (o *jsonOutput) prompt(string) error { return nil }

func (o *jsonOutput) token(t generate.Token) error {
	object := &o.object
	object.Index, object.ID, object.Text, object.Top = t.Index, t.ID, t.Text, object.Top[:0]
	if o.probs {
		object.LogProb = &t.LogProb
	}
	for _, alternative := range t.Top {
		text := strings.ToValidUTF8(string(o.vocab.SpecialPiece(alternative.ID)), "\uFFFD")
		object.Top = append(object.Top, jsonTop{alternative.ID, text, alternative.LogProb})
	}
	return o.encoder.Encode(object)
}

func (o *jsonOutput) end(s summary) error { return o.encoder.Encode(s) }

// isClosedPipe reports whether a write failed because nobody reads any more.
func isClosedPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}
