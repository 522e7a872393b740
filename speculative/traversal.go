package speculative

import (
	"fmt"

	"github.com/sortes-llm/sortes/sampler"
)

// Traverse is traversal verification (Weng et al. 2025, arXiv:2505.12398): it
// returns the node up to which a tree stands, or Root, and the token that
// follows. The text follows the target's distribution. target holds that of the
// token behind a node at index node+1; at says the seed of the text and the
// position of its next token, which the children of Root are drawn for.
//
// It tries the leaves first, in the order of their numbers, each with all that
// leads to it. Whatever fails is taken from what its parent may still be
// followed by, and when all children of a node have failed, the node is tried.
// For a tree of one branch that is [Block].
func (v *Verifier) Traverse(target []sampler.Dist, t *Tree, at sampler.Draw) (node int, next int32, err error) {
	if err := t.check(); err != nil {
		return Root, 0, err
	}
	if len(target) != len(t.Tokens)+1 {
		return Root, 0, fmt.Errorf("speculative: a tree of %d tokens has %d distributions of the target, want one more than tokens", len(t.Tokens), len(target))
	}
	for i := range target {
		if target[i].Len() == 0 {
			return Root, 0, fmt.Errorf("speculative: the target's distribution behind node %d of a tree is empty", i-1)
		}
	}
	if len(t.Dists) == 0 {
		return Root, 0, fmt.Errorf("speculative: a tree of certain proposals is no draw; Walk follows it")
	}
	if err := t.checkDraws(); err != nil {
		return Root, 0, err
	}
	tr := traversal{v, target, t, at}
	node, next, _ = tr.visit(Root, 0, 1)
	return node, next, nil
}

type traversal struct {
	v      *Verifier
	target []sampler.Dist
	tree   *Tree
	at     sampler.Draw
}

// A level is what is left of a node's distributions while it is visited.
type level struct {
	p, q []float64 // of the target and of the draft, by index into the target's
	left float64   // what probability the draft's has not lost
}

// visit tries the branches below a node and then the node itself. product is
// the chance that the node has to stand, 1 for Root. It returns where the tree
// stands and the token behind, or false where nothing of the branch does.
func (tr traversal) visit(node, depth int, product float64) (int, int32, bool) {
	v, p, q := tr.v, &tr.target[node+1], &tr.tree.Dists[node+1]
	for len(v.tree) <= depth {
		v.tree = append(v.tree, level{})
	}
	tr.enter(&v.tree[depth], p, q)
	for c := node + 1; c < len(tr.tree.Tokens); c++ {
		if tr.tree.Parents[c] != node {
			continue
		}
		l := &v.tree[depth] // a visit may have moved it
		x := p.Index(tr.tree.Tokens[c])
		childProduct := 0.0
		if x >= 0 {
			childProduct = min(1, product*l.p[x]/l.q[x])
		}
		if stands, next, ok := tr.visit(c, depth+1, childProduct); ok {
			return stands, next, true
		}
		l = &v.tree[depth]
		product = l.reject(product)
		if !tr.tree.Replacement {
			l.remove(x, q.ProbOf(tr.tree.Tokens[c]))
		}
	}
	if !v.random().below(testKey(tr.at.Seed, tr.at.Pos, node+1), product) {
		return 0, 0, false
	}
	l := &v.tree[depth]
	total := 0.0
	for _, w := range l.p {
		total += w
	}
	i := v.random().choose(residualKey(tr.at.Seed, tr.at.Pos+depth), l.p, total)
	next, _ := p.ByID(i)
	return node, next, true
}

// enter fills the level.
func (tr traversal) enter(l *level, p, q *sampler.Dist) {
	l.p, l.q, l.left = l.p[:0], l.q[:0], 1
	tr.v.spread(q)
	for i := range p.Len() {
		x, prob := p.ByID(i)
		l.p = append(l.p, prob)
		l.q = append(l.q, tr.v.prob(x))
	}
	tr.v.unspread(q)
}

// reject takes a draw that failed from the target's distribution, and returns
// the chance that is left to the node.
func (l *level) reject(product float64) float64 {
	sum := 0.0
	for i, p := range l.p {
		sum += max(0, product*p-l.q[i])
	}
	if sum == 0 {
		if product == 1 {
			return 1 // p and q differ by rounding alone
		}
		return 0
	}
	for i, p := range l.p {
		l.p[i] = max(0, product*p-l.q[i]) / sum
	}
	return chanceOf(sum, product)
}

// remove takes a token from the draft's distribution. x is its index in the
// target's, below 0 where it has none, prob its probability at first.
func (l *level) remove(x int, prob float64) {
	before := l.left
	l.left -= prob
	if x >= 0 {
		l.q[x] = 0
	}
	for i := range l.q {
		if l.left > 0 {
			l.q[i] *= before / l.left
		} else {
			l.q[i] = 0 // nothing is left to draw
		}
	}
}
