#!/bin/bash
# gpu_steps.sh - what each step of tools/gpu.sh does. Called by it, a process for each step: `gpu_steps.sh STEP`, with `here`, `out`, `pack`, `build`, `models`,
# `quire`, `wanted_models` and `path_before` in the environment. Exit status: 0, 77 where something is missing here (the last line says what), the program's own
# otherwise. JSON lines that a step prints go to results.jsonl.
set -u -o pipefail

# What is measured; with QUIRE_GPU_SMALL=1 and QUIRE_GPU_TINY, for tests/e2e/test_gpu_script.py, as much as a processor that stands for a GPU can do.
small=${QUIRE_GPU_SMALL:+1}
size() { if [ -n "$small" ]; then echo "$2"; else echo "$1"; fi; }
prompt=$(size 4096 48)
batches=$(size 1,16,64,256 1,4)
batches_few=$(size 1,64 1,4)
depths=$(size 0,1024 0,32)
n_steps=$(size 64 2)
cache=$(size 48GiB 256MiB)
each=$(size 50ms 1ms)
tiny=${QUIRE_GPU_TINY:-$here/models/quire-tiny}

# ---- what there is ----

# ask LIBRARY FUNCTION [pointer]: a version that a library says of itself.
ask() {
    timeout 8 python3 -c 'import ctypes, sys
f, n = getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2]), ctypes.c_int(-1)
f.restype = ctypes.c_size_t
print(sys.argv[1], sys.argv[2], (f(ctypes.byref(n)), n.value)[1] if len(sys.argv) > 3 else f())' "$@" 2>&1 | tail -n 1
}

# The sources that the programs are built from, as one number.
sources() {
    (cd "$here" && find base kernels tokenizer kvcache comm loader scheduler model engine train bench cli tests/device \
        tests/ops_cases.h -name '*.[ch]' -o -name '*.cu' | LC_ALL=C sort | xargs cat | sha256sum | cut -c 1-16)
}

facts() {
    local f rc=0
    timeout 5 nvidia-smi --format=csv,noheader --query-gpu=name,compute_cap,driver_version,memory.total,clocks.sm,clocks.max.sm,clocks.mem,clocks.max.mem,power.draw,power.limit ||
        { echo "error: nvidia-smi says nothing"; rc=1; }
    date -u; uname -r; getconf GNU_LIBC_VERSION
    nproc; grep -E "MemTotal|MemAvailable" /proc/meminfo; df -h "$models" "$build" | sed 1d
    echo "program: $quire; libraries: $LD_LIBRARY_PATH"
    for f in "$quire" "${quire%/*}"/{device_check,libquire_cuda.so} "$pack/instructions"; do
        echo "$f"
        ldd "$f" 2>&1 | grep -v linux-vdso
    done
    if [ -f "$pack/packed.txt" ]; then
        cat "$pack/packed.txt"
        [ "${quire%/*}" != "$pack" ] || grep -q "^sources $(sources)$" "$pack/packed.txt" || echo "the packed program is of other sources than this tree: tools/gpu.sh pack again"
    fi
    ask libcuda.so.1 cuDriverGetVersion pointer
    ask libcublasLt.so.13 cublasLtGetVersion
    ask libcudart.so.13 cudaRuntimeGetVersion pointer # the program brings its own; this is the one of the toolkit or the wheels
    nvcc --version 2>/dev/null | tail -n 2
    timeout 5 nvidia-smi -q -d CLOCK,POWER,PERFORMANCE | grep -E 'Graphics|SM |Memory|Limit|Draw|Slowdown|Idle' | tr -s ' ' | head -n 40
    return $rc
}

# The compute capability of the first GPU as nvcc names it; 90 has instructions of its own.
arch() {
    local a
    a=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
    case $a in 90) a=90a ;; [0-9]*) ;; *) a=90a ;; esac
    echo "$a"
}

instructions() {
    local program=$pack/instructions
    if ! [ -x "$program" ] || ldd "$program" 2>&1 | grep -q 'not found'; then
        program=$build/instructions
        nvcc -std=c++14 -O1 -fmad=false -gencode "arch=compute_$(arch),code=sm_$(arch)" -I"$here" -DINSTRUCTIONS_MAIN "$here/tests/cuda_emu/instructions.cu" \
            -o "$program" || return 1
    fi
    "$program"
}

