#!/usr/bin/env bash
#
# fuzz.sh SECONDS: runs every fuzz target of the module for so many seconds.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for dir in $(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n 1 dirname | sort -u); do
    # shellcheck disable=SC2013 # names have no spaces
    for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$dir"/*_test.go); do
        echo "fuzz $dir $target"
        go test -run '^$' -fuzz "^$target\$" -fuzztime "${1:-5}s" "$dir"
    done
done
