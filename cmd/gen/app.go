package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"
)

// Exit statuses.
const (
	exitDone        = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// A usageError is a mistake on the command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func badUsage(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// An outputError is a failed write to standard output.
type outputError struct{ err error }

func (e outputError) Error() string { return "standard output: " + withoutPath(e.err).Error() }
func (e outputError) Unwrap() error { return e.err }

// errShortUsage is answered with the short usage.
var errShortUsage = usageError{errors.New("no flags")}

// An app is one run of the command.
type app struct {
	ctx    context.Context
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	log    *logHandler
}

// run executes a command line (without the name of the program) and returns
// the exit status. A done ctx interrupts it.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{ctx: ctx, stdin: stdin, stdout: stdout, stderr: stderr}
	a.log = newLogHandler(stderr)
	defer a.log.close()
	err := a.command(newOptions(), a.generate).RunContext(ctx, append([]string{"gen"}, args...))
	return a.status(err)
}

// status reports an error and returns the exit status that it means.
func (a *app) status(err error) int {
	if a.ctx.Err() != nil || errors.As(err, &outputError{}) {
		a.log.drop()
	}
	a.log.settle(err)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errShortUsage):
		fmt.Fprint(a.stderr, shortUsage)
		return exitUsage
	case errors.As(err, &usageError{}):
		a.complain(err)
		return exitUsage
	case a.ctx.Err() != nil:
		if !errors.Is(err, errReported) {
			fmt.Fprintln(a.stderr, "gen: interrupted")
		}
		return exitInterrupted
	case isClosedPipe(err):
		return exitDone // whoever read the output has had enough
	}
	a.complain(err)
	return exitFailure
}

// errReported is an interruption that the statistics have told of.
var errReported = errors.New("interrupted")

// complain writes an error as one line.
func (a *app) complain(err error) { fmt.Fprintln(a.stderr, "gen: "+describe(err)) }

// note tells the user what is not as one might expect.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.stderr, "gen: note: "+format+"\n", args...)
}

func (a *app) flush(p *parser) {
	for _, text := range p.notices {
		a.note("%s", text)
	}
	p.notices = nil
}

// command makes the command line; without a subcommand it calls generate.
func (a *app) command(o *options, generate func(*options) error) *cli.App {
	root := &cli.App{
		Name:  "gen",
		Flags: o.flags(),
		Commands: []*cli.Command{
			a.tokenizeCommand(),
			a.inspectCommand(),
			a.quantizeCommand(),
			a.draftCommand(),
			a.compareCommand(),
			a.versionCommand(),
		},
		HideHelp:       true, // the table has -h
		HideVersion:    true,
		ExitErrHandler: func(*cli.Context, error) {}, // run returns a status
		Writer:         io.Discard,
		ErrWriter:      io.Discard,
		OnUsageError:   o.parser.usageError,
		Before: func(c *cli.Context) error {
			if name := c.Args().First(); c.App.Command(name) != nil {
				for _, s := range o.settings {
					if s.source == fromFlag {
						return badUsage("%s stands before %s: flags follow the command, as in gen %s %s", s.typed, name, name, s.typed)
					}
				}
			}
			return nil
		},
	}
	root.Action = func(c *cli.Context) error {
		if c.NArg() > 0 {
			return badUsage("%q: unknown command; the prompt follows -p", c.Args().First())
		}
		if c.NumFlags() == 0 && !o.given("--model") {
			return errShortUsage
		}
		return generate(o)
	}
	return root
}

// subcommand makes a command that takes its own flags and arguments.
func subcommand(name, usage, args string, p *parser, a *app, action func(c *cli.Context) error) *cli.Command {
	help := new(bool)
	p.settings = append(p.settings, &setting{names: "-h, --help", group: "flags", usage: "show this text and end", value: switchValue(help, true)})
	return &cli.Command{
		Name: name, Usage: usage, ArgsUsage: args,
		Flags: p.flags(), HideHelp: true, OnUsageError: p.usageError,
		Action: func(c *cli.Context) error {
			if *help {
				writeHelp(a.stdout, fmt.Sprintf("gen %s %s: %s\n", name, args, usage), p.settings)
				return nil
			}
			for _, arg := range c.Args().Slice() {
				if len(arg) > 1 && arg[0] == '-' {
					return badUsage("%s: flags come before other arguments", arg)
				}
			}
			return action(c)
		},
	}
}

// usageError turns what package flag has to say about the command line into a
// usage error with a sentence of ours.
func (p *parser) usageError(c *cli.Context, err error, _ bool) error {
	if p.err != nil {
		return p.err
	}
	if errors.As(err, &usageError{}) {
		return err
	}
	if name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok {
		command := ""
		if c.Command != nil && c.Command.Name != "gen" {
			command = strings.TrimPrefix(c.Command.HelpName, "gen ")
		}
		return p.unknownFlag(dashes(name), command)
	}
	if name, ok := strings.CutPrefix(err.Error(), "flag needs an argument: -"); ok {
		return badUsage("%s: its value is missing", dashes(name))
	}
	if errors.Is(err, flag.ErrHelp) {
		return badUsage("-help: did you mean --help?")
	}
	return badUsage("%w", err)
}

// dashes puts the usual dashes before the name of a flag.
func dashes(name string) string {
	if len(name) <= 3 {
		return "-" + name
	}
	return "--" + name
}

// terminal reports whether f is one, and its width.
func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
