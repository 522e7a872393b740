package sampler

import (
	"fmt"
	"math"
	"slices"
)

// A Candidate is a token that may still be drawn.
type Candidate struct {
	ID    int32
	Logit float32
}

// Candidates are the tokens that the filters have left so far. They begin as a
// whole row of logits; the first filter that removes tokens turns the row into
// a list. The methods work on either form, and report bad logits to the
// sampler themselves, which ends the call with that error.
//
// Temperature does not touch logits: they stay on the scale of the model, and
// [Candidates.Temperature] says what they are to be divided by.
type Candidates struct {
	caller  []float32   // the caller's row
	row     []float32   // the logits, indexed by token: the caller's row, or shifted
	list    []Candidate // the survivors, once listed
	listed  bool
	sorted  bool // list is in order
	cut     bool // of the row, only the tokens above floor, up to ceiling, are left; see settle
	floor   float32
	ceiling float32
	temp    float64 // product of the temperatures applied so far
	at      Draw    // the draw it is for
	placed  bool    // at is known

	gate gate // the constraint

	promptLen int         // tokens of the prompt
	twisters  *[2]mt19937 // for draws and for xtc, where they are llama.cpp's

	err error // the first error met

	undo    []Candidate // patched entries of row, with their former logits
	patcher string      // the last filter that patched row

	counts  []int32   // scratch of penalties and dry, by token, all zero between calls
	window  []int32   // scratch of penalties and dry: the tokens that have a count
	matches []int32   // scratch of dry
	ranks   []rank    // scratch of KeepTop and Sort
	spare   []rank    // scratch of Sort
	weights []float64 // result of weigh
	shifted []float32 // row with the logits of adaptive-p
}

// open begins a call on a row.
func (c *Candidates) open(row []float32) {
	c.caller, c.row, c.list, c.undo = row, row, c.list[:0], c.undo[:0]
	c.cut, c.listed, c.sorted, c.temp, c.err, c.patcher = false, false, false, 1, nil, ""
	c.gate.passed = c.gate.Constraint == nil
}

// close puts the row back as it was and lets go of it.
func (c *Candidates) close() {
	for _, p := range slices.Backward(c.undo) {
		c.caller[p.ID] = p.Logit
	}
	c.caller, c.row, c.undo = nil, nil, c.undo[:0]
}

// Temperature returns what the logits are to be divided by: 1 until the
// temperature filter has run.
func (c *Candidates) Temperature() float64 { return c.temp }

// score is what the draw adds noise to.
func (c *Candidates) score(logit float32) float64 { return float64(logit) / c.temp }

// Logit returns the logit of a token, and whether it is a candidate.
func (c *Candidates) Logit(token int32) (float32, bool) {
	i := c.find(token)
	switch {
	case i < 0:
		return negInf, false
	case c.listed:
		return c.list[i].Logit, true
	}
	return c.row[i], c.row[i] != negInf
}

// SetLogit changes the logit of a token; -Inf bans it. A token that is not a
// candidate is left alone.
func (c *Candidates) SetLogit(token int32, logit float32) {
	i := c.find(token)
	switch {
	case i < 0:
	case !(logit <= math.MaxFloat32):
		c.fail(logitError(int(token), logit))
	case !c.listed:
		if c.row[i] != negInf {
			c.undo = append(c.undo, Candidate{token, c.row[i]})
			c.row[i] = logit
		}
	case logit == negInf:
		c.list = slices.Delete(c.list, i, i+1)
	default:
		c.list[i].Logit = logit
		c.sorted = false
	}
}

// has returns an error if the vocabulary does not have a token.
func (c *Candidates) has(token int32) error {
	if uint(token) >= uint(len(c.row)) {
		return fmt.Errorf("token %d is outside the vocabulary of %d", token, len(c.row))
	}
	return nil
}

// find returns where a token stands in the row or the list, or -1.
func (c *Candidates) find(token int32) int {
	if !c.listed {
		if uint(token) < uint(len(c.row)) {
			return int(token)
		}
		return -1
	}
	return slices.IndexFunc(c.list, func(x Candidate) bool { return x.ID == token })
}

// List returns the candidates, in order only after [Candidates.Sort]. Their
// logits may be changed in place. It is valid until another method is called.
func (c *Candidates) List() []Candidate {
	c.expand()
	c.sorted = false
	return c.list
}

