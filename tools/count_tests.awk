#!/usr/bin/awk -f
# Adds up what test programs said in a `ctest -V` log: Criterion's closing lines, "N passed, N failed" lines, and ctest's verdict on
# programs that print neither. Prints: passed failed skipped.
{
    id = 0
    if (match($0, /^[0-9]+: /)) { id = substr($0, 1, RLENGTH - 2); sub(/^[0-9]+: /, "") }
}
/Synthesis: Tested:/ {
    for (i = 1; i < NF; i++) {
        if ($i == "Passing:") pass += $(i + 1)
        if ($i == "Failing:" || $i == "Crashing:") { fail += $(i + 1); bad[id] += $(i + 1) }
    }
    counted[id] = 1
}
/\[SKIP\]/ { skip++ }
/^[0-9]+ passed, [0-9]+ failed/ { pass += $1; fail += $3; bad[id] += $3; if ($6 ~ /^skipped/) skip += $5; counted[id] = 1 }
/^ *[0-9]+\/[0-9]+ Test +#/ {
    match($0, /#[0-9]+/)
    t = substr($0, RSTART + 1, RLENGTH - 1)
    if (/ Passed /) { if (!counted[t]) pass++ } else if (!bad[t]) fail++
}
END { printf "%d %d %d\n", pass, fail, skip }
