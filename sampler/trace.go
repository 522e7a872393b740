package sampler

import (
	"cmp"
	"math"
	"slices"
)

// A Trace says how one token was chosen. [Sampler.Trace] asks for it.
type Trace struct {
	Top int // how many candidates each step lists: the caller's choice

	Draw Draw // the draw
	// Steps begin with the row as it came, named "logits"; the filters of the
	// chain follow in the order in which they ran, each with what it left.
	Steps []TraceStep
	Token int32   // the token chosen
	Prob  float64 // of the token, among what the chain left
	// Uniform is the number that decided, between 0 and 1: with [DrawGumbel]
	// the token's own, whose noise is -ln(-ln(Uniform)), else the one number of
	// the draw.
	Uniform float64
}

// A TraceStep is what one step of a chain left.
type TraceStep struct {
	Name string
	// Row is set while the candidates are the row itself: no filter has listed
	// any so far. The chain does not look at such a row as a whole where it
	// need not; the trace did, for this step.
	Row bool
	// Count is the number of candidates. Tokens with a logit of -Inf, which
	// are banned, are none.
	Count int
	// Temperature is what the logits are to be divided by so far.
	Temperature float64
	// Top are the first candidates: the highest logit first, of equals the
	// lowest id. It is empty where a logit of the row is NaN or +Inf.
	Top []TraceCandidate
}

// A TraceCandidate is a token in a step of a trace.
type TraceCandidate struct {
	ID    int32
	Logit float32 // as the step left it, not divided by the temperature
	Prob  float64 // among all candidates, at the temperature so far
}

// Trace makes each [Sampler.Pick] and [Sampler.PickDist] fill t, whose memory
// is used again, until Trace(nil). The tokens picked are the same. A pick that
// fails leaves in t the steps before it failed. Without a trace a sampler does
// no work for it; with one it reads the row once or twice for every step that
// leaves it whole. A [Sampler.Clone] has no trace.
func (s *Sampler) Trace(t *Trace) { s.trace = t }

// begin starts the trace of a pick.
func (t *Trace) begin(c *Candidates) {
	t.Draw, t.Steps, t.Token, t.Prob, t.Uniform = c.at, t.Steps[:0], 0, 0, 0
	t.step("logits", c)
}

// step adds what a step has left, which it does not change.
func (t *Trace) step(name string, c *Candidates) {
	if n := len(t.Steps); n < cap(t.Steps) {
		t.Steps = t.Steps[:n+1] // with the memory of its Top
	} else {
		t.Steps = append(t.Steps, TraceStep{})
	}
	s := &t.Steps[len(t.Steps)-1]
	*s = TraceStep{Name: name, Row: !c.listed, Temperature: c.temp, Top: s.Top[:0]}
	if c.listed {
		s.list(c, t.Top)
	} else {
		s.row(c, t.Top)
	}
}

func (s *TraceStep) row(c *Candidates, top int) {
	for _, v := range c.row {
		if v != negInf {
			s.Count++
		}
	}
	norm := logSumExp(c.row, 1/c.temp)
	for _, x := range TopLogProbs(nil, c.row, top) {
		logit := c.row[x.ID]
		s.Top = append(s.Top, TraceCandidate{x.ID, logit, math.Exp(c.score(logit) - norm)})
	}
}

func (s *TraceStep) list(c *Candidates, top int) {
	s.Count = len(c.list)
	first := slices.Clone(c.list)
	slices.SortFunc(first, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(b.Logit, a.Logit), cmp.Compare(a.ID, b.ID))
	})
	total := 0.0
	for _, x := range first {
		total += math.Exp(c.score(x.Logit) - c.score(first[0].Logit))
	}
	for _, x := range first[:min(top, len(first))] {
		p := math.Exp(c.score(x.Logit)-c.score(first[0].Logit)) / total
		s.Top = append(s.Top, TraceCandidate{x.ID, x.Logit, p})
	}
}

// end adds the token drawn.
func (t *Trace) end(c *Candidates, token int32, method DrawMethod) {
	t.Token = token
	logit, _ := c.Logit(token)
	if c.listed {
		total := 0.0
		for _, x := range c.list {
			total += math.Exp(c.score(x.Logit) - c.score(logit))
		}
		t.Prob = 1 / total
	} else {
		t.Prob = math.Exp(c.score(logit) - logSumExp(c.row, 1/c.temp))
	}
	if method == DrawGumbel {
		t.Uniform = t.Draw.Uniform(token)
	} else {
		t.Uniform = c.uniform()
	}
}