// Probs returns the probabilities of the candidates, in the order of
// [Candidates.List], at the temperature so far. It is valid until another
// method is called.
func (c *Candidates) Probs() []float64 {
	c.expand()
	total := c.weigh()
	for i := range c.weights {
		c.weights[i] /= total
	}
	return c.weights
}

// Max returns the highest logit, -Inf if there is no candidate.
func (c *Candidates) Max() float32 {
	if c.listed {
		if c.sorted && len(c.list) > 0 {
			return c.list[0].Logit
		}
		best := negInf
		for _, x := range c.list {
			best = max(best, x.Logit)
		}
		return best
	}
	best := negInf
	for i := nextAbove(c.row, 0, best); i < len(c.row); i = nextAbove(c.row, i+1, best) {
		best = c.row[i]
		if !(best <= math.MaxFloat32) {
			c.fail(logitError(i, best))
			break
		}
	}
	c.checkRow(best > negInf)
	return best
}

// count returns the number of candidates.
func (c *Candidates) count() int {
	if c.listed {
		return len(c.list)
	}
	n := 0
	for _, v := range c.row {
		if v != negInf {
			n++
		}
	}
	return n
}

// Keep removes the candidates that keep does not want.
func (c *Candidates) Keep(keep func(Candidate) bool) {
	c.expand()
	c.list = slices.DeleteFunc(c.list, func(x Candidate) bool { return !keep(x) })
}

// KeepTop removes all but the first n candidates: those with the highest
// logits, of equals those with the lowest ids.
func (c *Candidates) KeepTop(n int) {
	switch {
	case n <= 0:
		c.expand()
		c.list = c.list[:0]
	case c.listed && len(c.list) <= n:
	case c.listed && c.sorted:
		c.list = c.list[:n]
	case c.listed:
		c.rankList()
		selectTop(c.ranks, n)
		c.listRanks(n)
	case n < len(c.row):
		c.keepTopOfRow(n)
	default:
		c.expand()
	}
}

// keepTopOfRow reads the row once. It holds up to 2n candidates; when there
// are so many, the best n stay, and the worst of them is what a later token
// must exceed. A later token that equals it loses on its id.
func (c *Candidates) keepTopOfRow(n int) {
	c.listed, c.sorted = true, false
	floor := c.sampleFloor(n)
	ranks := c.ranks[:0]
	for i := nextAbove(c.row, 0, floor); i < len(c.row); i = nextAbove(c.row, i+1, floor) {
		x := Candidate{int32(i), c.row[i]}
		if !(x.Logit <= math.MaxFloat32) {
			c.fail(logitError(i, x.Logit))
			return
		}
		if ranks = append(ranks, rankOf(x)); len(ranks) == 2*n {
			selectTop(ranks, n)
			ranks = ranks[:n]
			floor = slices.Max(ranks).candidate().Logit
		}
	}
	c.checkRow(len(ranks) > 0)
	c.ranks = ranks
	selectTop(ranks, n)
	c.listRanks(min(n, len(ranks)))
}

// sampleFloor returns a number that n logits of the row exceed, or -Inf, from
// a look at 8n tokens all over the row. It spares keepTopOfRow most tokens of a
// row whose logits rise.
func (c *Candidates) sampleFloor(n int) float32 {
	step := len(c.row) / (8 * n)
	if step < 8 {
		return negInf
	}
	ranks := c.ranks[:0]
	for i := 0; i < len(c.row); i += step {
		if v := c.row[i]; v > negInf {
			ranks = append(ranks, rankOf(Candidate{int32(i), v}))
		}
	}
	c.ranks = ranks
	if len(ranks) < n {
		return negInf
	}
	selectTop(ranks, n)
	return math.Nextafter32(slices.Max(ranks[:n]).candidate().Logit, negInf)
}

// rankList makes c.ranks from the list.
func (c *Candidates) rankList() {
	c.ranks = slices.Grow(c.ranks[:0], cap(c.list))
	for _, x := range c.list {
		c.ranks = append(c.ranks, rankOf(x))
	}
}

// listRanks makes the list from the first n of c.ranks.
func (c *Candidates) listRanks(n int) {
	c.list = c.list[:0]
	for _, r := range c.ranks[:n] {
		c.list = append(c.list, r.candidate())
	}
}

