#!/usr/bin/env bash
# Decodes real speech on a fresh machine: makes .venv, installs, runs `wfstdec demo`.
#   bash tools/demo.sh [options of wfstdec demo]
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/venv.sh
install_extras ""
exec .venv/bin/wfstdec demo "$@"
