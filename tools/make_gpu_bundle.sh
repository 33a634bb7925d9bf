#!/usr/bin/env bash
# Packs what a GPU machine without a network needs to test and to measure:
#   bash tools/make_gpu_bundle.sh bundle.tar [python version, as on that machine: 312]
# There: tar xf bundle.tar && bash run.sh    # installs, runs `pytest -m gpu`, measures
# It has to have a CUDA 13 driver, and CuPy's CUDA libraries or a toolkit.
set -euo pipefail
out=$(realpath -m "${1:?name the file to write}")
version=${2:-312}
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
git archive HEAD | tar x -C "$folder"
python3 -m pip download --quiet --only-binary :all: --dest "$folder/wheels" \
    --python-version "$version" --platform manylinux_2_28_x86_64 \
    --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    --constraint constraints.txt \
    kaldiio kaldifst kaldialign tqdm pytest iniconfig pluggy packaging pygments
cat >"$folder/run.sh" <<'RUN'
#!/usr/bin/env bash
# Needs Python with numpy, numba, setuptools and CuPy; the rest is here.
set -euo pipefail
cd "$(dirname "$0")"
python3 -m pip install --quiet --no-index --find-links wheels \
    kaldiio kaldifst kaldialign tqdm pytest
export PYTHONPATH=$PWD
python3 -m pytest -q -m gpu
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        compute-sanitizer --tool $tool --error-exitcode 9 \
            python3 -m pytest -q -m gpu tests/test_wfst_invariance.py -k take_turns
    done
fi
recipe=graphs/librispeech_demo
python3 -c 'from wfstdec.cli.main import main; main()' build --tokens $recipe/tokens.txt \
    --lexicon $recipe/lexicon.txt.gz --arpa $recipe/lm.arpa.gz --separator '<wb>' \
    --output graph.npz
python3 tools/bench_gpu.py graph.npz $recipe/logprobs.npz --output "${OUT:-.}/run.jsonl"
RUN
tar cf "$out" -C "$folder" .
du -h "$out"
