#!/usr/bin/env bash
# Tests and measures on a GPU machine without a network, from a bundle of
# tools/gpu/make_bundle.sh.
#   bash run.sh                  # all steps, one after the other
#   bash run.sh tests bench      # some of: check tests sanitizer bench threads long bpe full
# OUT is where files go (default: out). They are kept here too, under kept/: a benchmark
# stops after MINUTES (default 9) and goes on where it was when its step is run again,
# in an empty OUT as well.
# Needed: an NVIDIA GPU with its driver, Python with NumPy, numba and CuPy; nvidia-smi,
# compute-sanitizer and torch are used where they are.
set -euo pipefail
cd "$(dirname "$0")"
out=$(realpath -m "${OUT:-out}")
kept=$PWD/kept
mkdir -p "$out" "$kept"
cp -n "$kept"/* "$out" 2>/dev/null || true
trap 'cp "$out"/gpu-* "$kept" 2>/dev/null || true' EXIT
export PYTHONPATH=$PWD/wfstdec:$PWD/site PYTHONUNBUFFERED=1
export NUMBA_CACHE_DIR=${NUMBA_CACHE_DIR:-$PWD/numba_cache}
export CUPY_CACHE_DIR=${CUPY_CACHE_DIR:-$PWD/cupy_cache}
# What else is installed there is not for these tests.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
if [ ! -d site ]; then
    python3 -m pip install --quiet --disable-pip-version-check --no-index --no-deps \
        --target site.part wheels/*.whl
    mv site.part site
fi
cd wfstdec

if [ -f ../commit ]; then
    export WFSTDEC_COMMIT=$(cat ../commit)
fi
status=0

# What fails keeps nothing else from running: logged NAME COMMAND...
logged() {
    local name=$1
    shift
    "$@" 2>&1 | tee -a "$out/gpu-$name.log" || status=1
}

bench() {
    local name=$1
    shift
    logged "$name" python3 -m tools.bench.gpu --output "$out/gpu-$name.json" \
        --minutes "${MINUTES:-9}" --resume "$@"
}

step() {
    echo "--- $1"
    case $1 in
    check)
        nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv || true
        logged check python3 -m tools.gpu.check
        ;;
    tests)
        logged tests python3 -m pytest -q --maxfail=8 -m gpu -p no:cacheprovider \
            --continue-on-collection-errors --durations=5
        ;;
    sanitizer)
        if ! command -v compute-sanitizer >/dev/null; then
            echo "no compute-sanitizer here"
            return
        fi
        # initcheck also names whole buffers that are copied, of which parts were written
        for tool in memcheck racecheck synccheck initcheck; do
            echo "$tool"
            logged sanitizer compute-sanitizer --tool $tool --error-exitcode 9 --print-limit 20 \
                python3 tests/support/cuda_emulation/sanitized.py 12 gpu
        done
        ;;
    bench) # first what is asked for most: throughput and latency at one setting
        bench dev --settings 7000:13 --boosted 0
        bench dev
        ;;
    threads) # how many make a block
        bench threads --settings 7000:13 --boosted 0 --dtypes float32 --no-riva \
            --batches 1 8 128 400 --threads 512 256 128 64 32
        ;;
    full) bench full --profile full ;;
    long) bench long --long 60 600 --batches 1 8 --settings 7000:13 10000:17 ;;
    bpe)
        [ ! -d ../shared/bpe ] || bench bpe --sets ../shared/bpe --settings 7000:13 3000:10
        ;;
    *)
        echo "step '$1', expected check, tests, sanitizer, bench, threads, long, bpe or" \
            "full" >&2
        return 2
        ;;
    esac
}

[ $# -gt 0 ] || set -- check tests sanitizer bench threads long bpe full
for name in "$@"; do
    step "$name"
done
exit $status
