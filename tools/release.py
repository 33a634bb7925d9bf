"""Makes a release, wheels and sdist, looks into them and tries them as users would.

    python tools/release.py                          # Python 3.11, 3.12 and 3.13
    python tools/release.py --python 3.12 --output dist
    python tools/release.py --quick --python .venv/bin/python    # as CI does

The sdist is made of a copy of what git tracks. For each Python a fresh environment
makes a wheel of the sdist (whatever kind it is: pure, or with machine code in it),
installs it with the versions of constraints.txt and, far from the checkout, shows the
version and decodes the shipped recipe's first utterance; where this runs as root,
somebody else then does the same with root's installation. Nothing but the standard
library is needed, and an index to install from.
"""

from __future__ import annotations

import argparse
import configparser
import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
SOMEBODY = 65534
"""Another user than root, by number: nobody."""
COMPILED = (".kernel",)
"""What a wheel may have beyond the files of the package: machine code made for it."""
UNWANTED = ("tests/", "tools/", "notebooks/", ".ci/", "build/")
"""Folders of the checkout that no sdist has: they work in a checkout alone."""
TRY = """
import numpy as np, wfstdec, wfstdec.recipes as recipes
assert "site-packages" in wfstdec.__file__, wfstdec.__file__
recipe = recipes.find_recipe()
decoder = wfstdec.WfstDecoder(**recipes.inputs_of(recipe))
logprobs = np.load(recipe / "logprobs.npz")
print(decoder.decode([logprobs[logprobs.files[0]]])[0].text)
"""
SAID = "only unfortunately his own work never does get good"
"""What is heard there."""


class ReleaseError(Exception):
    """A release that must not go out; says why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Make, look, try; 1 where a release must not go out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--python", nargs="+", default=PYTHONS, help="versions, or interpreters")
    add("--output", type=Path, default=ROOT / "dist", help="for what is made")
    add("--quick", action="store_true", help="install, but decode nothing there")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="wfstdec_release_") as folder:
        work = Path(folder)
        work.chmod(0o755)  # somebody else looks into it
        try:
            pythons = [find_python(name) for name in args.python]
            release(pythons, args.output, work, quick=args.quick)
        except ReleaseError as error:
            print(f"release: {error}", file=sys.stderr)
            return 1
    return 0


def release(
    pythons: Sequence[Path], output: Path, work: Path, *, quick: bool = False
) -> None:
    """Make the sdist and the wheels for some interpreters, and try them.

    Args:
        pythons: Interpreters; the first also makes the sdist.
        output: Folder for the files, made where it is not there.
        work: An empty folder that other users may look into.
        quick: Decode nothing with what is installed.

    Raises:
        ReleaseError: Something is missing, or does not work.
    """
    output.mkdir(parents=True, exist_ok=True)
    files = tracked_files()
    source = work / "source"
    for name in files:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    makers = environment(pythons[0], work / "makers", ["build", "twine"])
    run([makers, "-m", "build", "--sdist", "--outdir", work / "made", source])
    [sdist] = (work / "made").iterdir()
    check_sdist(sdist, files)
    told(f"{sdist.name}: {sdist.stat().st_size / 1e6:.1f} MB")
    wheels = set()
    for python in pythons:
        wheel = make_wheel(python, sdist, work / f"for_{version_of(python)}")
        check_wheel(wheel, files)
        told(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
        try_wheel(python, wheel, work / f"fresh_{version_of(python)}", quick=quick)
        wheels.add(shutil.copy(wheel, output))
    run([makers, "-m", "twine", "check", "--strict", sdist, *sorted(wheels)])
    shutil.copy(sdist, output)


# ------------------------------------------------------------------- making
def find_python(name: str) -> Path:
    """An interpreter by its version, of the system first; or the one at a path.

    Raises:
        ReleaseError: There is none.
    """
    if name.count(".") != 1 or "/" in name:
        return Path(name).absolute()  # the link, not what it leads to: environments
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [Path("/usr/bin"), Path("/usr/local/bin")]
    found += sorted(path / "bin" for path in pyenv.glob(f"{name}.*"))
    found += map(Path, os.get_exec_path())
    for folder in found:
        python = folder / f"python{name}"
        if python.exists() and version_of(python) == name:
            return python
    raise ReleaseError(f"found no Python {name}; name an interpreter by --python")


def version_of(python: Path) -> str:
    """An interpreter's version, like 3.12; empty where it does not run."""
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return done.stdout.strip()


