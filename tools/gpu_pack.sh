#!/bin/bash
# gpu_pack.sh DIR - (tools/gpu.sh pack DIR) builds here what tools/gpu.sh runs on a machine with a GPU, and gathers it
# in DIR: `quire`, `device_check` and `libquire_cuda.so` (release, for compute capability 9.0a alone), `instructions`,
# the small libraries that they need in lib/, the packages that a build there would need in usr/, models with known
# answers in goldens/, and packed.txt. glibc, cuBLASLt and the driver are that machine's. Exit status 1 where something
# would not start there.
set -eu -o pipefail

[ $# = 1 ] && [ -n "$1" ] || { echo "gpu_pack.sh: into which folder? tools/gpu.sh pack DIR" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
dir=$(cd "$1" && pwd)
build=${QUIRE_GPU_BUILD:-$here/build-gpu}
data=${QUIRE_DATA:-$here/../shared/data}
glibc_newest=2.35 # of the GPU's machine at least
room_mib=64       # that may travel: DIR, and the tree beside it
command -v nvcc >/dev/null || export PATH="$PATH:${CUDA_HOME:-/usr/local/cuda}/bin"
fail() { echo "error: $*" >&2; exit 1; }

where=()
[ -f "$build/CMakeCache.txt" ] || ! command -v ninja >/dev/null || where+=(-G Ninja)
cmake -S "$here" -B "$build" "${where[@]}" -DCMAKE_BUILD_TYPE=Release -DQUIRE_SERVER=OFF -DQUIRE_TESTS=OFF -DQUIRE_MPI=OFF -DQUIRE_LEVELS_DRAFT=OFF -DQUIRE_CUDA=ON \
    -DQUIRE_CUDA_DRAFT=OFF -DQUIRE_CUDA_ARCHS=90a >/dev/null
cmake --build "$build" -j "${QUIRE_GPU_JOBS:-$(nproc)}" --target all device_check
of=$here/tests/cuda_emu/instructions.cu
if ! [ "$build/instructions" -nt "$of" ] || [ -n "$(find "$here/kernels/cuda" "$here/tests/cuda_emu" -name '*.h' -newer "$build/instructions")" ]; then
    nvcc -std=c++14 -O1 -fmad=false -gencode arch=compute_90a,code=sm_90a -I"$here" -DINSTRUCTIONS_MAIN "$of" -o "$build/instructions"
fi

rm -rf "$dir/lib" "$dir/goldens"
mkdir -p "$dir/lib"
programs=(quire device_check libquire_cuda.so instructions)
for f in "${programs[@]}"; do cp -p "$build/$f" "$dir/$f"; done

# What they need but for what each machine has, and cuBLASLt, which comes with CUDA or PyTorch.
ldd "${programs[@]/#/$dir/}" | sed -n 's/^\t\([^ ]*\) => \(\/[^ ]*\).*/\1 \2/p' | sort -u | while read -r name from; do
    case $name in
    libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libgcc_s.so.* | libstdc++.so.* | libcublasLt.so.* | ld-linux*) ;;
    *) cp -L "$from" "$dir/lib/$name" ;;
    esac
done

# newest FILE PREFIX: the newest version of symbols with this prefix that the file needs.
newest() { { readelf -W --version-info "$1" | grep -o "Name: $2_[0-9.]*" | sed "s/.*_//" || true; } | sort -uV | tail -n 1; }
needs=2.0
for f in "${programs[@]/#/$dir/}" "$dir"/lib/*; do
    v=$(newest "$f" GLIBC)
    printf '%-32s %8d KB  GLIBC %-6s GLIBCXX %-8s CXXABI %s\n' "${f#"$dir"/}" $(($(stat -c %s "$f") / 1024)) "${v:--}" "$(newest "$f" GLIBCXX)" "$(newest "$f" CXXABI)"
    needs=$(printf '%s\n' "$needs" "${v:-2.0}" | sort -V | tail -n 1)
done
echo "the newest symbols of glibc are of $needs; expected: of $glibc_newest or older"
[ "$(printf '%s\n' "$needs" "$glibc_newest" | sort -V | tail -n 1)" = "$glibc_newest" ] || fail "these programs need a glibc that the GPU's machine may not have: pack on an older system"
missing=$(LD_LIBRARY_PATH=$dir/lib ldd "${programs[@]/#/$dir/}" | grep 'not found' || true)
[ -z "$missing" ] || fail "not found here: $missing"
"$dir/quire" --version
python3 "$here/tools/cuda_fits.py" "$dir/libquire_cuda.so" --archs 90 | tail -n 1 || true # 77 where there is no cuobjdump

# What a build there would need, should nothing of this start.
"$here/tools/deps.sh" unpack "$dir" >"$build/unpack.txt" 2>&1 || { tail -n 3 "$build/unpack.txt" >&2; echo "gpu_pack.sh: without packages: a build on that machine then needs its own" >&2; }
for m in "$data"/models/*/golden.jsonl; do
    [ -f "$m" ] || continue
    mkdir -p "$dir/goldens"
    cp -rL "${m%/golden.jsonl}" "$dir/goldens/"
done
[ -d "$dir/goldens" ] || echo "gpu_pack.sh: no models with known answers in $data: the step goldens will be skipped" >&2
chmod -R u+w "$dir"

{
    echo "packed $(date -u +%F) at $(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo '?'); $(gcc --version | head -n 1); $(nvcc --version | sed -n 's/.*release //p'); glibc $needs"
    echo "sources $(here=$here out=- pack=- build=$build models=- quire=- wanted_models= path_before= bash "$here/tools/gpu_steps.sh" sources)"
} >"$dir/packed.txt"
cat "$dir/packed.txt"
mib() { echo $((($1 + 1048575) / 1048576)); }
of_dir=$(mib "$(du -sb "$dir" | cut -f 1)")
of_tree=$(mib "$(cd "$here" && git ls-files -co --exclude-standard -z | xargs -0 du -cb 2>/dev/null | tail -n 1 | cut -f 1)")
echo "$of_dir MiB in $dir, $of_tree MiB of the tree: together $((of_dir + of_tree)) of the $room_mib MiB that may travel"
[ $((of_dir + of_tree)) -le $room_mib ] || fail "too large to travel"
