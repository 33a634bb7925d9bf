#!/usr/bin/env bash
# Tests and measures on a GPU machine without a network; made by tools/gpu/make_bundle.sh.
# Three calls, ten minutes at most each, and 20 seconds that are of use by themselves:
#   bash contact.sh --out OUT --steps probe              # what the device is and does
#   bash contact.sh --out OUT                            # probe; search and tests
#   bash contact.sh --out OUT --run times --carried contact.tar.gz
#                                                        # phases, riva, NeMo
#   bash contact.sh --out OUT --run sanitizers --carried contact.tar.gz
# --carried is the archive that the call before brought home: this one goes on there.
# Unpacks itself outside the checkout, once; OUT gets contact.tar.gz, report.txt
# and probe.jsonl.
# Needed: an NVIDIA GPU with its driver, Python with NumPy, numba and CuPy; ncu,
# compute-sanitizer, torch and matplotlib are used where they are.
set -euo pipefail
self=$(realpath "$0")
folder=${CONTACT_FOLDER:-${TMPDIR:-/tmp}/wfstdec-contact-$(id -u)-@KEY@}
if [ ! -f "$folder/complete" ]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    sed '1,/^exit 0 # what follows is packed$/d' "$self" | tar xz -C "$folder"
    # One by one: a wheel that does not fit here is left out, and those that need it say so.
    for wheel in "$folder"/wheels/*.whl; do
        [ -e "$wheel" ] || continue
        timeout 60 python3 -m pip install --quiet --disable-pip-version-check --no-index \
            --no-deps --target "$folder/site" "$wheel" ||
            echo "left out, pip does not install it: ${wheel##*/}" >&2
    done
    touch "$folder/complete"
fi
export PYTHONPATH="$folder/wfstdec:$folder/site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export NUMBA_CACHE_DIR=${NUMBA_CACHE_DIR:-$folder/numba_cache}
export CUPY_CACHE_DIR=${CUPY_CACHE_DIR:-$folder/cupy_cache}
WFSTDEC_COMMIT=$(cat "$folder/commit")
export WFSTDEC_COMMIT
from=$PWD
cd "$folder/wfstdec"
status=0
python3 -m tools.gpu.first_contact --relative-to "$from" "$@" || status=$?
exit $status
exit 0 # what follows is packed