def tracked_files() -> list[str]:
    """Files that git tracks, as they lie in the checkout."""
    listed = run(["git", "-C", ROOT, "ls-files", "-z"]).split("\0")
    return sorted(name for name in listed if (ROOT / name).is_file())


def environment(
    python: Path, folder: Path, packages: Sequence[str | Path], *, pinned: bool = True
) -> Path:
    """A fresh environment with some packages; its interpreter."""
    run([python, "-m", "venv", folder])
    inside = folder / "bin" / "python"
    options = ["--constraint", ROOT / "constraints.txt"] if pinned else ["--no-compile"]
    run([inside, "-m", "pip", "install", "--quiet", *options, *packages])
    return inside


def make_wheel(python: Path, sdist: Path, folder: Path) -> Path:
    """The wheel that pip makes of an sdist, apart from whatever is installed."""
    begin = time.perf_counter()
    run([python, "-m", "venv", folder / "venv"])
    pip = [folder / "venv" / "bin" / "python", "-m", "pip", "wheel", "--quiet"]
    run([*pip, "--no-deps", "--wheel-dir", folder / "made", sdist])
    [wheel] = (folder / "made").iterdir()
    told(f"Python {version_of(python)}: made in {time.perf_counter() - begin:.0f} s")
    return wheel


# ------------------------------------------------------------------ looking
def check_sdist(sdist: Path, files: Iterable[str]) -> None:
    """Check that an sdist has all of wheels, and nothing that needs a checkout.

    Raises:
        ReleaseError: It has not, or has.
    """
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    compare(
        sdist.name,
        names,
        wanted={*packaged(files), "README.md", "LICENSE", "setup.cfg"},
        allowed=lambda name: not name.startswith(UNWANTED),
    )


def check_wheel(wheel: Path, files: Iterable[str]) -> None:
    """Check that a wheel has package, recipe and metadata, and nothing else.

    Raises:
        ReleaseError: It has not, or has.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [info] = {
            n.split("/")[0] for n in names if n.split("/")[0].endswith(".dist-info")
        }
        metadata = archive.read(f"{info}/METADATA").decode()
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
    data = info.replace(".dist-info", ".data") + "/data/share/wfstdec/"
    moved = {n: data + n if n.startswith("graphs/") else n for n in packaged(files)}
    compare(
        wheel.name,
        names,
        wanted={*moved.values(), f"{info}/licenses/LICENSE"},
        allowed=lambda name: name.startswith(f"{info}/") or name.endswith(COMPILED),
    )
    if "wfstdec = wfstdec.cli.main:main" not in entry_points:
        raise ReleaseError(f"{wheel.name}: no command: {entry_points!r}")
    check_metadata(wheel.name, metadata)


def check_metadata(place: str, metadata: str) -> None:
    """Check that metadata say what setup.cfg and the package say.

    Raises:
        ReleaseError: It says something else.
    """
    declared = configparser.ConfigParser()
    declared.read(ROOT / "setup.cfg")
    lines = declared["options"]["install_requires"].splitlines()
    required = {line.split()[0] for line in lines if line and line[0] != "#"}
    source = (ROOT / "wfstdec" / "__init__.py").read_text("utf-8")
    version = source.partition('__version__ = "')[2].partition('"')[0]
    told_of = email.message_from_string(metadata)
    needs = [
        need for need in told_of.get_all("Requires-Dist") if "extra ==" not in need
    ]
    found = {
        "Name": told_of["Name"],
        "Version": told_of["Version"],
        "Requires-Python": set(str(told_of["Requires-Python"]).split(",")),
        "Requires-Dist": {re.split(r"[<>=!~ ;(]", need)[0] for need in needs},
        "Provides-Extra": set(told_of.get_all("Provides-Extra")),
        "Description-Content-Type": told_of["Description-Content-Type"],
    }
    expected = {
        "Name": "wfstdec",
        "Version": version,
        "Requires-Python": set(
            declared["options"]["python_requires"].replace(" ", "").split(",")
        ),
        "Requires-Dist": required,
        "Provides-Extra": {
            name.replace("_", "-") for name in declared["options.extras_require"]
        },
        "Description-Content-Type": "text/markdown",
    }
    for field, value in found.items():
        if value != expected[field]:
            raise ReleaseError(
                f"{place}: {field} is {value!r}, expected {expected[field]!r}"
            )


def packaged(files: Iterable[str]) -> Iterator[str]:
    """Select the checkout's files that users get."""
    for name in files:
        if name.startswith(("wfstdec/", "graphs/librispeech_demo/")):
            yield name


