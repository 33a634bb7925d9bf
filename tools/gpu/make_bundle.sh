#!/usr/bin/env bash
# Packs what a GPU machine without a network needs to test and to measure, in 60 MB:
#   bash tools/gpu/make_bundle.sh bundle.tar
# there:
#   tar xf bundle.tar && bash run.sh check tests bench          # all steps: see run.sh
# Environment:
#   PYTHON_VERSION  of the other machine, 312 by default; riva-asrlib-decoder has wheels
#                   for 311 and 312
#   DATA            the project's data, ../shared/data by default; without it the demo's
#                   40 utterances are measured
#   BPE             a folder that tools.data.make_synthetic wrote: 60 of its utterances
# Not in it, for their size: CuPy with CUDA's libraries (cupy-cuda12x or cupy-cuda13x, as
# the driver is), NumPy, numba, and torch, whose tests are skipped where it is missing.
set -euo pipefail
out=$(realpath -m "${1:?name the file to write}")
version=${PYTHON_VERSION:-312}
most=$((60 * 1000 * 1000))
cd "$(dirname "$0")/../.."
data=${DATA:-../shared/data}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$(dirname "$out")"
mkdir "$folder/wfstdec"
git archive HEAD | tar x -C "$folder/wfstdec"
cp tools/gpu/bundle_run.sh "$folder/run.sh"
git rev-parse --short HEAD >"$folder/commit"

download() {
    python3 -m pip download --quiet --disable-pip-version-check --only-binary :all: \
        --dest "$folder/wheels" --python-version "$version" \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
        --platform manylinux2014_x86_64 "$@"
}
download --constraint constraints.txt kaldiio kaldifst kaldialign tqdm \
    pytest iniconfig pluggy packaging pygments
rm -f "$folder"/wheels/numpy-*  # is there
download --no-deps riva-asrlib-decoder==0.4.4 ||
    echo "no riva-asrlib-decoder for Python $version: nothing will be compared with it" >&2

if [ -d "$data" ]; then
    for file in tokens.txt lexicon/lexicon_ipa.txt lm/lm_books.3g_pruned.arpa.gz \
        lm/lm_books.3g.arpa.gz posteriors/librispeech_dev.{npz,txt}; do
        install -D -m 644 "$data/$file" "$folder/shared/data/$file"
    done
fi
if [ -n "${BPE:-}" ]; then
    python3 -m tools.data.thin_set "$BPE" "$folder/shared/bpe" 60
fi

tar cf "$out" -C "$folder" .
size=$(stat -c %s "$out")
echo "$out: $((size / 1000000)) MB; the machine has to have Python ${version:0:1}.${version:1}," \
    "NumPy, numba and CuPy for its driver" >&2
if [ "$size" -gt "$most" ]; then
    echo "that is more than $((most / 1000000)) MB: leave something out" >&2
    exit 1
fi
