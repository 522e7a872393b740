package speculative

// survival estimates how likely drafts stand, by their position in the draft:
// each given that all before it stand. Positions with few trials are taken to be
// like the others of the text, and a text with few trials like other texts.
type survival struct {
	all       tally
	positions []tally
}

// Weights in trials of what is believed before, and the trials after which old
// ones begin to fade.
const (
	firstChance      = 0.65 // of a draft to stand before anything is known
	firstWeight      = 4    // against other texts
	textWeight       = 10   // other texts against this one
	positionWeight   = 12   // all positions of a text against one
	survivalMemory   = 60
	positionMemory   = 30
	survivalOfOthers = 256
)

// observe takes in a round: so many drafted, so many of them accepted. Behind the
// first that fell nothing was tried.
func (s *survival) observe(drafted, accepted int, memory float64) {
	for i := range min(drafted, accepted+1) {
		for len(s.positions) <= i {
			s.positions = append(s.positions, tally{})
		}
		s.positions[i].count(i < accepted, min(positionMemory, memory))
		s.all.count(i < accepted, memory)
	}
}

// fade halves the evidence.
func (s *survival) fade() {
	s.all.halve()
	for i := range s.positions {
		s.positions[i].halve()
	}
}

func (t *tally) halve() { t.hits, t.trials = t.hits/2, t.trials/2 }

// sums fills dst with the expected number of drafts that stand out of the first
// 0, 1, ... len(dst)-1. That a draft stands is itself evidence for the next one:
// where little is known yet, long drafts are worth more than the present chance
// to the power of their length.
func (s *survival) sums(dst []float64, others *survival) {
	prior := others.all.blend(firstChance, firstWeight)
	text := s.all
	survives := 1.0
	dst[0] = 0
	for i := range dst[1:] {
		chance := text.blend(prior, textWeight)
		if i < len(s.positions) {
			chance = s.positions[i].blend(chance, positionWeight)
		}
		survives *= chance
		dst[i+1] = dst[i] + survives
		text.hits++
		text.trials++
	}
}
