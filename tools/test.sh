#!/usr/bin/env bash
# Checks and tests on a fresh machine: makes .venv, installs, runs ruff, mypy and pytest.
#   bash tools/test.sh [options of pytest]
# All cores run tests; `-n 0` is one process. Of the tests marked `share` a twelfth runs, as
# the commit's hash says: `--share N` repeats one, `--share all` runs every test.
# PEERS lists the extras that tests compare with; where one cannot be installed (kenlm is
# compiled: a C++ compiler, cmake), its tests are skipped, unless WFSTDEC_REQUIRE_PEERS is
# set. pyctcdecode is a peer that is no extra: it is installed without what it asks for.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/venv.sh
peers=${PEERS:-peers trie-peers pynini sentencepiece}
whole=dev,test
for extra in $peers; do
    [ "$extra" = pyctcdecode ] || whole+=,$extra
done
mkdir -p build
install_extras ""
# Common kernels are compiled first, by all cores: workers would compile them twice.
# Meanwhile pip unpacks.
.venv/bin/python -m wfstdec warm-up &
warming=$! # by %1 bash no longer knows a job that has ended
trap 'kill "$warming" 2>/dev/null' EXIT
echo "installing wfstdec[$whole] into .venv (log: build/install.log)" >&2
# One call for all extras takes as long as one for one of them.
if install_extras "$whole" 2>build/install.log; then
    [[ " $peers " == *" pyctcdecode "* ]] && peers=pyctcdecode || peers=
else
    install_extras dev,test
fi
for extra in $peers; do
    log=.venv/$extra.log
    echo "installing $extra (log: $log)" >&2
    install=install_extras
    [ "$extra" != pyctcdecode ] || install=install_pyctcdecode
    if ! "$install" "$extra" >"$log" 2>&1; then
        tail -n 3 "$log" >&2
        echo "it could not be installed: tests that need it are skipped" >&2
        [ -z "${WFSTDEC_REQUIRE_PEERS:-}" ] || exit 1
    fi
done
# First one process collects: whatever is imported is then compiled to bytecode already,
# where each worker would do it anew. mypy has the other core, and ends during the tests.
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy >build/mypy.log 2>&1 &
typing=$!
trap 'kill "$warming" "$typing" 2>/dev/null' EXIT
# What does not collect fails again below, where it is shown.
.venv/bin/python -m pytest -n 0 --collect-only -q >build/collect.log 2>&1 || true
# Again where it was cut off because a package it uses was installed anew.
wait "$warming" || .venv/bin/wfstdec warm-up
trap 'kill "$typing" 2>/dev/null' EXIT
# Files in the order of tests/support/spread.py, and a worker more than there are cores:
# tests wait for sockets, processes and Ray. Linear algebra has the worker's core alone,
# which is set behind nproc, since that goes by OMP_NUM_THREADS. A worker that dies is not
# replaced: pytest-xdist would wait for ever for some of the tests it had.
workers=$(($(nproc) + 1))
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
.venv/bin/python -m pytest -n "$workers" --dist loadfile --no-loadscope-reorder \
    --max-worker-restart 0 "$@"
if ! wait "$typing"; then
    cat build/mypy.log
    exit 1
fi
trap - EXIT
cat build/mypy.log
