#!/usr/bin/env bash
# Checks and tests on a fresh machine: makes .venv, installs, runs ruff, mypy and pytest.
#   bash tools/test.sh [options of pytest]
# PEERS lists the extras that tests compare with; where they cannot be installed, those
# tests are skipped, unless WFSTDEC_REQUIRE_PEERS is set.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/venv.sh
install_extras dev,test
if ! install_extras "${PEERS:-peers,pynini,sentencepiece}"; then
    echo "the peers could not be installed: tests that need them are skipped" >&2
    [ -z "${WFSTDEC_REQUIRE_PEERS:-}" ]
fi
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
.venv/bin/python -m pytest "$@"
