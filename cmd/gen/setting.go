package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// A setting is one flag with everything that is known about it. Parsing, -h
// and --explain read it and nothing else. It implements cli.Flag.
type setting struct {
	names string // "-n, --predict": in messages the long one is used
	off   string // names that switch it off, for a switch
	arg   string // what the value is called in -h; empty for a switch
	env   string // variable of the environment
	meta  string // key of the model's metadata
	group string // heading in -h; settings without one are not listed
	usage string
	value

	// An alias sets another setting: of, to what convert makes of the text.
	// With a notice it is a spelling that llama.cpp has given up.
	of      *setting
	convert func(text string) (string, error)
	notice  bool

	preset string // the default, as get shows it
	source source
	typed  string // the spelling used on the command line
	note   string // for --explain: how the value was arrived at
}

// A source says where a value came from. A higher one wins.
type source int

const (
	fromDefault source = iota
	fromModel
	fromEnvironment
	fromFlag
)

// A parser is what the settings of one command share.
type parser struct {
	settings []*setting
	notices  []string // for the user, in order
	err      error    // the first bad value
}

func (p *parser) flags() []cli.Flag {
	flags := make([]cli.Flag, len(p.settings))
	for i, s := range p.settings {
		if s.of == nil {
			s.preset = s.get()
		}
		flags[i] = &boundSetting{s, p}
	}
	return flags
}

// find returns a setting by one of its names.
func (p *parser) find(name string) *setting {
	for _, s := range p.settings {
		if slices.Contains(s.spellings(), name) {
			return s
		}
	}
	panic("gen: no setting is called " + name)
}

// given reports whether the user chose the value, by flag or environment.
func (p *parser) given(name string) bool { return p.find(name).source >= fromEnvironment }

func (p *parser) notef(format string, args ...any) {
	p.notices = append(p.notices, fmt.Sprintf(format, args...))
}

// noteIdle tells the user that a flag of the command line changes nothing.
func (p *parser) noteIdle(name, because string) {
	if s := p.find(name); s.source == fromFlag {
		p.notef("%s has no effect %s", strings.TrimSpace(cmp.Or(s.typed, s.name())+" "+s.shown(s.get())), because)
	}
}

func (s *setting) spellings() []string {
	return strings.FieldsFunc(s.names+","+s.off, func(r rune) bool { return r == ',' || r == ' ' })
}

// name returns the first long spelling, or the first.
func (s *setting) name() string {
	names := s.spellings()
	for _, n := range names {
		if strings.HasPrefix(n, "--") {
			return n
		}
	}
	return names[0]
}

// from says where the value came from.
func (s *setting) from() string {
	switch s.source {
	case fromFlag:
		return "flag"
	case fromEnvironment:
		return "environment, " + s.env
	case fromModel:
		return "model, " + s.meta
	default:
		return "default"
	}
}

// assign sets the value to text unless a better source has done so.
func (s *setting) assign(text string, from source) error {
	if from < s.source {
		return nil
	}
	if err := s.set(text); err != nil {
		return err
	}
	s.source = from
	return nil
}

// boundSetting is a setting in the hands of urfave/cli and its flag set.
type boundSetting struct {
	*setting
	p *parser
}

func (b *boundSetting) Apply(set *flag.FlagSet) error {
	if text := os.Getenv(b.env); b.env != "" && text != "" {
		if err := b.assign(text, fromEnvironment); err != nil {
			return badUsage("%s=%s: %w", b.env, text, err)
		}
	}
	for _, name := range b.spellings() {
		off := slices.Contains(strings.Split(b.off, ", "), name)
		set.Var(&spelling{b.setting, b.p, name, off}, strings.TrimLeft(name, "-"), b.usage)
	}
	return nil
}

// Names has one entry only: urfave/cli copies values between several.
func (b *boundSetting) Names() []string { return []string{strings.TrimLeft(b.name(), "-")} }
func (b *boundSetting) IsSet() bool     { return b.source >= fromEnvironment }
func (b *boundSetting) String() string  { return b.name() }

// A spelling is one name of a setting. It implements flag.Value.
type spelling struct {
	*setting
	p    *parser
	name string
	off  bool
}

func (s *spelling) String() string   { return "" }
func (s *spelling) IsBoolFlag() bool { return s.setting != nil && s.arg == "" }

func (s *spelling) Set(text string) error {
	err := s.take(text)
	if err != nil && s.p.err == nil {
		switch {
		case s.arg == "" && text == "true":
			s.p.err = badUsage("%s: %w", s.name, err)
		case text == "":
			s.p.err = badUsage(`%s "": %w`, s.name, err)
		default:
			s.p.err = badUsage("%s %s: %w", s.name, text, err)
		}
	}
	return err
}

func (s *spelling) take(text string) error {
	s.typed = s.name
	if s.of != nil {
		converted, err := s.convert(text)
		if err != nil {
			return err
		}
		if s.notice {
			s.p.notef("%s is now %s", strings.TrimSpace(s.name+" "+s.shown(text)), strings.TrimSpace(s.of.name()+" "+converted))
		}
		return s.of.assign(converted, fromFlag)
	}
	if s.off {
		on, err := parseSwitch(text)
		if err != nil {
			return err
		}
		text = "off"
		if !on {
			text = "on"
		}
	}
	return s.assign(text, fromFlag)
}

// shown is the value of a flag as a user typed it: nothing for a switch.
func (s *setting) shown(text string) string {
	if s.arg == "" {
		return ""
	}
	return text
}

// unknownFlag is the error for a flag that does not exist, with the nearest
// that does.
func (p *parser) unknownFlag(name, command string) error {
	type guess struct {
		name     string
		distance int
	}
	bare := strings.ReplaceAll(strings.TrimLeft(name, "-"), "_", "-")
	var near []guess
	for _, s := range p.settings {
		for _, spelled := range s.spellings() {
			d := editDistance(bare, strings.TrimLeft(spelled, "-"))
			if d <= len(bare)/2 && d <= max(2, len(bare)/4) {
				near = append(near, guess{spelled, d})
			}
		}
	}
	help := strings.TrimSpace("gen "+command) + " -h lists all flags"
	if len(near) == 0 {
		return badUsage("%s: unknown flag; %s", name, help)
	}
	best := slices.MinFunc(near, func(a, b guess) int { return cmp.Compare(a.distance, b.distance) })
	return badUsage("%s: unknown flag; did you mean %s? %s", name, best.name, help)
}

// editDistance counts the insertions, deletions, substitutions and swaps of
// neighbours that turn a into b (optimal string alignment).
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			substitute := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				substitute++
			}
			d := min(substitute, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
