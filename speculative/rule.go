package speculative

import (
	"fmt"

	"github.com/sortes-llm/sortes/sampler"
)

// A Rule decides which tokens of a draft stand. Certain proposals are judged
// alike by all rules: each stands while it is the token that the target draws.
type Rule int

const (
	// Coupled lets a token stand while it is the one that the target draws
	// itself, with the noise of plain decoding: the text is the plain text,
	// whatever was drafted. A drafter that draws with the same noise is right
	// nearly as often as can be (Daliri et al. 2024, arXiv:2408.07978).
	Coupled Rule = iota
	// Block is block verification (Sun et al. 2024, arXiv:2403.10444): the text
	// follows the target's distribution, and no rule that promises as much lets
	// more of one draft stand in the mean.
	Block
	// Token is speculative sampling token by token (Leviathan et al. 2023,
	// arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318): the text follows
	// the target's distribution.
	Token
)

var ruleNames = []string{Coupled: "coupled", Block: "block", Token: "token"}

// ParseRule returns the rule with a name: coupled, block or token.
func ParseRule(name string) (Rule, error) {
	for r, n := range ruleNames {
		if n == name {
			return Rule(r), nil
		}
	}
	return 0, fmt.Errorf("speculative: the rule is %q, want coupled, block or token", name)
}

// String returns the name of the rule.
func (r Rule) String() string {
	if r.known() {
		return ruleNames[r]
	}
	return fmt.Sprintf("Rule(%d)", int(r))
}

func (r Rule) known() bool { return r >= 0 && int(r) < len(ruleNames) }

func (r Rule) check() error {
	if !r.known() {
		return fmt.Errorf("speculative: the rule is %v, want Coupled, Block or Token", r)
	}
	return nil
}

// Draw draws the next token of a draft from a drafter's logits, as the rule
// wants it drawn. The prefix holds the tokens before it: the text's, start of
// them, and those drafted so far. The sampler is a clone of the text's, in the
// state after the prefix.
//
// With [Coupled] it is the target's draw: the noise for that position of the
// text, shared with the target. The others need a draw that is independent of
// all that the rule draws, also in later rounds; it is one from q, which
// becomes the distribution that they need ([Draft].Dists). Coupled leaves q as
// it is.
//
// Errors are those of [sampler.Sampler.Pick].
func (r Rule) Draw(q *sampler.Dist, s *sampler.Sampler, logits []float32, prefix []int32, seed uint64, start int) (int32, error) {
	at := sampler.Draw{Seed: seed, Pos: len(prefix)}
	if r == Coupled {
		return s.Pick(logits, prefix, at)
	}
	if err := s.DistAt(q, logits, prefix, at); err != nil {
		return 0, err
	}
	k := draftKey(seed, start, len(prefix)-start)
	return q.DrawByID(k.at.Uniform(k.n)), nil
}