// KeepAbove removes the candidates whose logit is below the bound. The first
// least candidates stay in any case.
func (c *Candidates) KeepAbove(bound float64, least int) {
	c.keepAbove(bound, least)
	c.settle()
}

// keepAbove is KeepAbove, but that it may leave the tokens in the row.
func (c *Candidates) keepAbove(bound float64, least int) {
	if !c.listed {
		few := floorOf(bound)
		if n := c.countSample(few, float32(math.Inf(1))); n > countSampleSize/8 && least <= n {
			c.cut, c.floor, c.ceiling = true, few, float32(math.Inf(1))
			return
		}
		c.listAbove(bound)
		if len(c.list) < least {
			c.listed = false // the row still has them all
			c.KeepTop(least)
		}
		return
	}
	n := 0
	for _, x := range c.list {
		if float64(x.Logit) >= bound {
			n++
		}
	}
	c.KeepTop(max(n, least))
}

// settle makes a list of the tokens that a cut has left in the row. A cut row
// is for what comes last: the draw passes over what is outside, which
// costs less than a list where many tokens are left.
func (c *Candidates) settle() {
	if c.cut {
		c.listBetween(c.floor, c.ceiling)
	}
}

// floorOf returns the largest logit below the bound.
func floorOf(bound float64) float32 {
	floor := float32(bound)
	if float64(floor) >= bound {
		floor = math.Nextafter32(floor, negInf)
	}
	return floor
}

// listAbove makes the list from the tokens of the row whose logit is at least
// the bound. None of them is banned.
func (c *Candidates) listAbove(bound float64) {
	c.listBetween(floorOf(bound), float32(math.Inf(1)))
}

// listBetween makes the list from the tokens of the row whose logit is above
// floor and not above ceiling.
func (c *Candidates) listBetween(floor, ceiling float32) {
	c.cut, c.listed, c.sorted = false, true, false
	if list := c.appendBetween(c.list[:0], floor, ceiling); c.err == nil {
		c.list = list
	}
}

// appendBetween appends the tokens of listBetween.
func (c *Candidates) appendBetween(list []Candidate, floor, ceiling float32) []Candidate {
	var ids [512]int32
	for next := 0; next < len(c.row); {
		var found []int32
		found, next = collectBetween(ids[:0], c.row, next, floor, ceiling)
		if len(list)+len(found) > cap(list) {
			list = slices.Grow(list, len(c.row)-len(list)) // once and for all
		}
		for _, id := range found {
			v := c.row[id]
			if !(v <= math.MaxFloat32) {
				c.fail(logitError(int(id), v))
				return list
			}
			list = append(list, Candidate{id, v})
		}
	}
	return list
}

// total returns the mass of the whole row on the scale of weigh.
func (c *Candidates) total() float64 {
	top := c.Max()
	if c.err != nil {
		return 1
	}
	mass, _ := expSum(c.row, top, 1/c.temp, negInf)
	return mass
}

// listMass makes the list from the most likely tokens of the row: at least
// those that reach the mass together, and few more.
func (c *Candidates) listMass(reached float64) {
	top := c.Max()
	var mass depths
	massByDepth(c.row, top, 1/c.temp, &mass)
	d, sum := 0, mass[0]
	for ; d < len(mass)-1 && sum < reached*(1+1e-9); d++ {
		sum += mass[d+1]
	}
	bound := math.Inf(-1)
	if d < len(mass)-1 {
		bound = float64(top) - float64(d+1)*c.temp*(math.Ln2/depthsPerBit)
	}
	c.listAbove(bound)
}

// expand makes the list, if it does not exist yet, from every token of the row
// that is not banned.
func (c *Candidates) expand() {
	if !c.listed {
		c.listAbove(math.Inf(-1))
		c.checkRow(len(c.list) > 0)
	}
}

// Sort puts the list in order: the highest logit first, of equals the lowest
// id.
func (c *Candidates) Sort() {
	c.expand()
	if !c.sorted {
		c.rankList()
		c.spare = sortRanks(c.ranks, c.spare)
		c.listRanks(len(c.ranks))
		c.sorted = true
	}
}

