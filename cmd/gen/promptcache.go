package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/sortes-llm/sortes/eval"
	"github.com/sortes-llm/sortes/llama"
)

// A promptCache keeps an evaluated prompt in a file: --prompt-cache. Without a
// file it does nothing.
type promptCache struct {
	file     string
	all      bool // keep the generated text too
	readOnly bool
	session  *llama.Session

	held []int32 // what the file had
}

// load brings the session to what the file holds. A file that is missing or
// empty is a beginning.
func (c *promptCache) load() error {
	if c.file == "" {
		return nil
	}
	f, err := os.Open(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("prompt cache %w", errors.Unwrap(err))
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() == 0 {
		return nil
	}
	c.held, err = c.session.LoadState(f, 0)
	if err != nil {
		return fmt.Errorf("prompt cache %s: %w: delete the file or name another one", c.file, err)
	}
	return nil
}

// promptTokens tokenises the prompt. Without one the text in the file goes on.
func (c *promptCache) promptTokens(v *llama.Vocab, text string) ([]int32, error) {
	if text == "" && len(c.held) > 0 {
		return slices.Clone(c.held), nil
	}
	return promptTokens(v, text)
}

// save writes the file anew: tokens are the text, the first of them prompt.
func (c *promptCache) save(tokens []int32, prompt int) error {
	if c.file == "" || c.readOnly {
		return nil
	}
	n := min(c.session.Len(0), len(tokens))
	if n < prompt {
		return nil // interrupted: nothing worth keeping
	}
	if !c.all {
		n = prompt
	}
	if err := c.session.Truncate(0, n); err != nil {
		return fmt.Errorf("prompt cache %s: %w: only --prompt-cache-all works with it", c.file, err)
	}
	if n == len(tokens)-1 && c.all && n < c.session.Limits().Context {
		// The last token was chosen and not evaluated yet.
		if err := c.session.Eval(context.Background(), []eval.Row{{Token: tokens[n]}}); err != nil {
			return fmt.Errorf("prompt cache %s: %w", c.file, err)
		}
		n++
	}
	if slices.Equal(tokens[:n], c.held) {
		return nil
	}
	err := replaceFile(c.file, func(w io.Writer) error { return c.session.SaveState(w, 0, tokens[:n]) })
	if err != nil {
		return fmt.Errorf("prompt cache %s: %w", c.file, err)
	}
	return nil
}
