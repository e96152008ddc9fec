#!/bin/bash
# gpu.sh - on a machine with an NVIDIA GPU: builds quire there and runs everything that only such a machine can.
#
#   tools/gpu.sh OUT [PREFIX] [STEP...]
#
# OUT     directory for results, few files so that they travel: summary.txt (a line for each step: ok, failed, timed out, skipped, not built or no time, and
#         seconds), results.txt (what the steps printed, one behind the other), running.txt (what the step that runs has printed so far), kern.json,
#         kern-mma.json
# PREFIX  directory with unpacked packages (made by `tools/deps.sh unpack PREFIX` where there is a network), or - where the system has them
# STEP    of: build instructions start ops check train ranks kern throughput torch sanitizer   (all of them, in this order; ranks: with two GPUs or more)
#
# It takes CUDA's toolkit, gcc and CMake. PyTorch is used where python3 has it. Every step has a time limit of its own, and neither one that fails nor one that
# does not end keeps the others from running; the exit status is the number of steps that failed. What was built stays in build-gpu/, so a second call with other
# steps goes on there. QUIRE_GPU_SECONDS (570): what all steps may take together; those for which too little is left are not begun. Settings of the card are left
# as they are.
#
# `instructions` runs each instruction of kernels/cuda/ptx*.h alone beside what its manual says (tests/cuda_emu/instructions.cu, a process each): should attention
# or products be wrong, its lines say what of them to look at. It needs nvcc and nothing else.
#
# `start` computes a little of two models. Where that fails it is done once more with CUDA_LAUNCH_BLOCKING=1, which names the kernel, then without graphs,
# cuBLASLt's products and wgmma attention, together and one by one; what helps is set for the steps behind it, and said in results.txt.
set -u

[ $# -ge 1 ] || { sed -n '2,24s/^# \{0,1\}//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1" && out=$(cd "$1" && pwd) || exit 2
prefix=${2:--}
shift; [ $# -eq 0 ] || shift
steps=${*:-build instructions start ops check train ranks kern throughput torch sanitizer}
for s in $steps; do
    case $s in
    build | instructions | start | ops | check | train | ranks | kern | throughput | torch | sanitizer) ;;
    *) echo "gpu.sh: no step $s" >&2; exit 2 ;;
    esac
done
build=${QUIRE_GPU_BUILD:-$here/build-gpu}
quire=$build/quire
models=${QUIRE_GPU_MODELS:-$build/models}
seconds=${QUIRE_GPU_SECONDS:-570}
limit_most=${QUIRE_GPU_LIMIT:-570} # of one step, and QUIRE_GPU_BUILD: for tests/e2e/test_gpu_script.py
failed=0
built=yes
session=
command -v nvcc >/dev/null || export PATH="$PATH:${CUDA_HOME:-/usr/local/cuda}/bin" # where CMake looks as well
mkdir -p "$build" || exit 2
: >"$out/summary.txt"
: >"$out/results.txt"

# say STEP WORD SECONDS
say() { printf '%-38s %-10s %5s s\n' "$1" "$2" "$3" | tee -a "$out/summary.txt"; }

