#!/usr/bin/env bash
#
# fuzz.sh SECONDS: runs every fuzz target of the module for so many seconds.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Before Go 1.27 a run may fail for no other reason than that its time is over
# (go.dev/issue/75804). It says so, and has found no input that fails; such a run
# is repeated, twice at most.
fuzz() {
    for _ in 1 2 3; do
        if go test -run '^$' -fuzz "^$2\$" -fuzztime "$3s" "$1" 2>&1 | tee "$log"; then
            return
        fi
        if ! grep -qx '    context deadline exceeded' "$log" || grep -q 'Failing input written' "$log"; then
            break
        fi
    done
    return 1
}

for dir in $(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -r -n 1 dirname | sort -u); do
    # shellcheck disable=SC2013 # names have no spaces
    for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$dir"/*_test.go); do
        echo "fuzz $dir $target"
        fuzz "$dir" "$target" "${1:-5}"
    done
done
