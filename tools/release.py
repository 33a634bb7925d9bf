"""Make all files of a release but upload none; check and try them as users would.

    python tools/release.py                     # all of Python 3.11 to 3.14 found here
    python tools/release.py --python 3.12 --output dist
    python tools/release.py --quick --python .venv/bin/python    # as CI does

    wfstdec-V.tar.gz                sdist of what git tracks
    wfstdec-V-py3-none-any.whl      compiles kernels at first use
    wfstdec-V-cp3xx-...-manylinux_2_17_x86_64.whl   compiled kernels of one Python
    RELEASE_NOTES.md                the version's section of CHANGELOG.md
    SHA256SUMS                      of all these

Each wheel is built from the sdist and installed with the versions of constraints.txt
into a fresh environment; downloads and space have limits. There it decodes the shipped
recipe's first utterance; run as root, another user does the same. `--quick` makes no
wheels with kernels and decodes nothing. Only the standard library and a package index
are needed.
"""

from __future__ import annotations

import argparse
import configparser
import email
import hashlib
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
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SOMEBODY = 65534
"""Another user than root, by number: nobody."""
COMPILED = ".kernel"
"""Machine code, which only a wheel for one Python has beyond the package's files."""
PLATFORM = "manylinux_2_17_x86_64"
"""Kernels are no shared libraries; they need Python, numba, memcpy and libm's exp."""
FEWEST_KERNELS = 60
"""76 on Python 3.11 with numba 0.68."""
OF_VENV = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-")
"""What a fresh environment has in its site-packages."""
LARGEST_WHEEL_MB, MOST_DOWNLOADED_MB, MOST_INSTALLED_MB = 12, 110, 330
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
TEXT = "only unfortunately his own work never does get good"
"""The text of that utterance."""


class ReleaseError(Exception):
    """A release that must not be published, and why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Make, check and try a release; return 1 if it must not be published."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--python", nargs="+", help="versions or interpreters (default: all found)")
    add("--output", type=Path, default=ROOT / "dist", help="folder (default: dist)")
    add("--quick", action="store_true", help="no kernels, no decoding")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="wfstdec_release_") as folder:
        work = Path(folder)
        work.chmod(0o755)  # somebody else looks into it
        try:
            pythons = list(map(find_python, args.python or found_pythons()))
            release(pythons, args.output, work, quick=args.quick)
        except ReleaseError as error:
            print(f"release: {error}", file=sys.stderr)
            return 1
    return 0


def release(
    pythons: Sequence[Path], output: Path, work: Path, *, quick: bool = False
) -> None:
    """Make the sdist, the wheels, notes and checksums, and try the wheels.

    Args:
        pythons: Interpreters; the first also makes sdist and pure wheel.
        output: Folder for the files, created if missing.
        work: An empty folder that other users may read.
        quick: Make no wheels with kernels, and decode nothing.

    Raises:
        ReleaseError: Something is missing, too large, or does not work.
    """
    notes = notes_of(declared_version())
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
    report(f"{sdist.name}: {sdist.stat().st_size / 1e6:.1f} MB")
    made = [Path(shutil.copy(sdist, output))]
    wanted = [(pythons[0], False)]
    wanted += [(python, True) for python in pythons if not quick]
    for python, compiled in wanted:
        folder = work / f"{version_of(python)}_{'compiled' if compiled else 'pure'}"
        wheel = make_wheel(python, sdist, folder, compiled=compiled)
        check_wheel(wheel, files)
        check_kernels(wheel, version_of(python) if compiled else None)
        try_wheel(python, wheel, folder / "fresh", quick=quick)
        made.append(Path(shutil.copy(wheel, output)))
    run([makers, "-m", "twine", "check", "--strict", *made])
    made.append(output / "RELEASE_NOTES.md")
    made[-1].write_text(notes, "utf-8")
    sums = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in made]
    (output / "SHA256SUMS").write_text("".join(sums), "utf-8")


def notes_of(version: str, changelog: Path = ROOT / "CHANGELOG.md") -> str:
    """Cut a version's section, without its heading, out of the changelog.

    Raises:
        ReleaseError: There is no changelog, or no text for this version.
    """
    text = changelog.read_text("utf-8") if changelog.is_file() else ""
    parts = re.split(r"^## \[(.+?)\].*\n", text, flags=re.M)
    notes = dict(zip(parts[1::2], parts[2::2], strict=True)).get(version, "").strip()
    if not notes:
        raise ReleaseError(
            f"{changelog.name}: no notes, expected a section '## [{version}]'"
        )
    return notes + "\n"


def declared_version() -> str:
    """The version that the package's source has."""
    source = (ROOT / "wfstdec" / "__init__.py").read_text("utf-8")
    return source.partition('__version__ = "')[2].partition('"')[0]