# Ends what is left of a step: all processes of its session, whichever groups inner limits have put them into. Again until none is seen, as one that is ended
# may have begun another behind the list; not for ever, as some do not die.
end_session() {
    local p f round some
    for round in 1 2 3 4 5 6 7 8 9 10; do
        some=
        for p in /proc/[0-9]*; do
            read -r f 2>/dev/null <"$p/stat" || continue
            set -- ${f##*) } # state, parent, group, session
            [ "${4:-}" = "$session" ] || [ "$2 ${p#/proc/}" = "$$ $session" ] || continue # or our child that has no session of its own yet
            [ "$1" != Z ] || continue
            kill -KILL "${p#/proc/}" 2>/dev/null
            some=$round
        done
        [ -n "$some" ] || break
        sleep 0.05
    done
} 2>/dev/null

# Puts what a step has printed behind the others': its first 600 KB and its last 100, so that all of it travels.
keep() {
    local n
    n=$(wc -c <"$out/running.txt")
    if [ "$n" -le 700000 ]; then cat "$out/running.txt"; else
        head -c 600000 "$out/running.txt"
        printf '\n==== gpu.sh: %s bytes left out\n' $((n - 700000))
        tail -c 100000 "$out/running.txt"
    fi >>"$out/results.txt"
    rm -f "$out/running.txt"
}

# Of a step that failed: the lines that say so, then its last ones.
show() {
    {
        grep -m 6 -iE 'error|failed|wrong|fatal|cannot|no such|not found|out of memory' "$out/running.txt" && echo ...
        sed 1,2d "$out/running.txt" | tail -n 5
    } | cut -c 1-300 | sed 's/^/    /'
}

# run LIMIT STEP COMMAND...: in a session of its own. One whose processes do not even die (the driver waits for a card that hangs) is left behind.
run() {
    local limit=$1 step=$2 began=$SECONDS left=$((seconds - SECONDS)) rc=
    shift 2
    [ "$built" = yes ] || [ "$step" = build ] || [ "$step" = instructions ] || [ "$step" = torch ] || { say "$step" "not built" 0; return 77; }
    [ "$left" -ge 10 ] || { say "$step" "no time" 0; return 77; }
    [ "$limit" -le "$left" ] || limit=$left
    [ "$limit" -le "$limit_most" ] || limit=$limit_most
    printf '\n==== %s\n' "$step" >"$out/running.txt"
    setsid timeout -k 5 "$limit" "$@" >>"$out/running.txt" 2>&1 </dev/null &
    session=$!
    while kill -0 "$session" 2>/dev/null; do
        [ $((SECONDS - began)) -le $((limit + 8)) ] || { rc=124; echo "gpu.sh: it does not die" >>"$out/running.txt"; break; }
        sleep 0.1
    done
    [ -n "$rc" ] || { wait "$session"; rc=$?; }
    end_session
    case $rc in
    0) say "$step" ok $((SECONDS - began)) ;;
    77) say "$step" skipped $((SECONDS - began)) ;;
    124 | 137) say "$step" "timed out" $((SECONDS - began)); failed=$((failed + 1)); show ;;
    *) say "$step" "failed $rc" $((SECONDS - began)); failed=$((failed + 1)); show ;;
    esac
    keep
    return $rc
}

trap 'session=${!:-}; end_session; [ ! -f "$out/running.txt" ] || keep; say gpu.sh "ended by a signal" $SECONDS; exit 1' TERM INT HUP

# The compute capability of the first GPU as nvcc names it; 90 has instructions of its own.
arch() {
    local a
    a=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
    case $a in 90) a=90a ;; [0-9]*) ;; *) a=90a ;; esac
    echo "$a"
}

