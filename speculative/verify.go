package speculative

import "github.com/sortes-llm/sortes/sampler"

// A Rule decides which tokens of a draft stand.
type Rule int

const (
	// Coupled lets a draft stand while it is the token that the target draws
	// itself, with the noise of plain decoding: the text is the plain text.
	Coupled Rule = iota
	// Block is block verification (Sun et al. 2024, arXiv:2403.10444).
	Block
	// Token is speculative sampling token by token (Leviathan et al. 2023,
	// arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318).
	Token
)

// A Target answers for the target model after the first i tokens of a draft,
// 0 to all of them. It is asked in ascending order of i, and for as few as the
// rule needs.
type Target interface {
	// Pick returns the token that the plain text has there.
	Pick(i int) (int32, error)
	// Dist makes dst the distribution of the next token there.
	Dist(dst *sampler.Dist, i int) error
}
