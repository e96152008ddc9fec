#!/bin/sh
# fuzz.sh BUILD SECONDS [TARGET] - runs every fuzz target, as many at once as there are cores, or one, over its corpus (tests/fuzz/corpus/<name>/) and
# then for SECONDS on its own. A finding is kept as crash-<target>-... in the current directory. New inputs are not written into the corpus.
set -eu
build=$1 seconds=$2

one() {
    name=$(basename "$1") corpus=tests/fuzz/corpus/$(basename "$1" | sed 's/^fuzz_//') scratch=$(mktemp -d)
    mkdir -p "$corpus"
    if "$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=64 -verbosity=0 -print_final_stats=1 -artifact_prefix="crash-$name-" \
        "$scratch" "$corpus" >"$scratch.log" 2>&1; then
        echo "$name: $(sed -n 's/stat::number_of_executed_units: *//p' "$scratch.log") inputs"
    else
        echo "FAIL $name"
        tail -n 40 "$scratch.log"
    fi
    rm -rf "$scratch" "$scratch.log"
}

if [ $# -gt 2 ]; then
    one "$3"
    exit 0
fi
log=$(mktemp)
find "$build" -maxdepth 1 -name 'fuzz_*' -type f -perm -u+x | sort | xargs -P "$(nproc 2>/dev/null || echo 2)" -n 1 "$0" "$build" "$seconds" >"$log"
cat "$log"
passed=$(grep -c ' inputs$' "$log" || true) failed=$(grep -c '^FAIL ' "$log" || true)
rm -f "$log"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
