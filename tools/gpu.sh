#!/bin/bash
# gpu.sh - on a machine with an NVIDIA GPU: builds quire there and runs everything that only such a machine can.
#
#   tools/gpu.sh OUT [PREFIX] [STEP...]
#
# OUT     directory for results, few files so that they travel: summary.txt (a line for each step: ok, failed, timed out, skipped or no time, seconds),
#         results.txt (what the steps printed, one behind the other), kern.json, kern-mma.json
# PREFIX  directory with unpacked packages (made by `tools/deps.sh unpack PREFIX` where there is a network), or - where the system has them
# STEP    of: build start ops check train ranks kern throughput torch sanitizer   (all of them, in this order; ranks: behind train, with two GPUs or more)
#
# It takes CUDA's toolkit, gcc and CMake. PyTorch is used where python3 has it. Every step has a time limit of its own, and a step that fails does not keep
# the others from running; the exit status is the number of steps that failed. What was built stays in build-gpu/, so a second call with other steps goes on
# there. QUIRE_GPU_SECONDS (570): what all steps may take together; those for which too little is left are not begun. Settings of the card are left as they are.
#
# `start` computes a little of two models. Where that fails it is done once more with CUDA_LAUNCH_BLOCKING=1, which names the kernel, then without graphs,
# cuBLASLt's products and wgmma attention, one by one and together; what helps is set for the steps behind it, and said in results.txt.
set -u

[ $# -ge 1 ] || { sed -n '2,19s/^# \{0,1\}//p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1" && out=$(cd "$1" && pwd)
prefix=${2:--}
shift; [ $# -eq 0 ] || shift
steps=${*:-build start ops check train ranks kern throughput torch sanitizer}
build=$here/build-gpu
quire=$build/quire
models=${QUIRE_GPU_MODELS:-$build/models}
seconds=${QUIRE_GPU_SECONDS:-570}
failed=0
mkdir -p "$build"
: >"$out/summary.txt"
: >"$out/results.txt"

# say STEP WORD SECONDS
say() { printf '%-34s %-10s %5s s\n' "$1" "$2" "$3" | tee -a "$out/summary.txt"; }

# run LIMIT STEP COMMAND...: what the command prints goes to results.txt while it runs
run() {
    local limit=$1 step=$2 began=$SECONDS left=$((seconds - SECONDS)) from rc
    shift 2
    [ "$left" -ge 10 ] || { say "$step" "no time" 0; return 77; }
    [ "$limit" -le "$left" ] || limit=$left
    printf '\n==== %s\n' "$step" >>"$out/results.txt"
    from=$(wc -l <"$out/results.txt")
    timeout -k 5 "$limit" "$@" >>"$out/results.txt" 2>&1
    rc=$?
    case $rc in
    0) say "$step" ok $((SECONDS - began)) ;;
    77) say "$step" skipped $((SECONDS - began)) ;;
    124 | 137) say "$step" "timed out" $((SECONDS - began)); failed=$((failed + 1)) ;;
    *) say "$step" "failed $rc" $((SECONDS - began)); failed=$((failed + 1)); tail -n "+$((from + 1))" "$out/results.txt" | tail -n 8 | sed 's/^/    /' ;;
    esac
    return $rc
}

# The compute capability of the first GPU as nvcc names it; 90 has instructions of its own.
arch() {
    local a
    a=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
    case $a in 90) a=90a ;; [0-9]*) ;; *) a=90a ;; esac
    echo "$a"
}

configure_and_build() {
    local where=()
    [ "$prefix" = - ] || where=(-DCMAKE_PREFIX_PATH="$(cd "$prefix" && pwd)/usr")
    [ -f "$build/CMakeCache.txt" ] || ! command -v ninja >/dev/null || where+=(-G Ninja)
    command -v nvcc; nvidia-smi -L; gcc --version | head -n 1; cmake --version | head -n 1
    cmake -S "$here" -B "$build" -DCMAKE_BUILD_TYPE=Release -DQUIRE_SERVER=OFF -DQUIRE_TESTS=OFF -DQUIRE_MPI=OFF -DQUIRE_WERROR=OFF -DQUIRE_CUDA=ON \
        -DQUIRE_CUDA_ARCHS="$(arch)" "${where[@]}" && cmake --build "$build" -j "$(nproc)"
}

