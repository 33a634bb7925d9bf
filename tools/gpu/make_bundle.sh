#!/usr/bin/env bash
# Packs what a GPU machine without a network needs to test and to measure into one file
# that runs itself:
#   bash tools/gpu/make_bundle.sh contact.sh
# there:
#   bash contact.sh --out OUT                   # the first of three calls, all of them
#                                               # in tools.gpu.first_contact
# Here python3 has to have what wfstdec needs, where there is data to be cut.
# Environment:
#   PYTHON_VERSION  of the other machine, 312 by default; riva-asrlib-decoder has wheels
#                   for 311 and 312
#   DATA            the project's data, ../shared/data by default: 600 utterances of it,
#                   as the largest batch has 512; without it the demo's 40 are measured
#   BPE             a folder that tools.data.make_synthetic wrote: 60 of its utterances
#   WHEELS          "none": no packages, where the other machine has them; or a folder of
#                   wheels that were downloaded before
#   MOST_MB         what it may take; by default 64 MiB less a checkout that travels too
# Not in it, for their size: CuPy with CUDA's libraries (cupy-cuda12x or cupy-cuda13x, as
# the driver is), NumPy, numba, and torch, whose tests are skipped where it is missing.
set -euo pipefail
out=$(realpath -m "${1:?name the file to write}")
version=${PYTHON_VERSION:-312}
cd "$(dirname "$0")/../.."
checkout=$({ git ls-files -z -co --exclude-standard | xargs -0 du -cb 2>/dev/null || true; } |
    tail -n 1 | cut -f 1)
most=$((${MOST_MB:-$(((64 * 1024 * 1024 - checkout) / 1000000))} * 1000 * 1000))
data=${DATA:-../shared/data}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$(dirname "$out")"
mkdir "$folder/wfstdec"
git archive HEAD -- . ':!graphs/transducer_demo' ':!graphs/attention_demo' ':!notebooks' ':!tools/bench_runs' |
    tar x -C "$folder/wfstdec"
git rev-parse --short HEAD >"$folder/commit"

download() {
    python3 -m pip download --quiet --disable-pip-version-check --only-binary :all: \
        --dest "$folder/wheels" --python-version "$version" \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
        --platform manylinux2014_x86_64 "$@"
}
if [ -d "${WHEELS:-}" ]; then
    mkdir "$folder/wheels"
    cp "$WHEELS"/*.whl "$folder/wheels"
elif [ "${WHEELS:-}" != none ]; then
    download --constraint constraints.txt kaldiio kaldifst kaldialign tqdm \
        pytest iniconfig pluggy packaging pygments
    rm -f "$folder"/wheels/numpy-*  # is there
    download --no-deps riva-asrlib-decoder==0.4.4 ||
        echo "no riva-asrlib-decoder for Python $version: it will not be compared" >&2
    download --no-deps nemo-toolkit==3.0.0 ||
        echo "no nemo-toolkit for Python $version: it will not be compared" >&2
fi

if [ -d "$data" ]; then
    for file in tokens.txt lexicon/lexicon_ipa.txt lm/lm_books.3g_pruned.arpa.gz \
        lm/lm_books.3g.arpa.gz; do
        install -D -m 644 "$data/$file" "$folder/shared/data/$file"
    done
    python3 -m tools.data.thin_set "$data/posteriors/librispeech_dev.npz" \
        "$folder/shared/data/posteriors" 600
    # The demo's language model is one of these, and no need to be there twice.
    lm=lm/lm_books.3g_pruned.arpa.gz demo=wfstdec/graphs/librispeech_demo/lm.arpa.gz
    if cmp -s "$folder/$demo" "$folder/shared/data/$lm"; then
        ln -sf "../../../$demo" "$folder/shared/data/$lm"
    fi
fi
if [ -n "${BPE:-}" ]; then
    python3 -m tools.data.thin_set "$BPE" "$folder/shared/bpe" 60
fi

packed=$(mktemp)
tar czf "$packed" -C "$folder" .
key=$(sha256sum "$packed" | cut -c1-12)
{
    sed "s/@KEY@/$key/" tools/gpu/bundle_run.sh
    cat "$packed"
} >"$out"
rm "$packed"
size=$(stat -c %s "$out")
echo "$out: $((size / 1000000)) MB; the machine has to have Python ${version:0:1}.${version:1}," \
    "NumPy, numba and CuPy for its driver" >&2
if [ "$size" -gt "$most" ]; then
    echo "that is more than $((most / 1000000)) MB: leave something out" >&2
    exit 1
fi
