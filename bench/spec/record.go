package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// A measurement is one text of one side.
type measurement struct {
	Side        string
	Kind        string
	Number      int // of the prompt in its kind
	Round       int
	Temperature float64
	Exact       bool
	Length      int // of a draft, 0 where the controller decides

	Tokens  int
	Seconds float64

	// Of our sides; of the tools Drafted and Accepted alone.
	Rounds, Drafted, Tested, Accepted int
	Draft, Verify, Sampling           float64 // seconds
	Distinct                          float64 // distinct-4
	Same                              bool    // the text is that without drafts
}

func (m measurement) rate() float64 { return float64(m.Tokens) / m.Seconds }

// A record holds measurements, and appends them to a file if there is one: a
// run in pieces makes one report.
type record struct {
	all  []measurement
	file *os.File
}

func openRecord(path string) (*record, error) {
	r := &record{}
	if path == "" {
		return r, nil
	}
	var err error
	if r.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return nil, err
	}
	d := json.NewDecoder(r.file)
	for {
		var m measurement
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return r, nil
		} else if err != nil {
			r.file.Close()
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		r.all = append(r.all, m)
	}
}

func (r *record) add(m measurement) error {
	r.all = append(r.all, m)
	if r.file == nil {
		return nil
	}
	return json.NewEncoder(r.file).Encode(m)
}

func (r *record) of(temperature float64, exact bool) []measurement {
	var some []measurement
	for _, m := range r.all {
		if m.Temperature == temperature && m.Exact == exact {
			some = append(some, m)
		}
	}
	return some
}

func (r *record) close() {
	if r.file != nil {
		r.file.Close()
	}
}
