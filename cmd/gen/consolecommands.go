package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sortes-llm/sortes/speculative"
)

// A consoleCommand is one of those that begin with a slash.
type consoleCommand struct {
	name, args, usage string
	state             func() string // what holds now; nil for a command without
	run               func(args []string) error
}

// table lists the commands, in the order of /help.
func (s *console) table() []consoleCommand {
	o, c := s.o, s.c
	return []consoleCommand{
		s.toggleStrategy("target", plainly, "the target alone, which others are compared with"),
		s.toggleStrategy("speculative", mustFind("draft"), "drafts by the draft model"),
		s.toggleStrategy("ngram", mustFind("ngram"), "drafts from repetition"),
		s.toggleStrategy("cascade", mustFind("cascade"), "drafts from repetition, else by the draft model"),
		{"strategies", "A,B,...", "what is compared, of " + strategyNames(), func() string {
			var names []string
			for _, x := range s.chosen {
				names = append(names, x.name)
			}
			return cmp.Or(strings.Join(names, ","), "none")
		}, s.setStrategies},
		{"drafter", "FILE", "the draft model", func() string { return cmp.Or(o.speculation.model, "none") }, s.setDrafter},
		s.value("gamma", "N", "tokens of a draft at most", "--spec-draft-n-max"),
		s.toggle("adaptive", "draft as many tokens as pay; off = always as many as may be", &o.speculation.adaptive, true),
		s.value("length", "N", "tokens to generate at most; -1 = no limit", "--predict"),
		s.value("seed", "N", "seed of the draws; -1 = another random one", "--seed"),
		{"processor", "NAME ...", "how tokens are chosen: " + processorNames(), nil, s.processor},
		s.value("top_k_filler", "N", "likely tokens of each position that n-gram drafts learn from; 0 = off", "--spec-ngram-filler"),
		{"set_ngramstorage", "KIND N", "n-grams of N tokens (onelevel), or of 2 to N (multilevel)", s.storage, s.setStorage},
		{"reset_in_between", "", "n-gram drafts forget a text when it ends; off = later texts draft from it", func() string { return onOff(c.stores == nil) }, s.toggleStores},
		s.toggle("cache", "keep the target's cache, so that what a text shares with the one before is not read again", &c.keep, true),
		s.toggle("debug", "list every token and where it comes from", &s.debug, true),
		{"chat", "", "", nil, func([]string) error {
			return errors.New("gen has no chat templates yet: prompts are taken as they are")
		}},
		{"help", "", "this list", nil, func([]string) error { s.help(); return nil }},
		{"quit", "", "end", nil, func([]string) error { s.quit = true; return nil }},
	}
}

// toggle is a command that switches p, which is on while *p is when.
func (s *console) toggle(name, usage string, p *bool, when bool) consoleCommand {
	state := func() string { return onOff(*p == when) }
	return consoleCommand{name, "", usage, state, func(args []string) error {
		if len(args) > 0 {
			return errNoValue
		}
		*p = !*p
		s.say(name, state())
		return nil
	}}
}

var errNoValue = errors.New("takes no value: it switches between on and off")

// toggleStores lets texts leave something behind for later ones, or not.
func (s *console) toggleStores(args []string) error {
	if len(args) > 0 {
		return errNoValue
	}
	if s.c.stores == nil {
		s.c.stores = map[string]*speculative.Index{}
	} else {
		s.c.stores = nil
	}
	s.say("reset_in_between", onOff(s.c.stores == nil))
	return nil
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// say tells the user what holds now.
func (s *console) say(name, state string) { fmt.Fprintf(s.stderr, "%s: %s\n", name, state) }

// toggleStrategy is a command that takes a strategy into the comparison, or out
// of it.
func (s *console) toggleStrategy(name string, x strategy, usage string) consoleCommand {
	state := func() string { return onOff(slices.Contains(s.chosen, x)) }
	return consoleCommand{name, "", usage, state, func(args []string) error {
		if len(args) > 0 {
			return errNoValue
		}
		if i := slices.Index(s.chosen, x); i >= 0 {
			s.chosen = slices.Delete(s.chosen, i, i+1)
		} else if err := s.choose(append(slices.Clone(s.chosen), x)); err != nil {
			return err
		}
		s.say(name, state())
		return nil
	}}
}

// choose takes strategies, in the order of tables.
func (s *console) choose(chosen []strategy) error {
	for _, x := range chosen {
		if x.needsModel() && s.c.draft == nil {
			return fmt.Errorf("%s needs a draft model: /drafter FILE opens one", x.name)
		}
		if because := s.noTrees(); x.tree && because != "" {
			return fmt.Errorf("%s: there are no trees %s", x.name, because)
		}
	}
	slices.SortFunc(chosen, func(a, b strategy) int {
		return cmp.Compare(slices.Index(strategies, a), slices.Index(strategies, b))
	})
	s.chosen = chosen
	return nil
}

// noTrees says why no drafts can be trees, or is empty.
func (s *console) noTrees() string {
	if because := s.c.noTrees(s.o.options); because != "" {
		return because
	}
	if s.c.session.Branches() == 0 {
		return "without -md beside --spec-draft-widths on the command line"
	}
	return ""
}

func (s *console) setStrategies(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want all, or some of %s, separated by commas", strategyNames())
	}
	chosen, err := parseStrategies(strings.Join(args, ""), s.noTrees() == "")
	if err == nil {
		err = s.choose(chosen)
	}
	if err != nil {
		return err
	}
	s.say("strategies", s.find("strategies").state())
	return nil
}

