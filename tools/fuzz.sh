#!/bin/sh
# fuzz.sh BUILD SECONDS - runs every fuzz target over its corpus (tests/fuzz/corpus/<name>/) and then for SECONDS on its own.
# A finding is kept as crash-<target>-... in the current directory. New inputs are not written into the corpus.
set -eu
build=$1 seconds=$2 passed=0 failed=0
for target in "$build"/fuzz_*; do
    [ -x "$target" ] || continue
    name=$(basename "$target") corpus=tests/fuzz/corpus/$(basename "$target" | sed 's/^fuzz_//') scratch=$(mktemp -d)
    mkdir -p "$corpus"
    if "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 -artifact_prefix="crash-$name-" \
        "$scratch" "$corpus" >"$scratch.log" 2>&1; then
        passed=$((passed + 1))
        echo "$name: $(sed -n 's/stat::number_of_executed_units: *//p' "$scratch.log") inputs"
    else
        failed=$((failed + 1))
        echo "FAIL $name"
        tail -n 40 "$scratch.log"
    fi
    rm -rf "$scratch" "$scratch.log"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
