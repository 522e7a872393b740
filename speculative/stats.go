package speculative

import "time"

// Stats say what drafting did for a text, or for many.
type Stats struct {
	Rounds  int            // evaluations of the target that gave tokens, plain ones included
	Drafts  int            // of them, those with a draft
	Tokens  int            // that came of them: one for each round and the drafts accepted
	ByRank  []RankStats    // by position in the draft
	Drafter []DrafterStats // by drafter

	// Where the time went. Rounds of several texts in one evaluation share its
	// time by their rows.
	Draft, Verify, Sampling, Rest time.Duration
	// Plain is the estimated time that the same tokens take without drafts.
	Plain time.Duration
}

// RankStats count the drafts at one position of a draft. What a tree has there
// counts as one.
type RankStats struct {
	Drafted  int
	Tested   int // all drafts before it stood
	Accepted int
}

// DrafterStats count what came from one drafter.
type DrafterStats struct {
	Drafts   int
	Drafted  int // tokens
	Accepted int
}

// Total returns the time of all parts.
func (s *Stats) Total() time.Duration { return s.Draft + s.Verify + s.Sampling + s.Rest }

// TokensPerRound returns how many tokens an evaluation of the target gave on
// average, 0 without any.
func (s *Stats) TokensPerRound() float64 { return ratio(s.Tokens, s.Rounds) }

// Acceptance returns the share of tested drafts that stood: Leviathan's alpha,
// which leaves out those behind the first that fell. It is 0 without any.
func (s *Stats) Acceptance() float64 {
	var tested, accepted int
	for _, r := range s.ByRank {
		tested += r.Tested
		accepted += r.Accepted
	}
	return ratio(accepted, tested)
}

// Speedup returns the estimated speed relative to plain decoding, 0 where
// nothing was timed.
func (s *Stats) Speedup() float64 { return ratio(s.Plain, s.Total()) }

func ratio[T int | time.Duration](a, b T) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// Merge adds what another text had.
func (s *Stats) Merge(o Stats) {
	s.Rounds += o.Rounds
	s.Drafts += o.Drafts
	s.Tokens += o.Tokens
	s.Draft += o.Draft
	s.Verify += o.Verify
	s.Sampling += o.Sampling
	s.Rest += o.Rest
	s.Plain += o.Plain
	s.ByRank = extend(s.ByRank, len(o.ByRank))
	for i, r := range o.ByRank {
		s.ByRank[i].Drafted += r.Drafted
		s.ByRank[i].Tested += r.Tested
		s.ByRank[i].Accepted += r.Accepted
	}
	s.Drafter = extend(s.Drafter, len(o.Drafter))
	for i, d := range o.Drafter {
		s.Drafter[i].Drafts += d.Drafts
		s.Drafter[i].Drafted += d.Drafted
		s.Drafter[i].Accepted += d.Accepted
	}
}

// Count adds a round that a [Controller] has observed.
func (s *Stats) Count(r Round) {
	s.Rounds++
	s.Tokens += r.Accepted + 1
	s.Draft += r.Draft
	s.Verify += r.Verify
	s.Sampling += r.Sampling
	s.Rest += r.Rest
	s.Plain += r.Plain
	if r.Drafted == 0 {
		return
	}
	s.Drafts++
	s.ByRank = extend(s.ByRank, r.depth())
	for i := range r.depth() {
		s.ByRank[i].Drafted++
		if i <= r.Accepted {
			s.ByRank[i].Tested++
		}
		if i < r.Accepted {
			s.ByRank[i].Accepted++
		}
	}
	s.Drafter = extend(s.Drafter, r.Drafter+1)
	d := &s.Drafter[r.Drafter]
	d.Drafts++
	d.Drafted += r.Drafted
	d.Accepted += r.Accepted
}

// extend makes a slice at least n long.
func extend[T any](s []T, n int) []T {
	for len(s) < n {
		var zero T
		s = append(s, zero)
	}
	return s
}
