#!/bin/bash
# gpu.sh - on a machine with an NVIDIA GPU: everything that only such a machine can tell, step by step.
#
#   tools/gpu.sh pack DIR              where there are nvcc and a network: builds what that machine needs into DIR (tools/gpu_pack.sh)
#   tools/gpu.sh OUT PACK [STEP...]    there: runs the steps; STEP is a name of the table below, or 1, 2 or 3: the steps of one command of
#                                      docs/operations.md (all three without)
#
# OUT     directory for results, few files so that they travel: summary.txt (a line for each step: its name, what became of it, seconds, why), results.jsonl (every
#         JSON line that a step printed, with the step's name), log.txt (all that the steps printed), running.txt (what the running step has printed so far).
#         A second call adds to them. `tools/gpu_results.py OUT` makes the tables of docs/performance.md of them.
# PACK    the folder that `pack` made, or - where this machine has all packages
#
# The packed programs and library are used where they start; else a build begins behind the first steps (build-gpu/),
# and what needs it waits. Models are made behind the first steps as well, in /dev/shm where it is large enough. Neither
# a step that fails nor one that does not end keeps the others from running. The words of summary.txt: ok; FAILED and its
# exit status; out of time; skipped (something is not here); missing (the program does not know a flag); no time (too
# little was left to begin); not built; fell back (a line of its own: something slower did the work). The exit status is
# the number of lines that are neither ok nor skipped.
# QUIRE_GPU_SECONDS (570): what all steps may take together. QUIRE_GPU_MODELS: the folder for models where /dev/shm has no 50 GB free. Settings of the card are
# left as they are.
#
# What to do about a line of summary.txt:
#   facts FAILED          there is no driver, or it does not answer: nothing else can run
#   build ...             the packed program did not start: the first lines printed name the library. The same command again if time ran out
#   instructions FAILED   WRONG names the instruction. Boxes, wgmma: QUIRE_CUDA_HOPPER=0 in front of the next command; early kernels: QUIRE_CUDA_OVERLAP=0;
#                         anything else: skip command 3, run memcheck-rows
#   ops-... FAILED        WRONG lines in log.txt name kernel and shape; ops-attention alone, with ops-attention-mma ok: QUIRE_CUDA_HOPPER=0
#   start FAILED, start fell back   what follows does without the kernel that the log names
#   ... out of time       nothing, at first; the step alone when command 3 is done
#   ... fell back         something slower did the work: attention (mma.sync), fp8-products (our kernels), same-bits (--deterministic costs what is said),
#                         packed-program (pack again)
#   ... missing           the packed program is older than the script: pack again
set -u

# Command, step, seconds that it may take, what it needs (q: the built program; t: PyTorch), and models. Those of a command may take 570 s together.
plan='
1 facts                   10 - -
1 instructions            35 - -
1 ops-linear              25 q -
1 ops-attention           25 q -
1 ops-rows                15 q -
1 ops-attention-mma       20 q -
1 ops-large               45 q -
1 start                   90 q llama-3.2-1b
1 kern-attention          25 q -
1 kern-linear             45 q -
1 kern-rows               20 q -
1 kern-attention-mma      15 q -
1 throughput-1b           40 q llama-3.2-1b
1 throughput-8b           80 q llama-3.1-8b
1 torch-kern              75 t -
2 facts                   10 - -
2 ablations               55 q llama-3.2-1b
2 throughput-8b-fp8       45 q llama-3.1-8b
2 throughput-8b-int8      50 q llama-3.1-8b
2 throughput-8b-int4      80 q llama-3.1-8b
2 train-0.5b              30 q -
2 train-1.5b              35 q -
2 offline-qwen3-8b        85 q qwen3-8b
2 torch-train             80 t -
2 torch-prompt            35 t -
2 torch-decode            60 t -
3 facts                   10 - -
3 check                   60 q -
3 goldens                 30 q -
3 deterministic-1b        25 q llama-3.2-1b
3 deterministic-8b        45 q llama-3.1-8b
3 train                   30 q -
3 profile-few             40 q -
3 profile-attention       40 q -
3 profile-back            40 q -
3 memcheck-rows           35 q -
3 memcheck-generate       35 q -
3 racecheck-rows          35 q -
3 racecheck-generate      35 q -
3 synccheck-rows          25 q -
3 memcheck-wgmma          25 q -
3 throughput-0.6b         30 q qwen3-0.6b
3 fits                    10 q -
3 ranks                   15 q -
'
build_limit=300