# ------------------------------------------------------------------- making
def found_pythons() -> list[str]:
    """Supported versions that this machine has; the others are reported."""
    found = []
    for name in PYTHONS:
        try:
            find_python(name)
        except ReleaseError as error:
            report(f"left out: {error}")
        else:
            found.append(name)
    if not found:
        raise ReleaseError(f"found no Python, expected one of {', '.join(PYTHONS)}")
    return found


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


def make_wheel(python: Path, sdist: Path, folder: Path, *, compiled: bool) -> Path:
    """The wheel that pip makes of an sdist, with kernels or pure, in isolation."""
    begin = time.perf_counter()
    run([python, "-m", "venv", folder / "venv"])
    pip = [folder / "venv" / "bin" / "python", "-m", "pip", "wheel", "--quiet"]
    if compiled:
        pip.append(f"--config-settings=--build-option=--plat-name={PLATFORM}")
    command = [*pip, "--no-deps", "--wheel-dir", folder / "made", sdist]
    run(command, env=os.environ | {"WFSTDEC_COMPILE": str(int(compiled))})
    [wheel] = (folder / "made").iterdir()
    size, took = wheel.stat().st_size / 1e6, time.perf_counter() - begin
    report(f"{wheel.name}: {size:.1f} MB, made in {took:.0f} s")
    if size > LARGEST_WHEEL_MB:
        raise ReleaseError(f"{wheel.name} is too large, expected {LARGEST_WHEEL_MB} MB")
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


def check_kernels(wheel: Path, version: str | None) -> None:
    """Check that tag and kernels are of one Python, or that a wheel is pure.

    Raises:
        ReleaseError: The tag is another, kernels are missing, or must not be there.
    """
    digits = (version or "").replace(".", "")
    tag = f"cp{digits}-cp{digits}-{PLATFORM}" if version else "py3-none-any"
    with zipfile.ZipFile(wheel) as archive:
        kernels = [name for name in archive.namelist() if name.endswith(COMPILED)]
    if not wheel.stem.endswith(f"-{tag}"):
        raise ReleaseError(f"{wheel.name}: another tag, expected {tag}")
    own = [name for name in kernels if f"/cpython-{digits}/" in name]
    fewest = FEWEST_KERNELS if version else 0
    if len(own) != len(kernels) or len(own) < fewest:
        raise ReleaseError(
            f"{wheel.name}: {len(kernels)} kernels, {len(own)} of Python {version}, "
            f"expected {f'at least {fewest} of it alone' if version else 'none'}"
        )


