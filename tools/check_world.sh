#!/bin/sh
# check_world.sh - other people's packages from PyPI beside build/quire: their clients against the server, their engines and validators beside its grammars;
# the page in a browser, the package in a bare Debian, the dashboard's queries in a Prometheus, ranks started by a Slurm,
# blocks of the cache over UCX.
# No test: it needs a network, and the packages change. Environments lie in build/world; what cannot be installed is skipped, which is said. `./dev check-world` builds and calls it.
set -eu
cd "$(dirname "$0")/.."
world=build/world
data=${QUIRE_DATA:-../shared/data}
skipped=0 failed=0

skip() {
    echo "check-world: SKIPPED $1: $2" >&2
    skipped=$((skipped + 1))
}

# NAME and pip's arguments, for an environment that may be there already.
environment() {
    name=$1
    shift
    [ -x "$world/$name/bin/pip" ] || python3 -m venv "$world/$name" >"$world/$name.log" 2>&1 || return 1
    "$world/$name/bin/pip" install --quiet --disable-pip-version-check --no-input "$@" >>"$world/$name.log" 2>&1
}

check() {
    echo "check-world: $*" >&2
    "$@" || failed=$((failed + 1))
}

mkdir -p "$world"
if environment clients openai openai-agents instructor 'pydantic-ai-slim[openai]' langchain langchain-openai litellm guidance outlines anthropic ollama; then
    check "$world/clients/bin/python" tools/check_clients.py
    check "$world/clients/bin/python" tools/check_doors.py
else
    skip clients "pip could install nothing (no network?), see $world/clients.log"
fi
# Two of them bring a program of the same name.
if environment vllm-router vllm-router && environment sglang-router sglang-router && environment smg smg; then
    check python3 tools/check_routers.py
else
    skip routers "pip could install nothing (no network?), see $world/*-router.log and $world/smg.log"
fi
if environment hub huggingface_hub; then
    check "$world/hub/bin/python" tools/check_hub.py
else
    skip hub "pip could install nothing (no network?), see $world/hub.log"
fi
if [ ! -e "$data/answers/schemas.jsonl" ]; then
    skip answers "no data (QUIRE_DATA): $data/answers/schemas.jsonl"
elif environment answers 'jsonschema[format-nongpl]' llguidance tokenizers numpy pydantic apache-tvm-ffi && environment answers --no-deps xgrammar; then
    check "$world/answers/bin/python" tools/check_answers.py instances
    check "$world/answers/bin/python" tools/check_answers.py walks --walks "${QUIRE_WALKS:-10000}"
    check "$world/answers/bin/python" tools/check_answers.py bench
else
    skip answers "pip could install nothing (no network?), see $world/answers.log"
fi
if command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1; then
    check python3 tools/check_page.py
else
    skip page "no chromium (apt-get install chromium)"
fi
if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null 2>&1; then
    skip package "root and debootstrap are needed (apt-get install debootstrap)"
elif ./dev package -DQUIRE_CUDA=OFF; then
    check tools/check_package.sh "$world/package"
else
    failed=$((failed + 1))
fi
if command -v prometheus >/dev/null 2>&1 && command -v promtool >/dev/null 2>&1; then
    check python3 tools/check_monitoring.py
else
    skip monitoring "no prometheus (apt-get install prometheus)"
fi
if [ "$(id -u)" != 0 ] || ! command -v slurmctld >/dev/null 2>&1 || ! command -v munged >/dev/null 2>&1 || ! command -v ip >/dev/null 2>&1; then
    skip ranks "root, Slurm and ip are needed (apt-get install slurm-wlm munge iproute2)"
else
    check python3 tools/check_ranks.py
fi
if [ -e /usr/include/ucp/api/ucp.h ] && ninja -C build exchange_test_exchange >"$world/ucx.log" 2>&1; then
    check env CRITERION_JOBS=1 build/exchange_test_exchange --filter 'exchange/*ucx*'
else
    skip ucx "no UCX to build with (apt-get install libucx-dev)"
fi
if [ -e build/tests/libquire_cuda_emu.so ]; then
    check env QUIRE_FULL=1 QUIRE_BIN="$PWD/build/quire" QUIRE_CUDA_EMU_LIB="$PWD/build/tests/libquire_cuda_emu.so" python3 tests/e2e/test_gpu_script.py
else
    skip gpu-script "no emulated device was built (./dev test quick)"
fi
for what in same kills routers; do
    check env QUIRE_BIN="$PWD/build/quire" python3 tools/check_pair.py "$what"
done
if [ "${QUIRE_FULL:-0}" = 1 ]; then
    for model in smollm2-135m llama-3.2-1b; do
        [ -e "$world/$model" ] || build/quire bench make-model --like "$model" --out "$world/$model" >&2
    done
    check env QUIRE_BIN="$PWD/build/quire" python3 tools/check_pair.py storm --model "$world/smollm2-135m"
    check env QUIRE_BIN="$PWD/build/quire" python3 tools/check_pair.py prefix --model "$world/llama-3.2-1b"
else
    skip pair "the storm and prefixes of 4,096 tokens take minutes of an idle machine (QUIRE_FULL=1)"
fi
echo "check-world: $failed of the checks failed, $skipped skipped"
[ "$failed" = 0 ]