configure_and_build() {
    local where=() wheels
    # Where Python's wheels have cuBLAS, should nvcc have none beside it.
    wheels=$(python3 -c 'import glob, nvidia
print(";".join(h[:-len("/include/cublasLt.h")] for p in nvidia.__path__ for h in glob.glob(p + "/*/include/cublasLt.h")))' 2>/dev/null)
    where+=(-DQUIRE_CUDA_MORE="$wheels")
    [ "$prefix" = - ] || [ -d "$prefix/usr" ] || { echo "error: no folder $prefix/usr: tools/deps.sh unpack $prefix makes it, where there is a network"; return 1; }
    [ "$prefix" = - ] || where+=(-DCMAKE_PREFIX_PATH="$(cd "$prefix" && pwd)/usr")
    [ -f "$build/CMakeCache.txt" ] || ! command -v ninja >/dev/null || where+=(-G Ninja)
    command -v nvcc; nvidia-smi -L; gcc --version | head -n 1; cmake --version | head -n 1
    cmake -S "$here" -B "$build" -DCMAKE_BUILD_TYPE=Release -DQUIRE_SERVER=OFF -DQUIRE_TESTS=OFF -DQUIRE_MPI=OFF -DQUIRE_WERROR=OFF -DQUIRE_CUDA=ON \
        -DQUIRE_CUDA_ARCHS="$(arch)" "${where[@]}" || return 1
    cmake --build "$build" -j "$(nproc)" || return 1
    [ -f "$build/libquire_cuda.so" ] || { echo "error: libquire_cuda.so was not built: is there cuBLASLt beside nvcc?"; return 1; }
}

instructions() {
    nvcc -std=c++14 -O1 -fmad=false -gencode "arch=compute_$(arch),code=sm_$(arch)" -I"$here" -DINSTRUCTIONS_MAIN "$here/tests/cuda_emu/instructions.cu" \
        -o "$build/instructions" || return 1
    "$build/instructions"
}

# A model of a published shape with random weights.
model() {
    [ ! -f "$models/$1.made" ] || return 0
    echo "== making the model $1"
    rm -rf "${models:?}/$1" && mkdir -p "$models" && "$quire" bench make-model --like "$1" --out "$models/$1" && : >"$models/$1.made" && return 0
    echo "error: the model $1 could not be made in $models"
    return 1
}

# few_steps SECONDS SECONDS: of a model that has small products and of one that has large ones: prompts, decoding, graphs.
few_steps() {
    timeout -k 2 "$1" "$quire" generate --device cuda --model "$here/models/quire-tiny" -n 20 -p "Once upon a time" &&
        timeout -k 2 "$2" "$quire" bench throughput --device cuda --model "$models/llama-3.2-1b" --no-probe --prefill 300 --batch 1,8 --depth 300 --steps 8 \
            --repeats 1 --cache 4GiB && return 0
    echo "error: a few steps failed ($?; 124: they took too long)"
    return 1
}

start() {
    local without all="QUIRE_CUDA_HOPPER=0 QUIRE_CUDA_OVERLAP=0 QUIRE_CUDA_GRAPHS=0 QUIRE_CUDA_LT_MIN=0"
    model llama-3.2-1b || return 1
    rm -f "$build/without"
    few_steps 30 60 && return 0
    echo "== once more, waiting for each launch, so that the line that ends the program is that of the kernel that failed"
    (export CUDA_LAUNCH_BLOCKING=1 QUIRE_CUDA_GRAPHS=0 && few_steps 15 25)
    for without in "$all" QUIRE_CUDA_HOPPER=0 QUIRE_CUDA_OVERLAP=0 QUIRE_CUDA_GRAPHS=0 QUIRE_CUDA_LT_MIN=0; do
        echo "== with $without"
        if (export ${without?} && few_steps 15 25); then
            echo "$without" >"$build/without"
            [ "$without" = "$all" ] || break
        elif [ "$without" = "$all" ]; then
            echo "error: none of the four is to blame"
            return 1
        fi
    done
    echo "== from here on with $(cat "$build/without"): without it a few steps failed"
    return 1
}

# sanitize TOOL WGMMA COMMAND...: under one of compute-sanitizer's tools. With wgmma attention it only says what it says: not every version of racecheck knows
# the copy engine's barriers.
sanitize() {
    local tool=$1 rc
    export QUIRE_CUDA_HOPPER=$2 QUIRE_CUDA_WAIT_S=600 # under a sanitizer kernels take hundreds of times as long
    shift 2
    command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer here"; return 77; }
    compute-sanitizer --tool "$tool" --error-exitcode 9 "$@" 2>&1 | tee "$build/sanitizer.txt"
    rc=${PIPESTATUS[0]}
    ! grep -q 'Device not supported' "$build/sanitizer.txt" || { echo "compute-sanitizer does not take this device"; return 77; }
    [ "$rc" != 9 ] || echo "error: $tool has found something"
    [ "$QUIRE_CUDA_HOPPER" = 0 ] || [ "$rc" != 9 ] || { echo "with wgmma attention this is only said"; return 0; }
    return "$rc"
}

# One model on one GPU and on two: answers are close, and the same every time; then what two are worth.
ranks() {
    local n d=$build/ranks i
    n=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
    [ "$n" -ge 2 ] || { echo "$n GPU visible: what several compute together is not looked at here"; return 77; }
    rm -rf "$d"
    mkdir -p "$d"
    echo '{"ids": [1, 40, 77, 300, 5, 9, 12, 200, 31]}' >"$d/ids.jsonl"
    for i in 1 2 2; do
        [ -f "$d/$i.out" ] && mv "$d/$i.out" "$d/$i.before"
        "$quire" score --device cuda --tensor-parallel "$i" --dtype f32 --model "$here/models/quire-tiny" <"$d/ids.jsonl" >"$d/$i.out" || return 1
    done
    cmp "$d/2.before" "$d/2.out" || return 1
    python3 -c 'import json, sys
one, two = (json.loads(open(f).readline())["logprobs"] for f in sys.argv[1:])
worst = max(abs(a - b) for a, b in zip(one, two) if a is not None)
print("log-probabilities of one GPU and of two differ by at most", worst)
sys.exit(worst > 1e-3)' "$d/1.out" "$d/2.out" || return 1
    "$quire" train "$build/train/cuda.yaml" --ranks 2 --set batch.micro=2 --set save.out="$d/two" --set save.keep=1 || return 1
    "$quire" train "$build/train/cuda.yaml" --set batch.micro=2 --set batch.leaves=2 --set save.out="$d/one" --set save.keep=1 || return 1
    cmp "$(ls -d "$d"/one/step-* | tail -n 1)/model.safetensors" "$(ls -d "$d"/two/step-* | tail -n 1)/model.safetensors" || return 1
    echo "training on one GPU and on two gives the same bytes"
    model llama-3.1-8b || return 1
    for i in 1 2; do
        "$quire" bench throughput --device cuda --tensor-parallel $i --model "$models/llama-3.1-8b" --prefill 4096 --batch 1,16,64 --depth 1024 --steps 64 --repeats 2 \
            --chunk 4096 --cache 16GiB || return 1
    done
}

# The same few steps on the processor and on the GPU: two logs to lay side by side.
train() {
    local d=$build/train device i
    rm -rf "$d"
    mkdir -p "$d"
    for i in $(seq 400); do echo "{\"text\": \"Line $i of a small story: one, two, three, and $((i * 7)) more.\"}"; done >"$d/text.jsonl"
    "$quire" data prepare --model "$here/models/quire-tiny" --out "$d/data" "$d/text.jsonl" || return 1
    for device in cpu cuda; do
        printf 'model:\n  config: %s\ndata:\n  train: %s\n  sequence: 128\nbatch:\n  tokens: 1024\nsteps: 6\nsave:\n  out: %s\ncompute:\n  device: %s\n' \
            "$here/models/quire-tiny/config.json" "$d/data" "$d/$device" "$device" >"$d/$device.yaml"
        "$quire" train "$d/$device.yaml" || return 1
    done
}

# throughput MODEL [FLAG...]
throughput() {
    local m=$1
    shift
    model "$m" && "$quire" bench throughput --device cuda --model "$models/$m" --json --prefill 4096 --batch 1,16,64,256 --depth 1024 --steps 64 --repeats 3 \
        --chunk 4096 --cache 48GiB "$@"
}

torch() {
    python3 -c 'import torch; assert torch.cuda.is_available()' || { echo "no PyTorch with a GPU here"; return 77; }
    python3 "$here/tools/gpu_torch.py"
}

export here out prefix build quire models PYTHONUNBUFFERED=1
export -f arch configure_and_build instructions model few_steps start sanitize ranks train throughput torch
[ ! -f "$build/without" ] || export $(cat "$build/without")
[ -x "$quire" ] && [ -f "$build/libquire_cuda.so" ] || built=no
for s in $steps; do
    case $s in
    build)
        if run 300 build bash -c configure_and_build; then built=yes; else built=no; fi
        run 20 fits python3 "$here/tools/cuda_fits.py" "$build/libquire_cuda.so" --archs "$(arch)" # registers, as this toolkit gives them
        ;;
    instructions) run 60 instructions bash -c instructions ;;
    start)
        run 260 start bash -c start
        [ ! -f "$build/without" ] || export $(cat "$build/without")
        ;;
    ops) # a process each: a launch that fails ends its program
        for only in linear attention rows; do run 60 "ops-$only" "$quire" bench kern --device cuda --check --only $only; done
        run 40 ops-attention-mma env QUIRE_CUDA_HOPPER=0 "$quire" bench kern --device cuda --check --only attention # attention.cu where attention_hopper.cu is used
        ;;
    check) run 120 check python3 "$here/tools/gpu_check.py" "$quire" "$here/models/quire-tiny" ;;
    sanitizer)
        for tool in memcheck racecheck synccheck; do
            run 60 "sanitizer-$tool-rows" bash -c "sanitize $tool 0 \"$quire\" bench kern --device cuda --check --only rows"
            run 60 "sanitizer-$tool-generate" bash -c "sanitize $tool 0 \"$quire\" generate --device cuda --model \"$here/models/quire-tiny\" -n 3 -p Once"
        done
        for tool in memcheck racecheck; do
            run 60 "sanitizer-$tool-wgmma" bash -c "sanitize $tool 1 \"$quire\" generate --device cuda --model \"$here/models/quire-tiny\" -n 3 -p Once"
        done
        ;;
    train) run 40 train bash -c train ;;
    ranks) run 120 ranks bash -c ranks ;;
    kern)
        run 90 kern "$quire" bench kern --device cuda --time 100ms --json "$out/kern.json"
        run 30 kern-mma env QUIRE_CUDA_HOPPER=0 "$quire" bench kern --device cuda --time 100ms --only attention --json "$out/kern-mma.json"
        ;;
    throughput)
        for m in llama-3.2-1b qwen3-0.6b llama-3.1-8b; do run 120 "throughput-$m" bash -c "throughput $m"; done
        run 100 throughput-llama-3.1-8b-fp8 bash -c "throughput llama-3.1-8b --quantize fp8 --no-probe --batch 1,64"
        run 40 throughput-llama-3.2-1b-deterministic bash -c "throughput llama-3.2-1b --deterministic --no-probe --batch 64"
        ;;
    torch) run 90 torch bash -c torch ;;
    esac
done
exit "$failed"