def compare(
    place: str, names: set[str], *, wanted: set[str], allowed: Callable[[str], bool]
) -> None:
    """Raise if wanted names are missing, or others are there that are not allowed."""
    if missing := sorted(wanted - names):
        raise ReleaseError(f"{place} lacks {missing}")
    if beside := sorted(name for name in names - wanted if not allowed(name)):
        raise ReleaseError(f"{place} has {beside}, expected none of them")


# ------------------------------------------------------------------- trying
def try_wheel(python: Path, wheel: Path, folder: Path, *, quick: bool = False) -> None:
    """Install it into a fresh environment and use it there, as two users.

    Args:
        python: For the environment.
        wheel: The wheel.
        folder: Of the environment, not there yet.
        quick: Only see that it is installed and what it says of itself.

    Raises:
        ReleaseError: It does not work.
    """
    inside = environment(python, folder, [wheel])
    run([inside, "-m", "pip", "check"])
    users: dict[str, int | None] = {"the user who installed it": None}
    if os.geteuid() == 0:
        if readable_by_all(python.resolve()):
            users["another user"] = SOMEBODY
        else:
            told(f"{python}: in a folder of root's alone, not tried as another user")
    for who, user in users.items():
        home = folder / f"home_{user}"
        home.mkdir()
        os.chown(home, -1 if user is None else user, -1)
        begin = time.perf_counter()
        version = use([inside.parent / "wfstdec", "--version"], home, user)
        if wheel.name.split("-")[1] not in version:
            raise ReleaseError(f"{wheel.name}: wfstdec --version says {version!r}")
        if quick:
            return
        text = use([inside, "-I", "-c", TRY], home, user)
        if text != SAID:
            raise ReleaseError(f"{wheel.name}: {who} heard {text!r}, expected {SAID!r}")
        told(f"{wheel.name}: works for {who}, {time.perf_counter() - begin:.0f} s")


def readable_by_all(path: Path) -> bool:
    """Tell whether a path leads through no folder that its owner keeps closed."""
    return all(part.stat().st_mode & 0o005 == 0o005 for part in path.parents)


def use(command: Sequence[str | Path], home: Path, user: int | None) -> str:
    """Run what is installed, far from the checkout, and return what it says."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NUMBA"))
    }
    as_user = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    return run(command, cwd=home, env=kept | {"HOME": str(home)}, **as_user).strip()


def run(command: Sequence[str | Path], **options: Any) -> str:
    """Run a program; what it printed.

    Raises:
        ReleaseError: It failed; with the last of what it said.
    """
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-2000:]
        line = " ".join(map(str, command))
        raise ReleaseError(f"{line!r} ended with {done.returncode}:\n{said}")
    return done.stdout


def told(line: str) -> None:
    """Say how far it is."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
