module github.com/sortes-llm/sortes/examples/embed

go 1.26.0

require github.com/sortes-llm/sortes v0.0.0

require (
	github.com/klauspost/cpuid/v2 v2.4.2 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace github.com/sortes-llm/sortes => ../..
