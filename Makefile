# Every routine in one word: make help lists them.

# Options for build.sh: make demo BUILD=--portable
BUILD =
# More flags of bench/spec: make bench-spec SPEC='-kinds story -exact'
SPEC =
# Go's build tags, to go with them: make demo BUILD=--cuda TAGS=cuda
TAGS =

MODULE = github.com/sortes-llm/sortes
SMOL   = models/SmolLM2-135M-Instruct
GEMMA  = models/gemma-3-270m-Q4_K_M.gguf
SMOLS  = $(SMOL)-Q4_1.gguf $(SMOL)-F16.gguf $(SMOL)-Q8_0.gguf $(SMOL)-Q4_0.gguf
MODELS = $(SMOLS) $(GEMMA)

# Packages that link llama.cpp, in themselves or through others, and those that do not.
NATIVE = $(shell go list -e -tags '$(TAGS)' -f '{{.ImportPath}} {{.Deps}}' ./... | grep '$(MODULE)/llama\b' | cut -d ' ' -f 1)
PURE   = $(filter-out $(NATIVE),$(shell go list -e ./...))
GO     = go
TEST   = $(GO) test -tags '$(TAGS)'

.DELETE_ON_ERROR:
.PHONY: help demo test bench bench-sampler bench-spec stress lint fuzz archive gen model models clean distclean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: archive gen model ## build everything, fetch a small model, and see it write
	bin/gen -m $(SMOL)-Q4_1.gguf -p "The three primary colours are" -n 100

test: archive gen $(SMOLS) ## set up, then run all tests
	./build.sh $(BUILD) --tools=llama-completion
	$(MAKE) lint
	CGO_ENABLED=0 $(GO) test $(PURE)
	$(GO) test -tags purego ./sampler
	$(GO) test -race $(PURE)
	GODEBUG=cgocheck=1 GOGC=1 $(TEST) -timeout 40m ./llama/...
	$(TEST) -timeout 40m $(filter-out $(MODULE)/llama%,$(NATIVE))
	cd examples/embed && $(GO) build -tags '$(TAGS)' -o ../../bin/embed . && ../../bin/embed ../../$(SMOL)-Q4_1.gguf
	scripts/fuzz.sh 5

lint: ## gofmt, go vet, and the rules of scripts/lint
	@unformatted=$$(gofmt -l $$(ls -d */ | grep -v -x -e third_party/ -e models/ -e bin/)); \
	if [ -n "$$unformatted" ]; then echo "gofmt is needed for: $$unformatted" >&2; exit 1; fi
	$(GO) vet -tags '$(TAGS)' ./...
	$(GO) run ./scripts/lint

fuzz: archive ## every fuzz target for a minute
	scripts/fuzz.sh 60

# Takes hours on two cores, by what single runs took: most of them for the second
# line, TestDraftedTextIsPlain, which computes with one thread.
stress: archive $(SMOLS) ## what takes long: tests again and again, under the collector's and the race detector's eyes
	$(GO) test -race -count 10 -timeout 60m $(PURE)
	SORTES_STRESS=1 $(TEST) -timeout 120m -run 'Random|Soak|Bounds|DraftedText|RulesKeep' ./grammar ./cmd/gen
	GODEBUG=cgocheck=1 GOGC=1 GOEXPERIMENT=cgocheck2 $(TEST) -count 5 -timeout 60m ./llama/...
	SORTES_MUTATIONS=1 $(TEST) -run '^TestMutations$$' -timeout 60m ./llama/

bench: archive gen models ## measure beside llama.cpp's own tools
	./build.sh $(BUILD) --tools=llama-bench,llama-completion
	./build.sh $(BUILD) --tools=upstream,llama-bench,llama-completion
	$(GO) run -tags '$(TAGS)' ./bench -models $(SMOL)-Q4_1.gguf,$(SMOL)-F16.gguf,$(GEMMA)

bench-sampler: archive models ## measure package sampler beside llama.cpp's samplers
	$(GO) run -tags '$(TAGS)' ./bench/sampler -models $(SMOL)-Q4_1.gguf,$(GEMMA)
	$(GO) run -tags '$(TAGS) purego' ./bench/sampler -models $(SMOL)-Q4_1.gguf,$(GEMMA)

# What the README's table needs, in some 20 minutes: one prompt of each kind. Left out are cold and pruned drafts, adaptive
# trees, the rules block and token, and the tools' n-gram drafts at temperatures above 0 and for prompts that little is copied
# from; SPEC='-sides all' measures them too. FULL=1 does so for all 64 prompts and 128 tokens, and takes hours.
bench-spec: archive models ## measure speculative decoding beside llama.cpp's own tools; FULL=1 with all prompts and sides
	./build.sh $(BUILD) --tools=llama-speculative-simple,llama-lookup,llama-lookahead
	$(GO) run -tags '$(TAGS)' ./bench/spec -target $(SMOL)-F16.gguf -draft $(SMOL)-Q4_0.gguf $(if $(FULL),-prompts 8 -tokens 128 -sides all) $(SPEC)

# build.sh itself knows whether there is anything to do, and takes no time where there is not.
archive: ## llama.cpp, for this machine
	@./build.sh $(BUILD)

gen: archive ## the command, bin/gen
	$(GO) build -tags '$(TAGS)' -o bin/gen ./cmd/gen

model: $(SMOL)-Q4_1.gguf ## the small model that demo and test use

models: $(MODELS) ## that, its other weight types, and a second family

$(SMOL)-Q4_1.gguf $(GEMMA):
	scripts/fetch-model.sh $(basename $(notdir $@))

# A newer gen is no reason to make them again: hence the bar.
$(SMOL)-F16.gguf $(SMOL)-Q8_0.gguf $(SMOL)-Q4_0.gguf: $(SMOL)-%.gguf: $(SMOL)-Q4_1.gguf | gen
	bin/gen quantize --allow-requantize $< $@ $*

clean: ## remove what was built; the fetched source and the models stay
	rm -rf bin bench/out llama/archive.h third_party/build third_party/native third_party/tools

distclean: clean ## remove what was fetched, too
	rm -rf models third_party/llama.cpp
