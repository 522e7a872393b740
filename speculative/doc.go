// Package speculative proposes tokens that a model may say next, and decides
// which of them it would have said. What drafting costs less than the model is
// gained: one evaluation of the model judges a whole draft.
//
//	var v speculative.Verifier
//	for len(tokens) < limit {
//		draft, err := drafter.Draft(ctx, speculative.Text{History: tokens, Sampler: s, Seed: seed}, n)
//		if err != nil {
//			return err
//		}
//		target := evaluate(tokens, draft.Tokens) // one batch: a Target of its rows of logits
//		k, next, err := v.Verify(speculative.Coupled, target, draft, sampler.Draw{Seed: seed, Pos: len(tokens)})
//		if err != nil {
//			return err
//		}
//		tokens = append(append(tokens, draft.Tokens[:k]...), next)
//	}
//
// A round adds the tokens that stand and one more, so that it never gets less
// far than plain decoding, which is a round with no draft.
//
// # The rules
//
// With p the distribution of the target behind its filters, and q that which a
// token x was drawn from:
//
//	rule      x stands where                          what holds                  asks for
//	Coupled   the target's own draw is x              the text is the plain text  draws, up to the first that differs
//	Block     the tokens up to x pass as a whole      the distribution is p's     distributions of all positions
//	Token     u < p(x)/q(x), u uniform                the distribution is p's     distributions, up to the first that fails
//
// Coupled is the default. Target and drafter draw with the same noise
// ([sampler.StreamDraw]), which makes them agree with probability
//
//	sum over x of 1 / sum over y of max(p(y)/p(x), q(y)/q(x)) >= (1 - d) / (1 + d)
//
// where d is the distance of p and q in total variation, and 1 - d the most
// that any rule reaches for one token. It needs no distribution, only draws,
// which are cheap. Block gets furthest of the three where drafts are drawn at a
// high temperature, and sorts what the filters leave for every position, of
// draft and target: without filters that is the vocabulary. Token is the
// textbook rule. At temperature 0 a distribution has one token, and all
// rules are the comparison with it.
//
// A certain proposal, of a drafter that does not draw, is judged by comparison
// with the target's draw under every rule: it stands with probability p(x),
// which no rule can raise, and what follows in its place has the distribution
// of the others.
//
// Trees ([Draft].Parents) have the same choice: [Walk] compares,
// [Verifier.Traverse] is the block rule for trees drawn from distributions, and
// serves Token as well.
//
// # What the promises rest on
//
//   - q is the distribution that was drawn from, filters included. The filters
//     of the draft may be any; the same as the target's agree with it most.
//   - The draw of a draft, its test and the draw in place of a rejected token
//     are independent ([Rule.Draw] and the streams of package sampler).
//   - A drafter ends a draft for reasons that do not lie in the token just drawn
//     ([Drafter]).
//   - The cache of the target holds the text and nothing of a rejected draft.
//
// The tests go through every outcome of the rules on small vocabularies, add up
// its probability, and compare with the target's; and they break each of these
// conditions to see that the sum then differs.
//
// # Memory and concurrency
//
// Rounds allocate nothing once their memory has grown, but for filters with a
// state, whose sampler is cloned for each draft. A [Verifier] and a [Drafter]
// serve one goroutine at a time.
//
// The package does not evaluate the target, keep its cache or end a text.
package speculative
