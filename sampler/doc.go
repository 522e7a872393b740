// Package sampler chooses the next token from a row of logits.
//
// A [Config] names the filters and their strengths, [New] compiles it into a
// [Sampler], and the sampler either picks a token ([Sampler.Pick]) or gives the
// distribution it would pick from ([Sampler.Dist]). The filters, their meaning
// and their order are those of llama.cpp, so the same settings mean the same
// thing.
//
//	s, err := sampler.New(sampler.Default())
//	if err != nil {
//		return err
//	}
//	for len(tokens) < limit {
//		logits := evaluate(tokens) // of the model, for the token that comes next
//		next, err := s.Pick(logits, tokens, sampler.Draw{Seed: seed, Pos: len(tokens)})
//		if err != nil {
//			return err
//		}
//		tokens = append(tokens, next)
//	}
//
// # The chain
//
// Filters run one after the other, in the order of [DefaultOrder] unless
// Config.Order says otherwise:
//
//	logit_bias       adds a number to the logits of chosen tokens
//	min_length       bans the ends of a text until it is long enough
//	no_repeat_ngram  bans tokens that would repeat a sequence of n tokens
//	penalties        lowers tokens that occurred lately
//	dry              lowers tokens that would lengthen a repetition
//	top_n_sigma      keeps tokens within n standard deviations of the highest logit
//	top_k            keeps the k most likely tokens, or a share of the vocabulary
//	typ_p            keeps tokens about as surprising as the row is on average
//	epsilon          keeps tokens of at least a probability
//	eta              the same, but that the bound falls with the entropy
//	tfs              cuts the tail where the curve of probabilities flattens
//	top_a            keeps tokens not too far below a power of the highest probability
//	top_p            keeps the most likely tokens that together reach a probability
//	min_p            keeps tokens not too far below the most likely one
//	xtc              now and then removes the most likely of several likely tokens
//	temperature      sharpens or flattens what is left; 0 keeps only the best
//
// A [Step] of your own takes its place among them by name. Mirostat and
// adaptive-p stand behind all of them. [Guide] and [Contrast] make one row of
// several before the chain. A [Constraint], such as a grammar, stands before
// it too: the filters see only tokens that it allows.
//
// [Sampler.PickDist] picks a token and gives the distribution that it was drawn
// from, [Sampler.Trace] says what every filter of the chain left.
//
// # Rules that hold everywhere
//
//   - Of two tokens the one with the higher logit comes first, of equals the
//     one with the lower id: no result depends on how a sort is made.
//   - The draw is a function. A token's noise follows from the seed, the
//     position, the stream and the token ([Draw]), the winner is the token with
//     the largest logit/temperature + noise. Nothing is remembered between
//     draws, so the text does not depend on what else was drawn. Only mirostat,
//     adaptive-p and a constraint have a state, which follows from
//     [Sampler.Accept].
//   - History is an argument. The penalties look at the tokens passed to the
//     call and at nothing else; undoing a token means passing fewer.
//   - Probabilities are summed in float64.
//   - A logit of -Inf bans a token. A logit that is NaN or +Inf is an error
//     ([ErrNaN], [ErrInf]), and so is a row with nothing left to draw from
//     ([ErrNoCandidates]).
//
// # Cost
//
// A row is never copied as a whole unless its distribution is asked for without
// a filter, and never sorted as one but for tail-free, an inverse draw far down,
// and a [Dist] of all tokens that is read in the order of likelihood. The few logits that bias and penalties change are
// changed in the caller's row and put back before the call returns. The first
// filter that removes tokens reads the row one to three times and leaves a
// short list, on which the others work; with temperature alone the draw itself
// is the only reading. On amd64 these readings use AVX2 or AVX-512 where the
// machine has them, with the same results to the last bit; the build tag purego
// leaves that out. After its first calls a sampler allocates nothing.
//
// # Concurrency
//
// A Sampler owns scratch memory: one goroutine at a time may use it.
// [Sampler.Clone] gives another with the same settings. The functions of the
// package are safe for concurrent use.
//
// The package does not evaluate models and knows nothing of text.
package sampler
