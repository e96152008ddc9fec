#!/bin/sh
# deps.sh - installs the Debian packages that are missing, and says what it does.
#   tools/deps.sh run     what building and running takes
#   tools/deps.sh test    the same, and what the tests take; two balancers are unpacked into build/debian and not installed
#   tools/deps.sh fuzz    the same, and clang with libFuzzer
#   tools/deps.sh unpack DIR   unpacks what QUIRE_SERVER=OFF QUIRE_TESTS=OFF takes beside a compiler into DIR, installing nothing: for a machine
#                              without network, which builds with -DCMAKE_PREFIX_PATH=DIR/usr
set -eu

small="libcjson-dev libyaml-dev libxxhash-dev libpcre2-dev libutf8proc-dev"
run="gcc libc6-dev cmake ninja-build pkg-config libuv1-dev libcjson-dev libyaml-dev libxxhash-dev libpcre2-dev libutf8proc-dev libedit-dev libssl-dev libseccomp-dev libcurl4-openssl-dev"
check="libcriterion-dev g++ python3 git tmux openssl libzmq5"
extra="libopenmpi-dev openmpi-bin" # ranks over several machines; without them libquire_mpi.so is not built and its tests are skipped

# The HTTP parser: a library of its own on newer Debian, C sources inside node-llhttp on Debian 12.
llhttp() {
    if [ -n "$(apt-cache policy libllhttp-dev 2>/dev/null | grep Candidate)" ]; then echo libllhttp-dev; else echo node-llhttp; fi
}

# libFuzzer and the sanitizers of clang are a package named after clang's version.
clang_rt() {
    v=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9][0-9]*\)$/\1/p' | head -n 1)
    [ -z "$v" ] || echo "libclang-rt-$v-dev"
}

missing() {
    for p in "$@"; do
        dpkg-query -W -f '${Status}\n' "$p" 2>/dev/null | grep -q '^install ok installed$' || printf '%s ' "$p"
    done
}

# The -dev packages of `small` and the libraries that they are for.
unpack() {
    mkdir -p "$1/deb"
    dir=$(cd "$1" && pwd)
    for p in $small; do
        echo "$p"
        apt-cache depends "$p" | sed -n 's/^  Depends: \(lib[a-z0-9.-]*\)$/\1/p' | grep -v '^libc6' | grep -E '^lib(cjson1|yaml-0|xxhash0|pcre2-8|utf8proc)'
    done | sort -u >"$dir/deb/list"
    (cd "$dir/deb" && apt-get -o APT::Sandbox::User=root download -q $(cat list) >&2)
    for f in "$dir"/deb/*.deb; do dpkg -x "$f" "$dir"; done
    rm -rf "$dir/deb" "$dir/usr/share"
    echo "deps: $(du -sh "$dir" | cut -f 1) in $dir; build with -DCMAKE_PREFIX_PATH=$dir/usr" >&2
}

# Balancers that a test starts with its own configurations, and what they take: installed, both would be started at once, and nginx at port 80.
unpack_balancers() {
    rm -rf build/debian
    mkdir -p build/debian/deb
    (cd build/debian/deb && apt-get -o APT::Sandbox::User=root download -qq $(apt-get install -s --no-install-recommends haproxy nginx | sed -n 's/^Inst \([^ ]*\).*/\1/p') >&2) || return
    for f in build/debian/deb/*.deb; do dpkg -x "$f" build/debian || return; done
    rm -rf build/debian/deb
}

command -v apt-get >/dev/null 2>&1 || { echo "deps: no apt-get here; install by hand: $run llhttp" >&2; exit 1; }
if [ "${1:-run}" = unpack ]; then
    [ -n "${2:-}" ] || { echo "deps: unpack where? tools/deps.sh unpack DIR" >&2; exit 2; }
    unpack "$2"
    exit 0
fi
want=$run
[ "${1:-run}" = run ] || want="$want $check"
[ "${1:-run}" != fuzz ] || want="$want clang"
need=$(missing $want)
have_llhttp=no
if [ -f /usr/share/llhttp/llhttp.c ] || pkg-config --exists libllhttp 2>/dev/null; then have_llhttp=yes; fi
have_rt=yes
if [ "${1:-run}" = fuzz ] && ! ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a >/dev/null 2>&1; then have_rt=no; fi
may=
[ "${1:-run}" = run ] || may=$(missing $extra)
have_balancers=yes
if [ "${1:-run}" != run ] && [ ! -x build/debian/usr/sbin/nginx ] && ! { command -v haproxy && command -v nginx; } >/dev/null 2>&1; then have_balancers=no; fi
[ -n "$need$may" ] || [ $have_llhttp = no ] || [ $have_rt = no ] || [ $have_balancers = no ] || exit 0

sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
export DEBIAN_FRONTEND=noninteractive
echo "deps: reading the package lists (apt-get update)" >&2
$sudo apt-get update -qq >&2 || [ -z "$need" ]
[ $have_llhttp = yes ] || need="$need $(llhttp)"
[ $have_rt = yes ] || need="$need $(clang_rt)"
install() {
    [ $# = 0 ] && return
    echo "deps: installing $*" >&2
    log=$(mktemp)
    if ! $sudo apt-get install -y -qq --no-install-recommends "$@" >"$log" 2>&1; then cat "$log" >&2; rm -f "$log"; return 1; fi
    rm -f "$log"
}
install $need || exit 1
install $may || echo "deps: going on without $may" >&2
if [ $have_balancers = no ]; then
    echo "deps: unpacking haproxy and nginx into build/debian" >&2
    unpack_balancers || echo "deps: going on without haproxy and nginx" >&2
fi
