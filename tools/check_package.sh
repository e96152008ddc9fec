#!/bin/sh
# check_package.sh - the .deb of `./dev package` in a bare Debian: installed, used, removed, purged. As root, with debootstrap and a mirror of Debian; lintian where there is one.
# Argument: a folder for the bare tree, which is made once. check_world.sh calls it.
set -eu
cd "$(dirname "$0")/.."
place=$(mkdir -p "$1" && cd "$1" && pwd)
tree=$place/tree clean=$place/bookworm
deb=$(ls build-package/quire_*.deb)
failed=0

say() { echo "check-package: $*"; }
bad() { say "FAILED: $*"; failed=$((failed + 1)); }
inside() { chroot "$tree" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
files() { (cd "$tree" && find . -xdev \( -path ./proc -o -path ./var/lib/apt -o -path ./var/cache/apt -o -path ./var/lib/dpkg -o -path ./var/log \) -prune -o -print | sort); }

if [ ! -e "$clean/etc/debian_version" ]; then
    say "debootstrap (a minute)"
    debootstrap --variant=minbase bookworm "$clean" >"$place/debootstrap.log" 2>&1 || { tail "$place/debootstrap.log"; exit 1; }
fi
rm -rf "$tree" && cp -a "$clean" "$tree"
mount -t proc proc "$tree/proc"
trap 'umount "$tree/proc"' EXIT
# Pages of the manual and documents are what is looked for; apt and what quire depends on are installed before, so that what is left is quire's.
inside apt-get -qq update
cp "$deb" "$tree/tmp/quire.deb"
inside apt-get -qq install -y --no-install-recommends $(dpkg-deb -f "$deb" Depends Recommends | sed 's/^[A-Za-z]*: //; s/([^)]*)//g; s/|[^,]*//g' | tr ',\n' '  ') man-db >"$place/apt.log" 2>&1 || bad "dependencies"
files >"$place/before"
inside apt-get -qq install -y /tmp/quire.deb >>"$place/apt.log" 2>&1 || bad "installation"
files >"$place/installed"
[ "$(diff "$place/before" "$place/installed" | grep -c quire)" -gt 50 ] || bad "the package has hardly any file"
say "$(du -h "$deb" | cut -f1) package; program of $(stat -c %s "$tree/usr/bin/quire") bytes; $(dpkg-deb -f "$deb" Depends)"
[ "$(stat -c %s "$tree/usr/bin/quire")" -le 10485760 ] || bad "the program is larger than 10 MB"
! readelf -S "$tree/usr/bin/quire" | grep -q '[.]symtab' || bad "the program is not stripped"

inside quire --version || bad "--version"
mkdir -p "$tree/var/lib/quire" && cp -r models/quire-tiny "$tree/var/lib/quire/model"
text=$(inside quire generate /var/lib/quire/model 'Once upon a time' --max-tokens 16 2>"$place/generate.log") || bad "generate: $(cat "$place/generate.log")"
[ -n "$text" ] || bad "generate said nothing"
say "generate: Once upon a time$(printf %s "$text" | tr '\n' ' ' | cut -c1-100)"
inside man -w quire-serve >/dev/null || bad "no manual page of quire serve"
inside man quire-serve 2>"$place/man.log" | grep -q -- '--max-running' || bad "man quire-serve: $(cat "$place/man.log")"
inside bash -c '. /usr/share/bash-completion/completions/quire && complete -p quire' >/dev/null || bad "completions"
inside quire serve --config /etc/quire/server.yaml --model /var/lib/quire/model --check-config || bad "the settings file"
grep -q '^ExecStart=/usr/bin/quire serve' "$tree/lib/systemd/system/quire.service" || bad "the unit's program"
[ -z "$(find "$tree/etc/systemd" -name 'quire*')" ] || bad "the service is enabled by itself"

# A server, asked by the shell, with everything that the unit asks for and that needs no systemd.
inside quire serve --config /etc/quire/server.yaml --model /var/lib/quire/model --port 18473 --sandbox 2>"$place/serve.log" &
server=$!
request='{"prompt": "Hello", "max_tokens": 4}'
ask() { # METHOD PATH BODY: the answer of the server
    inside bash -c 'exec 3<>/dev/tcp/127.0.0.1/18473 && printf "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" "$1" "$2" ${#3} "$3" >&3 && cat <&3' ask "$@" 2>/dev/null
}
for try in $(seq 100); do
    ! ask GET /readyz "" | head -n 1 | grep -q ' 200 ' || break
    sleep 0.2
done
ask POST /v1/completions "$request" | grep -q '"completion_tokens":4' || bad "serve: $(cat "$place/serve.log")"
say "serve answered: $(ask GET /version "" | tail -n 1)"
pid=$(ps -o pid= --ppid "$server" | tr -d ' ')
kill "${pid:-$server}" && wait "$server" || bad "the server's end: $?"

# As `systemctl enable` and a run of the service leave the machine.
mkdir -p "$tree/etc/systemd/system/multi-user.target.wants" "$tree/var/cache/private/quire"
ln -s /lib/systemd/system/quire.service "$tree/etc/systemd/system/multi-user.target.wants/"
inside apt-get -qq remove -y quire >>"$place/apt.log" 2>&1 || bad "removal"
[ -e "$tree/etc/quire/server.yaml" ] || bad "removal took the settings"
inside apt-get -qq purge -y quire >>"$place/apt.log" 2>&1 || bad "purge"
rm -rf "$tree/var/lib/quire" "$tree/root/.cache" # the model that was copied in, and what was measured
rmdir -p --ignore-fail-on-non-empty "$tree/etc/systemd/system/multi-user.target.wants" "$tree/var/cache/private"
files >"$place/after"
left=$(diff "$place/before" "$place/after" | grep '^>' | grep -v -E '^> \./var/cache/(man|ldconfig)/' || true)
[ -z "$left" ] && say "nothing is left behind" || bad "left behind: $left"
if command -v lintian >/dev/null 2>&1; then
    lintian --allow-root --tag-display-limit 0 "$deb" >"$place/lintian" 2>&1 || true
    cat "$place/lintian"
    ! grep -q '^E:' "$place/lintian" || bad "lintian has errors"
else
    say "SKIPPED lintian: not installed"
fi
say "$failed failed"
[ "$failed" = 0 ]
