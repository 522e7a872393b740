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
	"github.com/sortes-llm/sortes/sampler"
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
	Complete        *bool   `json:"complete,omitempty"` // whether the text is a whole one of the grammar
	Seed            uint64  `json:"seed"`
	PromptTokens    int     `json:"prompt_tokens"`
	CachedTokens    int     `json:"cached_tokens"`
	EvaluatedTokens int     `json:"evaluated_tokens"`
	GeneratedTokens int     `json:"generated_tokens"`
	LoadSeconds     float64 `json:"load_seconds"`
	PromptSeconds   float64 `json:"prompt_seconds"`
	PromptRate      float64 `json:"prompt_tokens_per_second"`
	GenerateSeconds float64 `json:"generate_seconds"`
	GenerateRate    float64 `json:"generated_tokens_per_second"`

	Drafts *draftSummary `json:"drafts,omitempty"`
}

func newSummary(s generate.Stats, load time.Duration) summary {
	sum := summary{
		Finish: string(s.Finish), Stop: s.Stop, Seed: s.Seed,
		PromptTokens: s.Prompt, CachedTokens: s.Cached, EvaluatedTokens: s.Evaluated, GeneratedTokens: s.Generated,
		LoadSeconds:   load.Seconds(),
		PromptSeconds: s.PromptTime.Seconds(), PromptRate: s.PromptRate(),
		GenerateSeconds: s.GenerateTime.Seconds(), GenerateRate: s.GenerateRate(),
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
	if s.Complete != nil && !*s.Complete {
		finish += ", which cuts the text: the grammar is not complete"
	}
	var parts []string
	if s.CachedTokens > 0 {
		parts = append(parts, fmt.Sprintf("%d from the cache", s.CachedTokens))
	}
	if s.CachedTokens+s.EvaluatedTokens < s.PromptTokens { // it was interrupted
		parts = append(parts, fmt.Sprintf("%d evaluated", s.EvaluatedTokens))
	}
	of := ""
	if len(parts) > 0 {
		of = " (" + strings.Join(parts, ", ") + ")"
	}
	return fmt.Sprintf("prompt: %d tokens%s, %.1f tokens/s; generated: %d tokens, %.1f tokens/s; load: %.2f s; finish: %s; seed: %d",
		s.PromptTokens, of, s.PromptRate, s.GeneratedTokens, s.GenerateRate, s.LoadSeconds, finish, s.Seed)
}

// A textOutput writes nothing but the text. Each token is one write, so that
// it is seen at once.
type textOutput struct {
	w       io.Writer
	colour  bool // the prompt
	show    bool // colour the text by how it came
	midLine bool // the last line is not ended
}

// Colours of a terminal.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

// write writes a text in a colour, which may be empty.
func (o *textOutput) write(text, colour string) error {
	if text == "" {
		return nil
	}
	o.midLine = !strings.HasSuffix(text, "\n")
	if colour != "" {
		text = colour + text + plain
	}
	_, err := io.WriteString(o.w, text)
	return err
}

func (o *textOutput) prompt(text string) error {
	if o.colour {
		return o.write(text, yellow)
	}
	return o.write(text, "")
}

func (o *textOutput) token(t generate.Token) error {
	switch {
	case o.show && t.Drafted:
		return o.write(t.Text, green)
	case o.show && t.Corrected:
		return o.write(t.Text, red)
	}
	return o.write(t.Text, "")
}

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
	Index     int    `json:"index"`
	ID        int32  `json:"id"`
	Text      string `json:"text"`
	Drafted   bool   `json:"drafted,omitempty"`
	Corrected bool   `json:"corrected,omitempty"`

	LogProb *float64  `json:"logprob,omitempty"`
	Top     []jsonTop `json:"top,omitempty"`

	PostSamplingLogProb *float64  `json:"post_sampling_logprob,omitempty"`
	PostSamplingTop     []jsonTop `json:"post_sampling_top,omitempty"`
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
	object.Index, object.ID, object.Text = t.Index, t.ID, t.Text
	object.Drafted, object.Corrected = t.Drafted, t.Corrected
	if o.probs {
		object.LogProb, object.PostSamplingLogProb = &t.LogProb, &t.PostSamplingLogProb
	}
	object.Top = o.appendTop(object.Top[:0], t.Top)
	object.PostSamplingTop = o.appendTop(object.PostSamplingTop[:0], t.PostSamplingTop)
	return o.encoder.Encode(object)
}

func (o *jsonOutput) appendTop(dst []jsonTop, top []sampler.TokenLogProb) []jsonTop {
	for _, x := range top {
		dst = append(dst, jsonTop{x.ID, tokenText(o.vocab, x.ID), x.LogProb})
	}
	return dst
}

// tokenText is the text of a token as JSON can hold it, control tokens written
// out.
func tokenText(v *llama.Vocab, id int32) string {
	return strings.ToValidUTF8(string(v.SpecialPiece(id)), "\uFFFD")
}

func (o *jsonOutput) end(s summary) error { return o.encoder.Encode(s) }

// isClosedPipe reports whether a write failed because nobody reads any more.
func isClosedPipe(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}
