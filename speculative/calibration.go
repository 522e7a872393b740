package speculative

// A calibration says how often predictions with the same support come true. It
// compares each with the token that the text really has, whether it was drafted
// or not, so nothing has to be drafted to find out. It begins with a guess, then
// believes what other texts have shown, then this text.
type calibration [classes]tally

// A tally counts predictions and those that came true.
type tally struct{ hits, trials float64 }

// A class holds the predictions of like support: by source, by length of the
// match, and by agreement among its occurrences.
type class int

type source int

const (
	ownText source = iota
	sharedText
	fillerPair   // the target's likely tokens after two tokens
	fillerSingle // and after one
	sources
)

const (
	lengthClasses = 10
	agreements    = 5
	classes       = int(sources) * lengthClasses * agreements
)

// classOf returns the class of a prediction with n tokens of context.
func classOf(s source, n, agreement int) class {
	var length int
	switch {
	case n <= 4:
		length = n - 1
	case n <= 6:
		length = 4
	case n <= 8:
		length = 5
	case n <= 12:
		length = 6
	case n <= 16:
		length = 7
	case n <= 24:
		length = 8
	default:
		length = 9
	}
	return class((int(s)*lengthClasses+length)*agreements + agreement)
}

// agreement grades the votes of a match, from 0 to 4.
func agreement(m Match) int {
	switch {
	case 2*m.Votes < m.Seen:
		return 0
	case m.Votes < m.Seen:
		return 1
	case m.Seen == 1:
		return 2
	case m.Seen < 4:
		return 3
	}
	return 4
}

// guesses are the chances at the start, by length of the match: what repetition
// in prose and code shows, rounded down. guessedAgreement says how far agreement
// moves them, towards 1 or towards 0.
var (
	guesses          = [lengthClasses]float64{.1, .25, .4, .5, .6, .7, .8, .87, .92, .95}
	guessedAgreement = [agreements]float64{-.6, -.3, 0, .2, .4}
)

func (c class) guess() float64 {
	p := guesses[int(c)/agreements%lengthClasses]
	v := guessedAgreement[int(c)%agreements]
	if v < 0 {
		return p * (1 + v)
	}
	return p + v*(1-p)
}

// Weights, in trials, of what is believed before: the guess against other
// texts, other texts against this one. memories are the trials after which old
// ones begin to fade.
const (
	guessWeight  = 8
	othersWeight = 6
	textMemory   = 48
	othersMemory = 1024
)

// chance returns the probability that a prediction comes true.
func (c *calibration) chance(others *calibration, k class) float64 {
	p := others[k].blend(k.guess(), guessWeight)
	return c[k].blend(p, othersWeight)
}

// blend returns the share of hits, with a prior of a weight in trials.
func (t tally) blend(prior, weight float64) float64 {
	return (t.hits + prior*weight) / (t.trials + weight)
}

// count takes in an outcome; the trials that count add up to at most memory.
func (t *tally) count(hit bool, memory float64) {
	x := 0.0
	if hit {
		x = 1
	}
	t.add(x, memory)
}

// add takes in an outcome of which only the probability is known.
func (t *tally) add(chance, memory float64) {
	if t.trials >= memory {
		t.hits *= 1 - 1/memory
		t.trials *= 1 - 1/memory
	}
	t.hits += chance
	t.trials++
}