def check_metadata(place: str, metadata: str) -> None:
    """Check that metadata agree with setup.cfg and the package.

    Raises:
        ReleaseError: A field differs.
    """
    declared = configparser.ConfigParser()
    declared.read(ROOT / "setup.cfg")
    lines = declared["options"]["install_requires"].splitlines()
    required = {line.split()[0] for line in lines if line and line[0] != "#"}
    fields = email.message_from_string(metadata)
    needs = [need for need in fields.get_all("Requires-Dist") if "extra ==" not in need]
    found = {
        "Name": fields["Name"],
        "Version": fields["Version"],
        "Requires-Python": set(str(fields["Requires-Python"]).split(",")),
        "Requires-Dist": {re.split(r"[<>=!~ ;(]", need)[0] for need in needs},
        "Provides-Extra": set(fields.get_all("Provides-Extra")),
        "Description-Content-Type": fields["Description-Content-Type"],
    }
    expected = {
        "Name": "wfstdec",
        "Version": declared_version(),
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
    if unwanted := sorted(name for name in names - wanted if not allowed(name)):
        raise ReleaseError(f"{place} has {unwanted}, expected none of them")


# ------------------------------------------------------------------- trying
def try_wheel(python: Path, wheel: Path, folder: Path, *, quick: bool = False) -> None:
    """Install a wheel into a fresh environment and use it there, as two users.

    Args:
        python: Makes the environment.
        wheel: The wheel.
        folder: The environment, created.
        quick: Check size and version alone.

    Raises:
        ReleaseError: It takes too much space, or does not work.
    """
    begin = time.perf_counter()
    inside = environment(python, folder, [wheel])
    took = time.perf_counter() - begin
    download = [inside, "-m", "pip", "download", "--quiet", "--dest", folder / "files"]
    run([*download, "--constraint", ROOT / "constraints.txt", wheel])
    space = check_space(folder, folder / "files")
    report(f"{wheel.name}: {space}, in {took:.0f} s")
    run([inside, "-m", "pip", "check"])
    users: dict[str, int | None] = {"the user who installed it": None}
    if os.geteuid() == 0:
        if readable_by_all(python.resolve()):
            users["another user"] = SOMEBODY
        else:
            report(f"{python}: in a folder of root's alone, not tried as another user")
    for who, user in users.items():
        home = folder / f"home_{user}"
        home.mkdir()
        os.chown(home, -1 if user is None else user, -1)
        begin = time.perf_counter()
        version = use([inside.parent / "wfstdec", "--version"], home, user)
        if wheel.name.split("-")[1] not in version:
            raise ReleaseError(f"{wheel.name}: wfstdec --version prints {version!r}")
        if quick:
            return
        text = use([inside, "-I", "-c", TRY], home, user)
        if text != TEXT:
            raise ReleaseError(f"{wheel.name}: {who} got {text!r}, expected {TEXT!r}")
        report(f"{wheel.name}: works for {who}, {time.perf_counter() - begin:.0f} s")
    late = [p.name for p in folder.rglob(f"*{COMPILED}") if "compiled" not in p.parts]
    if late and PLATFORM in wheel.name:
        raise ReleaseError(f"{wheel.name}: {late} compiled at first use, expected none")


def check_space(folder: Path, files: Path) -> str:
    """Check what pip downloads, a wheel with all it needs, and what that occupies.

    Raises:
        ReleaseError: It is more than the limits.
    """
    downloaded = sum(path.stat().st_size for path in files.iterdir()) / 1e6
    [packages] = folder.glob("lib/python*/site-packages")
    tops = [path for path in packages.iterdir() if not path.name.startswith(OF_VENV)]
    parts = [path for top in tops for path in (top, *top.rglob("*"))]
    installed = sum(path.lstat().st_blocks for path in parts) * 512 / 1e6
    space = f"{downloaded:.1f} MB downloaded, {installed:.0f} MB installed"
    if downloaded > MOST_DOWNLOADED_MB or installed > MOST_INSTALLED_MB:
        limits = f"{MOST_DOWNLOADED_MB} and {MOST_INSTALLED_MB} MB"
        raise ReleaseError(f"{space}, expected at most {limits}")
    return space


def readable_by_all(path: Path) -> bool:
    """Return whether a path leads through no folder that its owner keeps closed."""
    return all(part.stat().st_mode & 0o005 == 0o005 for part in path.parents)


def use(command: Sequence[str | Path], home: Path, user: int | None) -> str:
    """Run what is installed, away from the checkout, and return its output."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NUMBA"))
    }
    as_user = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    return run(command, cwd=home, env=kept | {"HOME": str(home)}, **as_user).strip()


def run(command: Sequence[str | Path], **options: Any) -> str:
    """Run a program and return its output.

    Raises:
        ReleaseError: It failed; with the end of its output.
    """
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        output = (done.stdout + done.stderr).strip()[-2000:]
        line = " ".join(map(str, command))
        raise ReleaseError(f"{line!r} ended with {done.returncode}:\n{output}")
    return done.stdout


def report(line: str) -> None:
    """Print progress at once."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
