package main

import (
	"math"

	"github.com/sortes-llm/sortes/generate"
	"github.com/sortes-llm/sortes/llama"
	"github.com/sortes-llm/sortes/sampler"
)

// contrastOptions say what the logits of the model are combined with.
type contrastOptions struct {
	amateurs []string // files
	settings sampler.Contrast

	scale    float64 // of guidance; 1 for none
	negative string
}

func defaultContrast() contrastOptions {
	return contrastOptions{
		settings: sampler.Contrast{Form: sampler.ContrastLogits, Alpha: 0.1, Beta: 0.5, AmateurTemperature: 1},
		scale:    1,
	}
}

// contrastSettings lists the flags for contrastive decoding and guidance.
func (o *options) contrastSettings() []*setting {
	c := &o.contrast
	const largestScale = 1e6
	scale := &setting{names: "--guidance-scale", arg: "G", value: floatValue(&c.scale, 0, largestScale, "0 to 1e+06; 1 = off"),
		usage: "classifier-free guidance: from the logits after the negative prompt go G times as far as to those after the prompt; 1 = off"}
	negative := &setting{names: "--negative-prompt", arg: "TEXT", value: textValue(&c.negative),
		usage: "what --guidance-scale leads away from; default: nothing but what begins a text"}
	settings := []*setting{
		{names: "-mcd, --cd-model", arg: "FILE",
			value: listValue(&c.amateurs, func(text string) ([]string, error) {
				var name string
				err := fileValue(&name).set(text)
				return []string{name}, err
			}, func(s string) string { return s }),
			usage: "contrastive decoding: a weaker model with the same vocabulary, an amateur, whose logits are taken from the model's; may be given several times"},
		{names: "--cd-alpha", arg: "A", value: floatValue(&c.settings.Alpha, 0, 1, "0 (keep all) to 1"),
			usage: "keep tokens with at least A times the probability that the model gives its most likely one; 0 = keep all"},
		{names: "--cd-form", arg: "FORM",
			value: choiceValue(&c.settings.Form, choice[sampler.ContrastForm]{"logit", sampler.ContrastLogits}, choice[sampler.ContrastForm]{"log", sampler.ContrastLogProbs}),
			usage: "logit: (1 + beta) times the model's logit minus beta times the amateur's; log: difference of the log-probabilities"},
		{names: "--cd-beta", arg: "B", value: floatValue(&c.settings.Beta, 0, math.MaxFloat32, "0 (off) or a positive number"),
			usage: "the weight of each amateur with --cd-form logit; 0 = off"},
		{names: "--cd-temp", arg: "T", value: floatValue(&c.settings.AmateurTemperature, 1e-5, math.MaxFloat32, "a number of 1e-05 or more; 1 = off"),
			usage: "divide the amateurs' logits by T; 1 = off"},
		scale, negative,
		{names: "--cfg-scale", arg: "G", of: scale, convert: same, notice: true},
		{names: "--cfg-negative-prompt", arg: "TEXT", of: negative, convert: same, notice: true},
	}
	for _, x := range settings {
		if x.usage != "" {
			x.group = groupContrast
		}
	}
	return settings
}

// guided reports whether there is guidance.
func (o *options) guided() bool { return o.contrast.scale != 1 && o.predict != 0 }

// combine adds to a request what its logits are combined with. The context
// holds so many tokens.
func (o *options) combine(r *generate.Request, v *llama.Vocab, context int) error {
	if o.predict == 0 {
		return nil
	}
	c := &o.contrast
	if len(c.amateurs) > 0 {
		r.Contrast = &c.settings
	}
	if !o.guided() {
		return nil
	}
	text := c.negative
	if o.escapes {
		text = unescape(text)
	}
	if at := invalidUTF8(text); at >= 0 {
		return badUsage("the negative prompt is not UTF-8: byte %d is 0x%02x", at, text[at])
	}
	tokens, err := textTokens(v, text)
	switch {
	case err != nil:
		return err
	case len(tokens) == 0:
		return badUsage("the negative prompt is empty, and this model does not begin a text by itself: give one with --negative-prompt")
	}
	if err := checkLength("negative prompt", tokens, context); err != nil {
		return err
	}
	r.Guidance = &generate.Guidance{Scale: c.scale, NegativePrompt: tokens}
	return nil
}

// noteIdleContrast names the flags of contrastive decoding and guidance that
// change nothing.
func (o *options) noteIdleContrast() {
	c := &o.contrast
	if o.predict == 0 {
		for _, x := range o.settings {
			if x.group == groupContrast && x.of == nil {
				o.noteIdle(x.name(), "with -n 0")
			}
		}
		return
	}
	switch {
	case len(c.amateurs) == 0:
		for _, flag := range []string{"--cd-alpha", "--cd-form", "--cd-beta", "--cd-temp"} {
			o.noteIdle(flag, "without --cd-model")
		}
	case c.settings.Form == sampler.ContrastLogProbs:
		o.noteIdle("--cd-beta", "with --cd-form log")
	case c.settings.Beta == 0:
		o.noteIdle("--cd-model", "with --cd-beta 0, which leaves --cd-alpha alone")
		o.noteIdle("--cd-temp", "with --cd-beta 0")
	}
	if !o.guided() {
		o.noteIdle("--negative-prompt", "without --guidance-scale")
	}
}
