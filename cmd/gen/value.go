package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A value is what a setting sets. The error of set says what is allowed; the
// setting's name and the text are put before it.
type value struct {
	set func(text string) error
	get func() string
}

// intValue is a whole number from low to high; want describes the range.
func intValue(p *int, low, high int, want string) value {
	return value{
		set: func(text string) error {
			n, err := strconv.Atoi(text)
			if err != nil || n < low || n > high {
				return fmt.Errorf("want %s", want)
			}
			*p = n
			return nil
		},
		get: func() string { return strconv.Itoa(*p) },
	}
}

// floatValue is a finite number from low to high; want describes the range.
func floatValue(p *float64, low, high float64, want string) value {
	return value{
		set: func(text string) error {
			x, err := strconv.ParseFloat(text, 64)
			if err != nil || !(x >= low && x <= high) || math.IsInf(x, 0) {
				return fmt.Errorf("want %s", want)
			}
			*p = x
			return nil
		},
		get: func() string { return strconv.FormatFloat(*p, 'g', -1, 64) },
	}
}

// switchValue is a boolean: set to on while the switch is on, else to !on.
func switchValue(p *bool, on bool) value {
	return value{
		set: func(text string) error {
			is, err := parseSwitch(text)
			if err != nil {
				return err
			}
			*p = is == on
			return nil
		},
		get: func() string {
			if *p == on {
				return "on"
			}
			return "off"
		},
	}
}

// parseSwitch reads a boolean as llama.cpp does from the environment.
func parseSwitch(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "true", "on", "1", "enabled":
		return true, nil
	case "false", "off", "0", "disabled":
		return false, nil
	}
	return false, errors.New("want on or off")
}

func textValue(p *string) value {
	return value{
		set: func(text string) error { *p = text; return nil },
		get: func() string { return *p },
	}
}

// fileValue is the name of a file.
func fileValue(p *string) value {
	v := textValue(p)
	v.set = func(text string) error {
		if text == "" || strings.ContainsRune(text, 0) {
			return errors.New("want the name of a file")
		}
		*p = text
		return nil
	}
	return v
}

// A choice is one of the words that an enumeration takes.
type choice[T comparable] struct {
	word string
	is   T
}

func choiceValue[T comparable](p *T, choices ...choice[T]) value {
	var words []string
	for _, c := range choices {
		words = append(words, c.word)
	}
	return value{
		set: func(text string) error {
			i := slices.Index(words, text)
			if i < 0 {
				return fmt.Errorf("want %s or %s", strings.Join(words[:len(words)-1], ", "), words[len(words)-1])
			}
			*p = choices[i].is
			return nil
		},
		get: func() string {
			for _, c := range choices {
				if c.is == *p {
					return c.word
				}
			}
			return ""
		},
	}
}

// onOffAuto is a choice that llama.cpp lets one spell as a boolean too.
func onOffAuto[T comparable](p *T, on, off, auto T) value {
	return value{
		set: func(text string) error {
			if strings.EqualFold(text, "auto") || text == "-1" {
				*p = auto
				return nil
			}
			is, err := parseSwitch(text)
			if err != nil {
				return errors.New("want on, off or auto")
			}
			*p = off
			if is {
				*p = on
			}
			return nil
		},
		get: choiceValue(p, choice[T]{"on", on}, choice[T]{"off", off}, choice[T]{"auto", auto}).get,
	}
}

// listValue appends what parse makes of each text; a flag that is given again
// adds to the list.
func listValue[T any](p *[]T, parse func(text string) ([]T, error), show func(T) string) value {
	return value{
		set: func(text string) error {
			items, err := parse(text)
			if err != nil {
				return err
			}
			*p = append(*p, items...)
			return nil
		},
		get: func() string {
			var shown []string
			for _, x := range *p {
				shown = append(shown, show(x))
			}
			return strings.Join(shown, ",")
		},
	}
}

// splitCommas splits a list at its commas. An item that begins with a double
// quote ends with the next one and may contain commas; "" in it is a quote.
func splitCommas(text string) []string {
	var items []string
	for {
		item, rest := text, ""
		more := false
		if strings.HasPrefix(text, `"`) {
			item, rest = quoted(text[1:])
			rest, more = strings.CutPrefix(rest, ",")
		} else {
			item, rest, more = strings.Cut(text, ",")
		}
		items = append(items, item)
		if !more {
			return items
		}
		text = rest
	}
}

// quoted reads up to the closing quote and returns what stands behind it.
func quoted(text string) (item, rest string) {
	for {
		head, tail, closed := strings.Cut(text, `"`)
		item += head
		if !closed || !strings.HasPrefix(tail, `"`) {
			return item, tail
		}
		item += `"`
		text = tail[1:]
	}
}