// weigh fills c.weights with exp((logit - Max) / Temperature) for the list and
// returns the sum.
func (c *Candidates) weigh() float64 {
	top, inv, total := float64(c.Max()), 1/c.temp, 0.0
	c.weights = slices.Grow(c.weights[:0], cap(c.list))
	for _, x := range c.list {
		w := expOf((float64(x.Logit) - top) * inv)
		c.weights = append(c.weights, w)
		total += w
	}
	return total
}

// fail notes the first error and leaves no candidate.
func (c *Candidates) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.list, c.listed = c.list[:0], true
}

// checkRow fails if a look at the whole row has found nothing to keep.
func (c *Candidates) checkRow(found bool) {
	switch {
	case found || c.err != nil:
	case c.patcher != "":
		c.fail(fmt.Errorf("sampler: %w after %s", ErrNoCandidates, c.patcher))
	default:
		c.fail(fmt.Errorf("sampler: %w: every logit is -Inf", ErrNoCandidates))
	}
}

// check looks at what a user's own step has left in the list.
func (c *Candidates) check() {
	if !c.listed || c.err != nil {
		return
	}
	for _, x := range c.list {
		if !(x.Logit <= math.MaxFloat32) {
			c.fail(logitError(int(x.ID), x.Logit))
			return
		}
	}
	c.list = slices.DeleteFunc(c.list, func(x Candidate) bool { return x.Logit == negInf })
}

// reach puts the list in order and returns how many of its first tokens it
// takes to reach probability p. Of a row it lists these and few more.
func (c *Candidates) reach(p float64) int {
	if c.listed {
		c.Sort()
		total := c.weigh()
		return prefix(c.weights, p*total)
	}
	mass := p * c.total()
	if c.err != nil {
		return 0
	}
	if enough, _, _ := c.listFew(mass); !enough && c.err == nil {
		c.listMass(mass)
	}
	c.Sort()
	c.weigh()
	return prefix(c.weights, mass)
}

// prefix returns how many of the weights it takes to reach the mass.
func prefix(weights []float64, mass float64) int {
	sum := 0.0
	for i, w := range weights {
		if sum >= mass {
			return i
		}
		sum += w
	}
	return len(weights)
}

// uniform returns the one number that an inverse draw needs.
func (c *Candidates) uniform() float64 {
	if c.twisters != nil {
		return c.twisters[0].double(uint32(c.at.Seed), c.at.Pos-c.promptLen)
	}
	return c.at.Uniform(0)
}

// coin returns the number that decides whether xtc acts.
func (c *Candidates) coin() float64 {
	if c.twisters != nil {
		return c.twisters[1].float(uint32(c.at.Seed), c.at.Pos-c.promptLen)
	}
	at := c.at
	at.Stream = StreamXTC
	return at.Uniform(0)
}

// drawInverse returns the token at which the probabilities reach u.
func (c *Candidates) drawInverse(u float64) int32 {
	n := c.reach(u)
	if c.err != nil {
		return 0
	}
	return c.list[max(0, n-1)].ID
}

// drawList returns the winner of the draw among the list.
func (c *Candidates) drawList(k key) int32 {
	best, top, f := int32(-1), math.Inf(-1), newFence(c.temp)
	for _, x := range c.list {
		bits := k.bits(x.ID)
		if !f.admits(x.Logit, bits) {
			continue
		}
		if s := c.score(x.Logit) + gumbelOf(uniformOf(bits)); s > top || s == top && x.ID < best {
			best, top = x.ID, s
			f.raise(top)
		}
	}
	return best
}

// drawRow returns the winner of the draw among the whole row. Only for tokens
// that nextContender does not rule out is the noise computed.
func (c *Candidates) drawRow(k key) int32 {
	best, f := -1, newFence(c.temp)
	top := math.Inf(-1)
	for i := nextContender(c.row, 0, f, k); i < len(c.row); i = nextContender(c.row, i+1, f, k) {
		v := c.row[i]
		if !(v <= math.MaxFloat32) {
			c.fail(logitError(i, v))
			return 0
		}
		if v == negInf || c.cut && (v <= c.floor || v > c.ceiling) { // cannot win
			continue
		}
		if s := c.score(v) + k.gumbel(int32(i)); s > top {
			best, top = i, s
			f.raise(top)
		}
	}
	c.checkRow(best >= 0)
	return int32(best)
}