// setDrafter opens a draft model, and drafts with it.
func (s *console) setDrafter(args []string) error {
	if len(args) == 0 {
		s.say("drafter", s.find("drafter").state())
		return nil
	}
	path := strings.Join(args, " ")
	if err := s.replaceDraft(s.c.models, s.o.options, "/drafter", path); err != nil {
		return err
	}
	s.log.settle(nil)
	s.o.speculation.model = path
	s.warm = slices.DeleteFunc(s.warm, func(x strategy) bool { return x.needsModel() })
	s.say("drafter", path)
	if !slices.ContainsFunc(s.chosen, func(x strategy) bool { return x.needsModel() }) {
		if err := s.choose(append(slices.Clone(s.chosen), mustFind("draft"))); err != nil {
			return err
		}
		s.say("speculative", "on")
	}
	return nil
}

// value is a command that sets what a flag sets.
func (s *console) value(name, arg, usage, flag string) consoleCommand {
	setting := s.o.find(flag)
	return consoleCommand{name, arg, usage, setting.get, func(args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("%s: want one value", strings.Join(args, " "))
		}
		if len(args) == 1 {
			before := setting.get()
			err := setting.set(args[0])
			if err == nil {
				if err = s.check(); err != nil {
					err = errors.Join(err, setting.set(before))
				}
			}
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			s.o.resolveSeed()
		}
		s.say(name, setting.get())
		return nil
	}}
}

// check reports what does not go together in the settings.
func (s *console) check() error {
	o, limits := &s.o.speculation, s.c.session.Limits()
	room := min(limits.Batch, limits.Outputs)/limits.Sequences - 1
	wide := o.wide()
	switch {
	case s.o.predict == 0:
		return errors.New("want 1 or more, or -1 for no limit")
	case o.most < o.least:
		return fmt.Errorf("want at least --spec-draft-n-min, which is %d", o.least)
	case o.most < wide:
		return fmt.Errorf("want at least %d, the tokens of --spec-draft-widths", wide)
	case o.most > room:
		return fmt.Errorf("want at most %d: a batch has no room for more", room)
	}
	return nil
}

// Lengths of n-grams: a token and the contexts before it.
const shortestGram, longestGram = 2, 33

// setStorage chooses the contexts that n-gram drafts look up.
func (s *console) setStorage(args []string) error {
	want := fmt.Errorf("want onelevel or multilevel, and a number from %d to %d", shortestGram, longestGram)
	n := 0
	if len(args) != 2 || intValue(&n, shortestGram, longestGram, "").set(args[1]) != nil {
		return want
	}
	switch args[0] {
	case "onelevel":
		s.o.speculation.shortest = n - 1
	case "multilevel":
		s.o.speculation.shortest = 1
	default:
		return want
	}
	s.o.speculation.longest = n - 1
	if s.c.stores != nil { // what they hold was laid up the other way
		s.c.stores = map[string]*speculative.Index{}
	}
	s.say("set_ngramstorage", s.storage())
	return nil
}

func (s *console) storage() string {
	kind := "multilevel"
	if x := &s.o.speculation; x.shortest == x.longest {
		kind = "onelevel"
	}
	return fmt.Sprintf("%s %d", kind, s.o.speculation.longest+1)
}

func (s *console) find(name string) *consoleCommand {
	i := slices.IndexFunc(s.commands, func(c consoleCommand) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return &s.commands[i]
}

// command carries out a line without its slash.
func (s *console) command(line string) error {
	words := strings.Fields(line)
	if len(words) == 0 {
		return errors.New("/: unknown command; /help lists them; a prompt that begins with / is typed with //")
	}
	if x := s.find(words[0]); x != nil {
		if err := x.run(words[1:]); err != nil {
			return fmt.Errorf("/%s: %w", x.name, err)
		}
		return nil
	}
	near, distance := "", 0
	for _, x := range s.commands {
		if d := editDistance(words[0], x.name); d <= max(2, len(words[0])/3) && d < len(x.name) && (near == "" || d < distance) {
			near, distance = x.name, d
		}
	}
	if near == "" {
		return fmt.Errorf("/%s: unknown command; /help lists them", words[0])
	}
	return fmt.Errorf("/%s: unknown command; did you mean /%s? /help lists them", words[0], near)
}

// help lists the commands with what holds now.
func (s *console) help() {
	const left, width = 26, 110
	for _, x := range s.commands {
		if x.usage == "" {
			continue
		}
		usage := x.usage
		if x.state != nil {
			usage += " (now " + x.state() + ")"
		}
		column := strings.TrimSpace("/" + x.name + " " + x.args)
		for _, line := range wrap(usage, width-left) {
			fmt.Fprintf(s.stderr, "%-*s%s\n", left, column, line)
			column = ""
		}
	}
	fmt.Fprintln(s.stderr, "Any other line is a prompt; one that begins with / is typed with //. Ctrl-C ends a text, Ctrl-D gen.")
}
