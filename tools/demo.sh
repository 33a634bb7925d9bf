#!/usr/bin/env bash
# Decodes real speech on a fresh machine: makes .venv, installs, runs `wfstdec demo`.
#   bash tools/demo.sh [options of wfstdec demo]
# Its second half, from audio, needs an acoustic model (22.6 MB); it is left out where
# that cannot be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/venv.sh
install_extras ""
install_extras audio,hama ||
    echo "the acoustic model could not be installed: the demo goes without audio" >&2
exec .venv/bin/wfstdec demo "$@"
