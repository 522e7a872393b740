package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sortes-llm/sortes/speculative"
)

// lookupWindow is the number of tokens that a lookup cache remembers, the
// latest ones; 43 MB when full.
const lookupWindow = 1 << 18

// loadLookupCache returns the n-grams of earlier texts, nil where none are asked
// for. A dynamic cache that is missing or empty is a beginning.
func (s *speculationOptions) loadLookupCache(vocab int) (*speculative.Index, error) {
	flag, name := "-lcs", s.static
	if s.dynamic != "" {
		flag, name = "-lcd", s.dynamic
	}
	if name == "" {
		return nil, nil
	}
	o := speculative.IndexOptions{MinContext: s.shortest, MaxContext: s.longest, Window: lookupWindow, Vocab: vocab}
	f, err := os.Open(name)
	if s.dynamic != "" && errors.Is(err, fs.ErrNotExist) {
		return speculative.NewIndex(o)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, name, withoutPath(err))
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() == 0 && s.dynamic != "" {
		return speculative.NewIndex(o)
	}
	index, err := speculative.LoadIndex(f, o)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, name, withoutPath(err))
	}
	return index, nil
}

// saveLookupCache writes a dynamic cache.
func (s *speculationOptions) saveLookupCache(index *speculative.Index) error {
	if s.dynamic == "" || index == nil {
		return nil
	}
	if err := replaceFile(s.dynamic, index.Save); err != nil {
		return fmt.Errorf("-lcd %s: %w", s.dynamic, withoutPath(err))
	}
	return nil
}

// replaceFile writes a file anew: it has its old content until all of the new
// one is there.
func replaceFile(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // does nothing once it is renamed
	if err := errors.Join(write(f), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
