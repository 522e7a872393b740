package gguf

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// partName matches the names of the parts of a split model, as llama_split_path
// in llama.cpp makes them.
var partName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// Splits returns the paths of all files of the model that path belongs to, the
// first first: NAME-00001-of-00003.gguf to NAME-00003-of-00003.gguf if path is
// one of them, else path alone. It fails, naming the file, where one is missing.
func Splits(path string) ([]string, error) {
	m := partName.FindStringSubmatch(path)
	if m == nil {
		return []string{path}, nil
	}
	part, _ := strconv.Atoi(m[2])
	parts, _ := strconv.Atoi(m[3])
	if part < 1 || part > parts {
		return nil, fmt.Errorf("gguf: %s: there is no part %d of %d", filepath.Base(path), part, parts)
	}
	var paths []string
	for i := range parts {
		p := fmt.Sprintf("%s-%05d-of-%05d.gguf", m[1], i+1, parts)
		if _, err := os.Stat(p); err != nil {
			return nil, fmt.Errorf("gguf: part %d of %d is missing: %w", i+1, parts, err)
		}
		paths = append(paths, p)
	}
	return paths, nil
}

// CheckFiles reads and checks all files of the model that path belongs to and
// returns their paths, as Splits does. An error about a part of a split model
// begins with its name.
func CheckFiles(path string) ([]string, error) {
	paths, err := Splits(path)
	if err != nil {
		return nil, err
	}
	for i, p := range paths {
		f, err := ReadFile(p)
		if err == nil {
			err = f.Check()
		}
		if err == nil && len(paths) > 1 {
			err = f.checkPart(i, len(paths))
		}
		if err != nil && len(paths) > 1 {
			err = fmt.Errorf("%s: %w", filepath.Base(p), err)
		}
		if err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// checkPart checks that a file says of itself that it is part i of n.
func (f *File) checkPart(i, n int) error {
	for _, want := range []struct {
		key   string
		value int
	}{{"split.no", i}, {"split.count", n}} {
		v, ok := f.Lookup(want.key)
		if !ok {
			return errorf("%s is missing: by its name the file is part %d of %d", want.key, i+1, n)
		}
		if u, _ := v.Uint(); u != uint64(want.value) {
			return errorf("%s is %v: by its name the file is part %d of %d", want.key, v, i+1, n)
		}
	}
	return nil
}