# ---- behind the steps ----

build() {
    local where=() wheels
    # Where Python's wheels have cuBLAS, should nvcc have none beside it.
    wheels=$(python3 -c 'import glob, nvidia
print(";".join(h[:-len("/include/cublasLt.h")] for p in nvidia.__path__ for h in glob.glob(p + "/*/include/cublasLt.h")))' 2>/dev/null)
    where+=(-DQUIRE_CUDA_MORE="$wheels")
    [ ! -d "$pack/usr" ] || where+=(-DCMAKE_PREFIX_PATH="$pack/usr")
    [ -f "$build/CMakeCache.txt" ] || ! command -v ninja >/dev/null || where+=(-G Ninja)
    command -v nvcc; gcc --version | head -n 1; cmake --version | head -n 1
    cmake -S "$here" -B "$build" -DCMAKE_BUILD_TYPE=Release -DQUIRE_SERVER=OFF -DQUIRE_TESTS=OFF -DQUIRE_MPI=OFF -DQUIRE_WERROR=OFF -DQUIRE_CUDA=ON \
        -DQUIRE_CUDA_DRAFT=OFF -DQUIRE_CUDA_ARCHS="$(arch)" "${where[@]}" || return 1
    cmake --build "$build" -j "$(nproc)" --target all device_check || return 1
    [ -f "$build/libquire_cuda.so" ] || { echo "error: libquire_cuda.so was not built: is there cuBLASLt beside nvcc?"; return 1; }
}

# Models of published shapes with random weights, in the order in which steps read them. A folder appears when it is complete.
make_models() {
    local m rc=0
    trap ': >"$build/models.over"' EXIT
    for m in $wanted_models; do
        echo "$m: $SECONDS s"
        "$quire" bench make-model --like "$(size "$m" 110m)" --layers "$(size 0 2)" --out "$models/$m" || { echo "error: the model $m could not be made in $models"; rc=1; }
    done
    return $rc
}

# model NAME: waits until it is there.
model() {
    until [ -d "$models/$1" ]; do
        [ ! -f "$build/models.over" ] || [ -d "$models/$1" ] || { echo "error: the model $1 could not be made in $models"; return 1; }
        sleep 0.2
    done
}

# ---- right? ----

check() { "${quire%/*}/device_check" --device cuda "$@"; } # a process each: a launch that fails ends its program

check_large() {
    local rc
    rm -f "$build/large.jsonl"
    check --large --scale "$(size 1 64)" --json "$build/large.jsonl"
    rc=$?
    [ ! -f "$build/large.jsonl" ] || { cat "$build/large.jsonl"; echo "$(grep -c '"WRONG"' "$build/large.jsonl") of $(grep -c . "$build/large.jsonl") comparisons are wrong"; }
    [ $rc != 77 ] || echo "this GPU has no second way to compute, or no room for it"
    return $rc
}

# few_steps SECONDS SECONDS: of a model that has small products and of one that has large ones: prompts, decoding, graphs.
few_steps() {
    timeout -k 2 "$1" "$quire" generate --device cuda --model "$tiny" -n "$(size 20 2)" -p "Once upon a time" &&
        timeout -k 2 "$2" "$quire" bench throughput --device cuda --model "$models/llama-3.2-1b" --no-probe --prefill "$(size 300 30)" --batch 1,8 \
            --depth "$(size 300 30)" --steps "$(size 8 2)" --repeats 1 --cache "$(size 4GiB 256MiB)" && return 0
    echo "error: a few steps failed ($?; 124: they took too long)"
    return 1
}

# Where a few steps fail: once more with CUDA_LAUNCH_BLOCKING=1, which names the kernel, then without four things together and one by one. What helps is left in
# build-gpu/without, for the steps behind this one.
start() {
    local without all="QUIRE_CUDA_HOPPER=0 QUIRE_CUDA_OVERLAP=0 QUIRE_CUDA_GRAPHS=0 QUIRE_CUDA_LT_MIN=0"
    model llama-3.2-1b || return 1
    rm -f "$build/without"
    few_steps "$(size 12 120)" "$(size 25 250)" && return 0
    echo "== once more, waiting for each launch, so that the line that ends the program is that of the kernel that failed"
    (export CUDA_LAUNCH_BLOCKING=1 QUIRE_CUDA_GRAPHS=0 && few_steps 8 12)
    for without in "$all" QUIRE_CUDA_HOPPER=0 QUIRE_CUDA_OVERLAP=0 QUIRE_CUDA_GRAPHS=0 QUIRE_CUDA_LT_MIN=0; do
        echo "== with $without"
        if (export ${without?} && few_steps 8 12); then
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

# The same few steps on the processor and on the GPU: the losses agree.
train() {
    local d=$build/train device i
    rm -rf "$d"
    mkdir -p "$d"
    for i in $(seq 400); do echo "{\"text\": \"Line $i of a small story: one, two, three, and $((i * 7)) more.\"}"; done >"$d/text.jsonl"
    "$quire" data prepare --model "$tiny" --out "$d/data" "$d/text.jsonl" || return 1
    for device in cpu cuda; do
        printf 'model:\n  config: %s\ndata:\n  train: %s\n  sequence: 128\nbatch:\n  tokens: 1024\nsteps: 6\nsave:\n  out: %s\ncompute:\n  device: %s\n' \
            "$tiny/config.json" "$d/data" "$d/$device" "$device" >"$d/$device.yaml"
        "$quire" train "$d/$device.yaml" || return 1
    done
    python3 "$here/tools/gpu_check.py" --losses "$d/cpu" "$d/cuda"
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
sanitize_rows() { sanitize "$1" 0 "${quire%/*}/device_check" --device cuda --only rows; }
sanitize_generate() { sanitize "$1" "$2" "$quire" generate --device cuda --model "$tiny" -n 3 -p Once; }

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
        "$quire" score --device cuda --tensor-parallel "$i" --dtype f32 --model "$tiny" <"$d/ids.jsonl" >"$d/$i.out" || return 1
    done
    cmp "$d/2.before" "$d/2.out" || return 1
    python3 "$here/tools/gpu_check.py" --scores "$d/1.out" "$d/2.out" || return 1
    "$quire" train "$build/train/cuda.yaml" --ranks 2 --set batch.micro=2 --set save.out="$d/two" --set save.keep=1 || return 1
    "$quire" train "$build/train/cuda.yaml" --set batch.micro=2 --set batch.leaves=2 --set save.out="$d/one" --set save.keep=1 || return 1
    cmp "$(ls -d "$d"/one/step-* | tail -n 1)/model.safetensors" "$(ls -d "$d"/two/step-* | tail -n 1)/model.safetensors" || return 1
    echo "training on one GPU and on two gives the same bytes"
}

# ---- how fast? ----

# kern NAME: rows as JSON lines behind the table.
kern() {
    "$quire" bench kern --device cuda --time "$each" --only "$1" --json "$build/kern.json" || return
    sed -n 's/^\({"isa".*}\),\{0,1\}$/\1/p' "$build/kern.json" | tee "$build/kern.jsonl"
    grep -qv '"probe":true' "$build/kern.jsonl" || { echo "error: nothing was measured"; return 1; }
}

# throughput MODEL [FLAG...]
throughput() {
    local m=$1
    shift
    model "$m" && "$quire" bench throughput --device cuda --model "$models/$m" --json --prefill "$prompt" --batch "$batches" --depth "$depths" --steps "$n_steps" \
        --repeats "$(size 3 1)" --chunk "$prompt" --cache "$cache" "$@"
}

# What each device-side help is worth: one sequence of the 1B model, all on, then one off at a time.
ablations() {
    local without
    model llama-3.2-1b || return 1
    for without in NOTHING=0 QUIRE_CUDA_OVERLAP=0 QUIRE_CUDA_GRAPHS=0 QUIRE_CUDA_HOPPER=0 QUIRE_CUDA_LT_MIN=0; do
        env "$without" "$quire" bench throughput --device cuda --model "$models/llama-3.2-1b" --json --no-probe --prefill "$(size 512 40)" --batch 1 --depth "$(size 512 32)" \
            --steps "$(size 128 2)" --repeats "$(size 3 1)" --cache "$(size 4GiB 256MiB)" | sed "s/^{/{\"without\":\"${without%=0}\",/" || return
    done
}

# 4096 tokens a step, as gpu_torch.py's.
bench_train() {
    local less=()
    [ -z "$small" ] || less=(--dim 128 --layers 2 --heads 2 --kv-heads 1 --ffn 256 --vocab 512)
    "$quire" bench train --device cuda --json --like "$1" --batch 2 --tokens "$(size 2048 16)" --steps "$(size 8 1)" "${less[@]}"
}

# 256 prompts of 1024 tokens, 1024 more for each, through the engine.
offline() {
    local n
    n=$(size 256 3)
    [ "$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -n 1)" -ge 110000 ] 2>/dev/null || n=$(size 64 3) # 80 GB hold fewer
    model qwen3-8b && "$quire" bench throughput --device cuda --model "$models/qwen3-8b" --json --sequences "$n" --running "$n" --prompt "$(size 1024 8)" \
        --generate "$(size 1024 2)" --chunk "$(size 4096 16)"
}

# profile KERNELS NAME: hardware's counters of a few launches, as CSV. Clocks stay as they are.
profile() {
    local rc
    command -v ncu >/dev/null || { echo "no ncu here"; return 77; }
    ncu --clock-control none --csv --set basic --section WarpStateStats -k "regex:$1" -c 6 --kill yes "$quire" bench kern --device cuda --time 1ms --only "$2" 2>&1 |
        tee "$build/profile.txt" | grep -v '^attention \|^linear '
    rc=${PIPESTATUS[0]}
    ! grep -q 'No kernels were profiled' "$build/profile.txt" || { echo "error: no such kernel was launched"; return 1; }
    grep -q '^"ID"' "$build/profile.txt" || { echo "error: no counters ($rc)"; return 1; }
}

torch() {
    python3 -c 'import torch; assert torch.cuda.is_available()' || { echo "no PyTorch with a GPU here"; return 77; }
    export TORCHINDUCTOR_CACHE_DIR=$build/inductor
    python3 "$here/tools/gpu_torch.py" "$@"
}

cd "$build" || exit 1
case $1 in
facts | sources | instructions | build | start | train | ranks | ablations) "$1" ;;
models) make_models ;;
warm) python3 -c 'import torch, transformers' ;;
ops-large) check_large ;;
ops-attention-mma) QUIRE_CUDA_HOPPER=0 check --only attention ;; # attention.cu where attention_hopper.cu is used
ops-*) check --only "${1#ops-}" ;;
kern-attention-mma) QUIRE_CUDA_HOPPER=0 kern attention ;;
kern-rows) kern rows && kern back ;;
kern-*) kern "${1#kern-}" ;;
throughput-0.6b) throughput qwen3-0.6b ;;
throughput-1b) throughput llama-3.2-1b ;;
throughput-8b) throughput llama-3.1-8b ;;
throughput-8b-fp8) throughput llama-3.1-8b --no-probe --depth 0 --batch "$batches_few" --quantize fp8 ;;
throughput-8b-int8) throughput llama-3.1-8b --no-probe --depth 0 --batch "$batches_few" --quantize w8a16 ;;
throughput-8b-int4) throughput llama-3.1-8b --no-probe --depth 0 --batch "$batches_few" --quantize w4a16 ;;
deterministic-1b) throughput llama-3.2-1b --no-probe --depth 0 --deterministic ;;
deterministic-8b) throughput llama-3.1-8b --no-probe --depth 0 --deterministic ;;
train-*) bench_train "qwen2.5-${1#train-}" ;;
offline-qwen3-8b) offline ;;
torch-kern) torch products products_fp8 attention rows ;;
torch-train) torch train_05b train_15b train_05b_bf16 train_15b_bf16 ;;
torch-prompt) torch prompt ;;
torch-decode) torch decode ;;
check) python3 "$here/tools/gpu_check.py" "$quire" "$tiny" --tokens "$(size 48 2)" --prompts "$(size 5 2)" ;;
goldens) python3 "$here/tools/gpu_check.py" "$quire" --goldens "$pack/goldens" --tokens "$(size 96 4)" ;;
profile-few) profile 'few_rows|product_codes' linear ;;
profile-attention) profile 'attend' attention ;;
profile-back) profile 'back_d' back ;;
*-rows) sanitize_rows "${1%-rows}" ;;
*-generate) sanitize_generate "${1%-generate}" 0 ;;
memcheck-wgmma) sanitize_generate memcheck 1 ;;
fits) python3 "$here/tools/cuda_fits.py" "${quire%/*}/libquire_cuda.so" --archs "$(arch)" ;;
*) echo "gpu_steps.sh: no step $1" >&2; exit 2 ;;
esac
