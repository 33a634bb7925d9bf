#!/usr/bin/env bash
# Tests and measures on a GPU machine without a network; made by tools/gpu/make_bundle.sh.
#   bash contact.sh --out OUT                            # the first contact, 9 minutes
#   bash contact.sh --out OUT --carried contact.tar.gz   # goes on where that one ended
#   bash contact.sh --out OUT --run sanitizers           # a second call
# Unpacks itself outside the checkout, once; OUT gets contact.tar.gz and report.txt.
# Needed: an NVIDIA GPU with its driver, Python with NumPy, numba and CuPy; ncu,
# compute-sanitizer, torch and matplotlib are used where they are.
set -euo pipefail
self=$(realpath "$0")
folder=${CONTACT_FOLDER:-${TMPDIR:-/tmp}/wfstdec-contact-$(id -u)-@KEY@}
if [ ! -f "$folder/complete" ]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    sed '1,/^exit 0 # what follows is packed$/d' "$self" | tar xz -C "$folder"
    if ls "$folder"/wheels/*.whl >/dev/null 2>&1; then
        timeout 120 python3 -m pip install --quiet --disable-pip-version-check --no-index \
            --no-deps --target "$folder/site" "$folder"/wheels/*.whl
    fi
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
