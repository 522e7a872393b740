package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/sortes-llm/sortes/speculative"
)

// A draftSummary is what drafts did for a text.
type draftSummary struct {
	Drafted       int     `json:"drafted"`
	Accepted      int     `json:"accepted"`
	Acceptance    float64 `json:"acceptance"` // Leviathan's alpha: of the drafts whose predecessors stood
	Evaluations   int     `json:"evaluations"`
	TokensPerPass float64 `json:"tokens_per_evaluation"`

	// Shares of the time from the first token to the last.
	DraftShare    float64 `json:"draft_share"`
	VerifyShare   float64 `json:"verify_share"`
	SamplingShare float64 `json:"sampling_share"`
	RestShare     float64 `json:"rest_share"`
	// Speedup is estimated: how many times faster the text was than without.
	// 0 where there is no estimate.
	Speedup float64 `json:"speedup"`

	Drafters []drafterSummary `json:"drafters"`
}

type drafterSummary struct {
	Name     string `json:"name"`
	Drafts   int    `json:"drafts"`
	Drafted  int    `json:"drafted"`
	Accepted int    `json:"accepted"`
}

// newDraftSummary sums up what drafters of these names did.
func newDraftSummary(s *speculative.Stats, names []string) *draftSummary {
	share := func(d time.Duration) float64 {
		if s.Total() == 0 {
			return 0
		}
		return d.Seconds() / s.Total().Seconds()
	}
	sum := &draftSummary{
		Acceptance: s.Acceptance(), Evaluations: s.Rounds, TokensPerPass: s.TokensPerRound(),
		DraftShare: share(s.Draft), VerifyShare: share(s.Verify), SamplingShare: share(s.Sampling), RestShare: share(s.Rest),
		Speedup: s.Speedup(),
	}
	for i, name := range names {
		d := drafterSummary{Name: name}
		if i < len(s.Drafter) {
			d.Drafts, d.Drafted, d.Accepted = s.Drafter[i].Drafts, s.Drafter[i].Drafted, s.Drafter[i].Accepted
		}
		sum.Drafted += d.Drafted
		sum.Accepted += d.Accepted
		sum.Drafters = append(sum.Drafters, d)
	}
	return sum
}

// line is the summary for a reader.
func (s *draftSummary) line() string {
	if s.Drafted == 0 {
		return fmt.Sprintf("drafts: none in %d evaluations", s.Evaluations)
	}
	var by []string
	for _, d := range s.Drafters {
		if len(s.Drafters) > 1 {
			by = append(by, fmt.Sprintf("%s %d of %d", d.Name, d.Accepted, d.Drafted))
		}
	}
	of := ""
	if len(by) > 0 {
		of = " (" + strings.Join(by, ", ") + ")"
	}
	text := fmt.Sprintf("drafts: %d of %d tokens accepted%s, acceptance %.2f, %.2f tokens an evaluation; time: draft %.0f%%, verify %.0f%%, sampling %.0f%%, rest %.0f%%",
		s.Accepted, s.Drafted, of, s.Acceptance, s.TokensPerPass, 100*s.DraftShare, 100*s.VerifyShare, 100*s.SamplingShare, 100*s.RestShare)
	if s.Speedup > 0 {
		text += fmt.Sprintf("; about %.2f times as fast as without", s.Speedup)
	}
	return text
}
