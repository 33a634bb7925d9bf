# Sourced by demo.sh and test.sh, in the repository's root.
#   install_extras a,b    makes .venv if it is not there and installs wfstdec[a,b] in it
#   install_pyctcdecode   installs it there, which asks for numpy<2 and works with 2
# PYTHON chooses the interpreter: PYTHON=python3.12 bash tools/demo.sh

# pip compiles no sources here, so Python must: numba takes 0.5 s less of each process,
# torch 1.5 s.
unset PYTHONDONTWRITEBYTECODE

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
            2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "found no Python 3.11 to 3.14 (tried ${PYTHON:-python3 and python3.11 to 3.14});" \
        "set PYTHON to one" >&2
    return 1
}

install_extras() {
    local extras=$1 stamp
    if [ ! -x .venv/bin/python ]; then
        local python
        python=$(find_python) || return
        echo "making .venv with $("$python" --version)" >&2
        "$python" -m venv .venv || return
    fi
    stamp=.venv/installed-$(cat setup.cfg pyproject.toml constraints.txt <(echo "$extras") |
        cksum | tr ' ' '-')
    [ -e "$stamp" ] && return
    echo "installing wfstdec${extras:+[$extras]} into .venv" >&2
    # Python compiles what is imported; pip would compile all of torch, a minute or two.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
        --constraint constraints.txt --editable ".${extras:+[$extras]}" || return
    touch "$stamp"
}

install_pyctcdecode() {
    local stamp=.venv/installed-pyctcdecode-0.5.0
    [ -e "$stamp" ] && return
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps \
        pyctcdecode==0.5.0 pygtrie || return
    touch "$stamp"
}
