// Package generate turns prompts into texts: it is the loop between whatever
// evaluates a model (an [eval.Evaluator]) and package sampler, which chooses
// each token.
//
// An [Engine] serves many requests at once. [Engine.Stream] asks for one text
// and returns its tokens as they come. In every step of the loop each request
// under way adds its rows to one batch: its last token, or a piece of its
// prompt. What a request leaves in the cache is reused by the next that begins
// alike.
//
// # Rounds
//
// A text grows in rounds. Plain decoding is a round with no drafts: one row, one
// token. With [Options.Drafts] a round has rows for proposed tokens too, of
// which [Options.Rule] lets some stand. With [Request.Contrast] the amateurs of
// [Options.Amateurs] evaluate the same rows, with [Request.Guidance] a second
// sequence of the target does; the token is chosen from their rows together.
// All of them are one batch for each model, whatever the requests under way ask
// for.
//
// # Same request, same text
//
// The text of a request is a function of the logits and of the request: its
// prompt, its sampling settings, its seed. It depends neither on the requests
// that share its batches, nor on those before it, nor on how its reader keeps
// up. What is left are the logits: those of a row may depend, by rounding, on
// the rows evaluated beside it. [Options.Exact] requires an evaluator whose
// probe finds no such dependence. Then a row's logits and what it leaves in the
// cache follow from the tokens before it alone, so that it does not matter
// either in which chunks a reused prefix was evaluated, or whether as a prompt
// or token by token. Without such an evaluator all of this may move logits by
// as much as the probe reports.
//
// # Lifetime and concurrency
//
// An Engine is made by [New] and ended by [Engine.Close]; its methods may be
// called from any goroutine. It uses the evaluator from one goroutine of its
// own, which is blocked while there is nothing to do. A stream belongs to the
// goroutine that ranges over it.
//
// # Errors and cancellation
//
// An error is the last thing that a stream yields; the text before it is
// complete. A failed evaluation ends the requests that shared it, and no other.
// A done context ends its request at once; the evaluation under way is
// interrupted when no other request shares it. The engine stays usable in every
// case.
//
// When the cache has no room for all requests under way, the youngest wait for
// the oldest; they lose time and no text.
//
// The package does not tokenise, and knows nothing of chats.
package generate