[ "${1:-}" != pack ] || exec bash "$(dirname "$0")/gpu_pack.sh" "${2:-}"
[ $# -ge 2 ] || { sed -n '2,19s/^# \{0,1\}//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1" && out=$(cd "$1" && pwd) || exit 2
pack=$2
[ "$pack" = - ] || pack=$(cd "$2" 2>/dev/null && pwd) || { echo "gpu.sh: no folder $2 (tools/gpu.sh pack makes it; - where this machine has all packages)" >&2; exit 2; }
shift 2

# column N KEY VALUE: field N of the lines whose field KEY is VALUE.
column() { awk -v n="$1" -v k="$2" -v v="$3" '$k == v { print $n }' <<<"$plan"; }
steps=
for s in ${*:-1 2 3}; do
    case $s in
    [123]) steps="$steps $(column 2 1 "$s")" ;;
    *) [ -n "$(column 2 2 "$s")" ] || { echo "gpu.sh: no step $s" >&2; exit 2; }; steps="$steps $s" ;;
    esac
done
steps=$(xargs -n 1 <<<"$steps" | awk '!seen[$0]++')

build=${QUIRE_GPU_BUILD:-$here/build-gpu}
seconds=${QUIRE_GPU_SECONDS:-570}
limit_most=${QUIRE_GPU_LIMIT:-570} # of one step, by how much limits are multiplied, and QUIRE_GPU_BUILD: for tests/e2e/test_gpu_script.py
patience=${QUIRE_GPU_PATIENCE:-1}
models=${QUIRE_GPU_MODELS:-$build/models}
[ -n "${QUIRE_GPU_MODELS:-}" ] || [ "$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1)" -lt 50000000 ] 2>/dev/null || models=/dev/shm/quire-models
mkdir -p "$build" "$models" || exit 2
command -v nvcc >/dev/null || export PATH="$PATH:${CUDA_HOME:-/usr/local/cuda}/bin" # where CMake looks as well
bad=0
session=
session_building=
session_models=
session_warm=

# say STEP WORD SECONDS [WHY]
say() {
    printf '%-22s %-12s %4s s  %s\n' "$1" "$2" "$3" "${4:-}" | tee -a "$out/summary.txt"
    case $2 in ok | skipped) ;; *) bad=$((bad + 1)) ;; esac
}

