#!/usr/bin/env bash
# Tests and measures on a GPU machine without a network, from a bundle of
# tools/make_gpu_bundle.sh.
#   bash run.sh                  # all steps, one after the other
#   bash run.sh tests bench      # some of: check tests sanitizer bench full long bpe
# OUT is where files go (default: out); every step of a benchmark stops after MINUTES
# (default 9) and goes on where it was when it is run again.
# Needed: an NVIDIA GPU with its driver, Python with NumPy, numba and CuPy; compute-sanitizer
# and torch are used where they are.
set -euo pipefail
cd "$(dirname "$0")"
out=$(realpath -m "${OUT:-out}")
mkdir -p "$out"
export PYTHONPATH=$PWD/wfstdec:$PWD/site PYTHONUNBUFFERED=1
export NUMBA_CACHE_DIR=${NUMBA_CACHE_DIR:-$PWD/numba_cache}
if [ ! -d site ]; then
    python3 -m pip install --quiet --disable-pip-version-check --no-index --no-deps \
        --target site wheels/*.whl
fi
cd wfstdec

bench() {
    local name=$1
    shift
    python3 tools/bench_gpu.py --output "$out/gpu-$name.json" --minutes "${MINUTES:-9}" \
        --resume "$@" 2>&1 | tee -a "$out/gpu-$name.log"
}

step() {
    echo "--- $1"
    case $1 in
    check)
        nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
        python3 -c '
import cupy, numba, numpy, sys
print(sys.version, numpy.__version__, numba.__version__, cupy.__version__)
print(cupy.arange(3).sum(), "on", cupy.cuda.Device())
from wfstdec.wfst import cuda
device = cuda.CupyDevice()
print(device.num_blocks, "blocks,", device.shared_slots, "slots in shared memory,",
      device.budget.limit >> 20, "MiB")
'
        ;;
    tests) python3 -m pytest -q -m gpu -p no:cacheprovider ;;
    sanitizer)
        if ! command -v compute-sanitizer >/dev/null; then
            echo "no compute-sanitizer here"
            return
        fi
        for tool in memcheck racecheck; do
            compute-sanitizer --tool $tool --error-exitcode 9 python3 -m pytest -q -m gpu \
                -p no:cacheprovider tests/test_wfst_invariance.py -k take_turns
        done
        ;;
    bench) bench dev ;;
    full) bench full --profile full ;;
    long) bench long --long 60 600 --batches 1 8 --settings 7000:13 10000:17 ;;
    bpe)
        [ ! -d ../shared/bpe ] || bench bpe --sets ../shared/bpe --settings 7000:13 3000:10
        ;;
    *)
        echo "step '$1', expected check, tests, sanitizer, bench, full, long or bpe" >&2
        return 2
        ;;
    esac
}

[ $# -gt 0 ] || set -- check tests sanitizer bench long bpe full
for name in "$@"; do
    step "$name"
done
