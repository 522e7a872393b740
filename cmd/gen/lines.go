package main

import (
	"bufio"
	"errors"
	"io"
	"os"

	"github.com/chzyer/readline"
	"golang.org/x/term"
)

// errLineInterrupted: Ctrl-C was typed in place of a line.
var errLineInterrupted = errors.New("interrupted")

// A lineReader reads lines when it is asked to, so that a terminal is in its
// usual state in between. Where the input is a terminal lines can be edited, and
// those before come back with the arrow keys.
type lineReader struct {
	edited bool
	asked  chan struct{}
	read   chan lineRead
	waits  bool // for a line that was asked for
	close  func()
}

type lineRead struct {
	text string
	err  error
}

func (a *app) lines() (*lineReader, error) {
	l := &lineReader{edited: isTerminal(a.stdin), read: make(chan lineRead, 1), asked: make(chan struct{}, 1), close: func() {}}
	next := nextLine(a.stdin)
	if file, ok := a.stdin.(*os.File); ok && l.edited {
		fd := int(file.Fd())
		state, err := term.GetState(fd)
		if err != nil {
			return nil, err
		}
		editor, err := readline.NewEx(&readline.Config{Prompt: "> ", Stdin: file, Stdout: a.stderr, Stderr: a.stderr})
		if err != nil {
			return nil, err
		}
		l.close = func() {
			_ = editor.Close()
			_ = term.Restore(fd, state) // also where gen ends while a line is edited
		}
		next = func() (string, error) {
			text, err := editor.Readline()
			switch {
			case !errors.Is(err, readline.ErrInterrupt):
				return text, err
			case text == "":
				return "", errLineInterrupted
			}
			return "", nil // it has taken back what was typed
		}
	}
	go func() {
		for range l.asked {
			text, err := next()
			l.read <- lineRead{text, err}
		}
	}()
	return l, nil
}

// ask asks for the next line, which comes through read; taken follows.
func (l *lineReader) ask() {
	if !l.waits {
		l.asked <- struct{}{}
	}
	l.waits = true
}

func (l *lineReader) taken() { l.waits = false }

// nextLine returns what reads the next line; the last one need not be ended.
func nextLine(r io.Reader) func() (string, error) {
	reader := bufio.NewReader(r)
	return func() (string, error) {
		text, err := reader.ReadString('\n')
		if text != "" && errors.Is(err, io.EOF) {
			err = nil
		}
		return text, err
	}
}