# end_session SESSION: ends all its processes, whichever groups inner limits have put them into. Again until none is seen, as one that is ended
# may have begun another behind the list; not for ever, as some do not die.
end_session() {
    local p f round some of=$1
    [ -n "$of" ] || return 0
    for round in 1 2 3 4 5 6 7 8 9 10; do
        some=
        for p in /proc/[0-9]*; do
            read -r f 2>/dev/null <"$p/stat" || continue
            set -- ${f##*) } # state, parent, group, session
            [ "${4:-}" = "$of" ] || [ "$2 ${p#/proc/}" = "$$ $of" ] || continue # or our child that has no session of its own yet
            [ "$1" != Z ] || continue
            kill -KILL "${p#/proc/}" 2>/dev/null
            some=$round
        done
        [ -n "$some" ] || break
        sleep 0.05
    done
} 2>/dev/null

# keep FILE: puts what a step has printed behind the others': its first 600 KB and its last 100, so that all of it travels.
keep() {
    local n
    n=$(wc -c <"$1")
    if [ "$n" -le 700000 ]; then cat "$1"; else
        head -c 600000 "$1"
        printf '\n==== gpu.sh: %s bytes left out\n' $((n - 700000))
        tail -c 100000 "$1"
    fi >>"$out/log.txt"
    rm -f "$1"
}

# show FILE: of a step that failed the lines that say so, then its last ones.
show() {
    {
        grep -m 6 -iE 'error|failed|wrong|fatal|cannot|no such|not found|out of memory' "$1" && echo ...
        sed 1,2d "$1" | tail -n 5
    } | cut -c 1-300 | sed 's/^/    /'
}

# outcome STEP STATUS SECONDS FILE: its line, lines of what fell back, and its output to the others'.
outcome() {
    local step=$1 rc=$2 took=$3 file=$4 last flag name why
    last=$(sed 1,2d "$file" | grep -m 1 -E '^(error|WRONG)' || sed 1,2d "$file" | tail -n 1)
    last=${last:0:150}
    flag=$(sed -n 's/.*unknown flag \(--[a-z-]*\).*/\1/p' "$file" | head -n 1)
    case $rc in
    0) say "$step" ok "$took" ;;
    2) if [ -n "$flag" ]; then say "$step" missing "$took" "$flag"; else say "$step" "FAILED 2" "$took" "$last"; show "$file"; fi ;;
    77) say "$step" skipped "$took" "$last" ;;
    124 | 137) say "$step" "out of time" "$took"; show "$file" ;;
    *) say "$step" "FAILED $rc" "$took" "$last"; show "$file" ;;
    esac
    python3 "$here/tools/gpu_results.py" --take "$out" "$step" "$file" >"$build/fell-back.txt"
    while IFS=$'\t' read -r name why; do say "$name" "fell back" 0 "$why"; done <"$build/fell-back.txt"
    keep "$file"
}

# begin STEP LIMIT FILE: in a session of its own, whose number is in `session`.
begin() {
    printf '\n==== %s\n' "$1" >"$3"
    LD_LIBRARY_PATH=$path setsid timeout -k 5 "$2" bash "$here/tools/gpu_steps.sh" "$1" >>"$3" 2>&1 </dev/null &
    session=$!
}

# wait_for SESSION SECONDS: its exit status. One whose processes do not even die (the driver waits for a card that hangs) is left behind.
wait_for() {
    local began=$SECONDS rc=124
    while kill -0 "$1" 2>/dev/null; do
        [ $((SECONDS - began)) -le "$2" ] || { end_session "$1"; return $rc; }
        sleep 0.05
    done
    wait "$1"
    rc=$?
    end_session "$1"
    return $rc
}

# run STEP LIMIT
run() {
    local step=$1 limit=$(($2 * patience)) began=$SECONDS left=$((seconds - SECONDS)) rc
    [ "$left" -ge 10 ] || { say "$step" "no time" 0; return; }
    [ "$limit" -le "$left" ] || limit=$left
    [ "$limit" -le "$limit_most" ] || limit=$limit_most
    begin "$step" "$limit" "$out/running.txt"
    wait_for "$session" $((limit + 8))
    rc=$?
    session=
    outcome "$step" $rc $((SECONDS - began)) "$out/running.txt"
    return $rc
}

on_signal() {
    local s
    [ "$BASHPID" = $$ ] || exit 1 # a subshell that began as the signal came
    for s in ${!:-} $session $session_building $session_models $session_warm; do end_session "$s"; done
    for s in "$out/running.txt" "$build/building.txt" "$build/models.txt"; do [ ! -f "$s" ] || keep "$s"; done
    say gpu.sh "ended by a signal" $SECONDS
    exit 1
}
trap on_signal TERM INT HUP

# ---- libraries ----

