package speculative

import (
	"fmt"
	"slices"

	"github.com/sortes-llm/sortes/sampler"
)

// Root is the number, as a parent and as a result, of what a tree grows from:
// the text so far.
const Root = -1

// A Tree is a draft that goes on in more than one way. Its nodes are tokens,
// numbered from 0, each behind the node that it follows. The zero Tree is
// empty: Root alone.
type Tree struct {
	Tokens  []int32 // by node
	Parents []int   // by node: an earlier one, or Root

	// Dists holds, at index node+1, from which distribution the children of
	// the node were drawn, in the order of their numbers; it is not read where
	// there are none. No Dists at all means certain proposals.
	Dists []sampler.Dist

	// Replacement says that children of a node were drawn independently, and
	// may be equal. Otherwise each was drawn from what was left without those
	// before it.
	Replacement bool
}

// Add appends a node and returns its number.
func (t *Tree) Add(parent int, token int32) int {
	t.Tokens = append(t.Tokens, token)
	t.Parents = append(t.Parents, parent)
	return len(t.Tokens) - 1
}

// Draw draws one more child of a node, or of Root, from q, for [Verifier.Traverse]
// to judge in the round that starts at a position of the text with a seed. It
// returns the number of the child, or Root where nothing is left to draw. All
// children of a node are drawn from the same q, which must not change while the
// tree is in use.
func (t *Tree) Draw(parent int, q *sampler.Dist, seed uint64, start int) int {
	return t.draw(noise{}, parent, q, seed, start)
}

func (t *Tree) draw(c chance, parent int, q *sampler.Dist, seed uint64, start int) int {
	weights, total := make([]float64, q.Len()), 0.0
	for i := range weights {
		x, p := q.ByID(i)
		if t.Replacement || !t.hasChild(parent, x) {
			weights[i] = p
			total += weights[i]
		}
	}
	if total == 0 {
		return Root
	}
	x, _ := q.ByID(c.choose(draftKey(seed, start, len(t.Tokens)), weights, total))
	t.Dists = append(t.Dists, make([]sampler.Dist, len(t.Tokens)+2-len(t.Dists))...)
	t.Dists[parent+1] = *q
	return t.Add(parent, x)
}

func (t *Tree) hasChild(parent int, token int32) bool {
	return t.childBelow(parent, token, len(t.Tokens)) >= 0
}

// childBelow returns the child of a node, below limit, that is a token, or -1.
func (t *Tree) childBelow(parent int, token int32, limit int) int {
	for c := parent + 1; c < limit; c++ {
		if t.Parents[c] == parent && t.Tokens[c] == token {
			return c
		}
	}
	return -1
}

// draft returns a tree without Replacement as a draft.
func (t *Tree) draft() Draft {
	d := Draft{Tokens: t.Tokens, Parents: t.Parents}
	if len(t.Dists) > 0 {
		for _, p := range t.Parents {
			d.Dists = append(d.Dists, t.Dists[p+1])
		}
	}
	return d
}

// check reports what makes it no tree.
func (t *Tree) check() error {
	if len(t.Parents) != len(t.Tokens) {
		return fmt.Errorf("speculative: a tree of %d tokens has %d parents, want one for each", len(t.Tokens), len(t.Parents))
	}
	if len(t.Dists) != 0 && len(t.Dists) != len(t.Tokens)+1 {
		return fmt.Errorf("speculative: a tree of %d tokens has %d distributions, want none, or one more than tokens", len(t.Tokens), len(t.Dists))
	}
	for i, p := range t.Parents {
		if p < Root || p >= i {
			return fmt.Errorf("speculative: the parent of node %d of a tree is %d, want an earlier node or Root", i, p)
		}
	}
	return nil
}

// checkDraws reports children that cannot have been drawn as the tree says.
func (t *Tree) checkDraws() error {
	for i, x := range t.Tokens {
		p := t.Parents[i]
		if t.Dists[p+1].Index(x) < 0 {
			return fmt.Errorf("speculative: node %d of a tree is token %d, which the distribution of its parent does not list", i, x)
		}
		for j := range i {
			if !t.Replacement && t.Parents[j] == p && t.Tokens[j] == x {
				return fmt.Errorf("speculative: nodes %d and %d of a tree are both token %d, drawn without replacement", j, i, x)
			}
		}
	}
	return nil
}

// A Place is where a node stands in a batch that evaluates a whole tree. Rows
// in the order of the nodes have parents before children. A leaf is given a
// sequence; a node belongs to the sequences of all leaves behind it.
type Place struct {
	Depth       int // the tokens between Root and the node: 0 for the first
	First, Last int // its leaves: numbers from First to below Last
}

// Layout makes dst the places of the nodes. Leaves are numbered from 0 so that
// those behind a node follow one another.
func (t *Tree) Layout(dst []Place) ([]Place, error) {
	if err := t.check(); err != nil {
		return dst[:0], err
	}
	n := len(t.Tokens)
	leaves := make([]int, n+1) // behind each node, at index node+1
	for i := n - 1; i >= 0; i-- {
		leaves[i+1] = max(1, leaves[i+1])
		leaves[t.Parents[i]+1] += leaves[i+1]
	}
	free := make([]int, n+1) // the first leaf behind each node that no child has
	dst = slices.Grow(dst[:0], n)[:n]
	for i, p := range t.Parents {
		dst[i] = Place{First: free[p+1], Last: free[p+1] + leaves[i+1]}
		if p != Root {
			dst[i].Depth = dst[p].Depth + 1
		}
		free[p+1], free[i+1] = dst[i].Last, dst[i].First
	}
	return dst, nil
}

// Walk follows a tree of certain proposals: from Root it goes down to the child
// that is the token of the target, for as long as there is one. It returns the
// node where it ends and the token that follows. pick returns the token that
// the plain text has behind a node: the result is the plain text, and of all
// rules for this tree none gets further.
//
// An error of pick ends the walk at that node.
func Walk(t *Tree, pick func(node int) (int32, error)) (node int, next int32, err error) {
	if err := t.check(); err != nil {
		return Root, 0, err
	}
	node = Root
	for {
		if next, err = pick(node); err != nil {
			return node, 0, err
		}
		child := t.childBelow(node, next, len(t.Tokens))
		if child < 0 {
			return node, next, nil
		}
		node = child
	}
}
