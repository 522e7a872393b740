package generate

import "github.com/sortes-llm/sortes/sampler"

// A Token is one token of a text. The text is the Text of all its tokens,
// joined.
//
// A token is yielded when its text is settled: when none of its bytes can
// still become part of a stop string or of a rune that the next tokens
// complete. At the end of the text all tokens are settled, whatever ended it.
type Token struct {
	ID    int32
	Index int // 0 for the first token generated

	// Text is what the token adds to the text, valid UTF-8. A rune that is
	// cut over several tokens belongs to the last of them. Bytes that are not
	// UTF-8 become U+FFFD, one for each run of them, as with
	// strings.ToValidUTF8. Text is cut before a stop string: empty where the
	// token lies inside it.
	Text string

	// Bytes are the token's own bytes, whatever Text makes of them. They
	// belong to the vocabulary and must not be changed.
	Bytes []byte

	// Drafted is whether the token was proposed by Options.Drafts, Corrected
	// whether it stands in place of one that was.
	Drafted, Corrected bool

	// LogProb is the natural logarithm of the probability that the model
	// gave to the token, of the whole vocabulary, before temperature and
	// filters. 0 unless Request.LogProbs asks for it.
	LogProb float64
	// Top are the Request.TopLogProbs most probable tokens by the same
	// measure, the most probable first, of equals the lower id; fewer where
	// the model gives fewer any probability at all.
	Top []sampler.TokenLogProb

	// PostSamplingLogProb and PostSamplingTop are the same by the
	// distribution that the token was drawn from, behind all filters and the
	// temperature: 0 and the token itself where these leave one. Request.PostSampling
	// asks for them.
	PostSamplingLogProb float64
	PostSamplingTop     []sampler.TokenLogProb
}