# A model of a published shape with random weights.
model() {
    [ -f "$models/$1.made" ] || { rm -rf "${models:?}/$1" && mkdir -p "$models" && "$quire" bench make-model --like "$1" --out "$models/$1" && : >"$models/$1.made"; }
}

# A few steps of a model that has small products and of one that has large ones: prompts, decoding, graphs.
few_steps() {
    timeout 30 "$quire" generate --device cuda --model "$here/models/quire-tiny" -n 20 -p "Once upon a time" &&
        timeout 60 "$quire" bench throughput --device cuda --model "$models/llama-3.2-1b" --no-probe --prefill 300 --batch 1,8 --depth 300 --steps 8 --repeats 1 \
            --cache 4GiB
}

start() {
    local without
    model llama-3.2-1b || return 1
    rm -f "$build/without"
    for without in QUIRE_NOTHING=0 QUIRE_CUDA_HOPPER=0 QUIRE_CUDA_GRAPHS=0 QUIRE_CUDA_LT_MIN=0 "QUIRE_CUDA_HOPPER=0 QUIRE_CUDA_GRAPHS=0 QUIRE_CUDA_LT_MIN=0"; do
        echo "== with $without"
        (export ${without?} && few_steps) || {
            [ "$without" = QUIRE_NOTHING=0 ] || continue
            echo "== once more, waiting for each launch, so that the line that ends the program is that of the kernel that failed"
            (export CUDA_LAUNCH_BLOCKING=1 QUIRE_CUDA_GRAPHS=0 && few_steps)
            continue
        }
        [ "$without" = QUIRE_NOTHING=0 ] && return 0
        echo "$without" >"$build/without"
        echo "== from here on with $without: without it a few steps failed"
        return 1
    done
    return 1
}

# Kernels of one kind and a few tokens under each tool. wgmma attention comes last and only says what it says: not every version of racecheck knows the copy
# engine's barriers.
sanitizer() {
    command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer here"; return 77; }
    local tool bad=0
    export QUIRE_CUDA_WAIT_S=600 # under a sanitizer kernels take hundreds of times as long
    for tool in memcheck racecheck synccheck; do
        echo "== $tool"
        QUIRE_CUDA_HOPPER=0 timeout 50 compute-sanitizer --tool "$tool" --error-exitcode 9 \
            "$quire" generate --device cuda --model "$here/models/quire-tiny" -n 3 -p "Once upon a time" || bad=1
        timeout 60 compute-sanitizer --tool "$tool" --error-exitcode 9 "$quire" bench kern --device cuda --check --only rows || bad=1
    done
    for tool in memcheck racecheck; do
        echo "== $tool with wgmma attention"
        QUIRE_CUDA_HOPPER=1 timeout 50 compute-sanitizer --tool "$tool" --error-exitcode 9 \
            "$quire" generate --device cuda --model "$here/models/quire-tiny" -n 3 -p "Once upon a time" || echo "status $?"
    done
    return "$bad"
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

export here out prefix build quire models
export -f arch configure_and_build model few_steps start sanitizer ranks train throughput torch
[ ! -f "$build/without" ] || export $(cat "$build/without")
for s in $steps; do
    case $s in
    build) run 300 build bash -c configure_and_build || { echo "nothing was built: see $out/results.txt" >&2; exit "$failed"; } ;;
    start)
        run 260 start bash -c start
        [ ! -f "$build/without" ] || export $(cat "$build/without")
        ;;
    ops)
        run 90 ops "$quire" bench kern --device cuda --check
        run 30 ops-mma env QUIRE_CUDA_HOPPER=0 "$quire" bench kern --device cuda --check --only attention # attention.cu where attention_hopper.cu is used
        ;;
    check) run 120 check python3 "$here/tools/gpu_check.py" "$quire" "$here/models/quire-tiny" ;;
    sanitizer) run 440 sanitizer bash -c sanitizer ;;
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
    *) echo "gpu.sh: no step $s" >&2; exit 2 ;;
    esac
done
exit "$failed"