# Where cuBLASLt is: beside nvcc, or in Python's wheels. Where the driver is, should the loader not know.
libraries() {
    local nvcc d cublas
    nvcc=$(readlink -f "$(command -v nvcc)" 2>/dev/null)
    cublas=$(ldd "$pack/libquire_cuda.so" 2>/dev/null | grep -o 'libcublasLt\.so\.[0-9]*' | head -n 1)
    for d in "${nvcc%/bin/nvcc}"/{lib64,targets/x86_64-linux/lib,lib} $(python3 -c 'import nvidia
print(*(p + "/" + d + "/lib" for p in nvidia.__path__ for d in __import__("os").listdir(p)))' 2>/dev/null); do
        ls "$d/${cublas:-libcublasLt.so}"* >/dev/null 2>&1 && { echo "$d"; break; }
    done
    ldconfig -p 2>/dev/null | grep -q libcuda.so.1 || for d in /usr/local/nvidia/lib64 /usr/lib/x86_64-linux-gnu/nvidia/current; do
        [ ! -e "$d/libcuda.so.1" ] || echo "$d"
    done
}

# starts FOLDER: whether its programs and library find all that they are linked with.
starts() {
    [ -x "$1/quire" ] && [ -x "$1/device_check" ] && [ -f "$1/libquire_cuda.so" ] || return 1
    ! LD_LIBRARY_PATH=$path ldd "$1/quire" "$1/device_check" "$1/libquire_cuda.so" 2>&1 |
        grep -E 'not found|not a dynamic' && LD_LIBRARY_PATH=$path "$1/quire" --version >/dev/null
}

path_before=${LD_LIBRARY_PATH:-}
more=$(libraries | tr '\n' ':')
ours=$([ "$pack" = - ] || echo "$pack/lib:")$more${path_before:+$path_before:}
ours=${ours%:}
path=$ours
quire=$pack/quire
built=yes
starts "$pack" || { quire=$build/quire; starts "$build" || built=no; }
export here out pack build models quire path_before PYTHONUNBUFFERED=1
without="$build/without" # made by the step `start`
[ ! -f "$without" ] || export $(cat "$without")
[ ! -f "$without" ] || say start "fell back" 0 "as before: $(cat "$without")"

# ---- behind the steps ----

needs() { column "$1" 2 "$2" | head -n 1; }
wanted_models=
for s in $steps; do
    m=$(needs 5 "$s")
    case " $wanted_models " in *" $m "*) ;; *) [ "$m" = - ] || [ -d "$models/$m" ] || wanted_models="$wanted_models $m" ;; esac
done
export wanted_models

# Until the build is there, what does without it comes first.
case " $(for s in $steps; do needs 4 "$s"; done | tr '\n' ' ')" in *" q "*) building=yes ;; *) building= ;; esac
if [ $built = no ] && [ -n "$building" ]; then
    begin build $build_limit "$build/building.txt"
    session_building=$session
    first=$(for s in $steps; do [ "$(needs 4 "$s")" = q ] || echo "$s"; done)
    steps="$first $(for s in $steps; do [ "$(needs 4 "$s")" != q ] || echo "$s"; done)"
fi
begin_models() {
    [ -n "$wanted_models" ] || return 0
    rm -f "$build/models.over"
    begin models 560 "$build/models.txt"
    session_models=$session
}
[ $built = no ] || begin_models
case "$steps" in *torch-*) begin warm 120 "$build/warm.txt"; session_warm=$session ;; esac
session=

# Waits for the build that has begun, as long as there is time.
await_build() {
    local began=$SECONDS rc
    wait_for "$session_building" $((seconds - SECONDS))
    rc=$?
    session_building=
    outcome build $rc $((SECONDS - began)) "$build/building.txt"
    [ $rc != 0 ] || built=yes
    [ $built = no ] || begin_models
}

for s in $steps; do
    what=$(needs 4 "$s")
    path=$ours
    if [ "$what" = q ]; then
        [ -z "$session_building" ] || await_build
        [ $built = yes ] || { say "$s" "not built" 0; continue; }
    fi
    [ "$what" != t ] || path=$path_before # PyTorch brings its own libraries
    run "$s" "$(needs 3 "$s")"
    if [ "$s" = start ] && [ -f "$without" ]; then
        export $(cat "$without")
        say start "fell back" 0 "from here on $(cat "$without")"
    fi
done
[ -z "$session_building" ] || await_build
if [ -n "$session_models" ]; then
    wait_for "$session_models" 0
    outcome models $? 0 "$build/models.txt"
fi
end_session "$session_warm"
rm -f "$build/warm.txt"
exit "$bad"
