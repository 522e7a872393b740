package generate

import (
	"time"

	"github.com/sortes-llm/sortes/speculative"
)

// A FinishReason says why a text ended.
type FinishReason string

// The reasons. The text that was generated before is kept with each of them.
const (
	// EndToken: an end token was chosen (Stats.EndToken).
	EndToken FinishReason = "end token"
	// StopString: a stop string was generated (Stats.Stop).
	StopString FinishReason = "stop string"
	// MaxTokens: Request.MaxTokens were generated, or Request.PromptOnly set.
	MaxTokens FinishReason = "max tokens"
	// ContextFull: the context has no room to evaluate another token.
	ContextFull FinishReason = "context full"
	// Cancelled: the request's ctx is done (the stream yields an error that
	// wraps its cause), or the loop over the stream was left (no error).
	Cancelled FinishReason = "cancelled"
	// Failed: the stream yields the error.
	Failed FinishReason = "failed"
)

// Stats are the counters of one request.
type Stats struct {
	Seed uint64 // Request.Seed

	Prompt    int // tokens of the prompt
	Cached    int // of these, how many were in the cache and not evaluated
	Evaluated int // and how many were evaluated, before the first token; twice where that was necessary
	Generated int // tokens generated, the end token not counted

	// Wait is the time from the request to the start of its evaluation (other
	// requests held all sequences), PromptTime from there to the first token,
	// GenerateTime from the first token to the last.
	Wait         time.Duration
	PromptTime   time.Duration
	GenerateTime time.Duration

	// Drafts says what Options.Drafts did, from round to round. The token that
	// comes with the prompt is not counted.
	Drafts speculative.Stats

	Finish   FinishReason
	EndToken int32  // the end token, where Finish is EndToken
	Stop     string // the stop string, where Finish is StopString
}

// TimeToFirst is the time from the request to its first token.
func (s Stats) TimeToFirst() time.Duration { return s.Wait + s.PromptTime }

// PromptRate is the number of prompt tokens evaluated per second, and 0 where
// none was. Of a prompt that was interrupted the last, unfinished evaluation
// counts with its time only.
func (s Stats) PromptRate() float64 { return rate(s.Evaluated, s.PromptTime) }

// GenerateRate is the number of tokens generated per second after the first,
// which PromptTime accounts for, and 0 where there was none.
func (s Stats) GenerateRate() float64 { return rate(s.Generated-1, s.GenerateTime) }

func rate(n int, d time.Duration) float64 {
	if n <= 0 || d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// times are the moments of a run that Stats are made of. Those that were not
// reached are zero.
type times struct{ asked, seated, first, last time.Time }

// end fills in the durations of a run that ends now.
func (t times) end(s *Stats) {
	now := time.Now()
	if t.seated.IsZero() {
		s.Wait = now.Sub(t.asked)
		return
	}
	s.Wait = t.seated.Sub(t.asked)
	if t.first.IsZero() {
		s.PromptTime = now.Sub(t.seated)
		return
	}
	s.PromptTime = t.first.Sub(t.seated)
	s.GenerateTime = t.last.Sub(t.first)
}
