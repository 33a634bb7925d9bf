"""Machine code on disk: found wherever it may be, and harmless wherever it may not."""

import fcntl
import io
import os
import pickle
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

from wfstdec.jit import cache, jit, kernel, part

NOBODY = 65534
VALUES = np.full(1, 2.0)
SOURCE = "def times(values):\n    return values[0] * 3\n"


@pytest.fixture
def folder(monkeypatch):
    """A folder that everyone may read, with the source of a kernel."""
    monkeypatch.setattr(cache.config, "CACHE_DIR", "")
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(made / "kept"))
    (made / "a_kernel.py").write_text(SOURCE)
    yield made
    shutil.rmtree(made)


def new_kernel(folder, decorate=jit):
    """The kernel of a folder, as a process finds it that has just started."""
    path = folder / "a_kernel.py"
    names = {"__name__": "a_kernel"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    sys.modules.setdefault("a_kernel", type(sys)("a_kernel"))
    return decorate(names["times"])


def call(folder):
    """Call a new kernel: result, whether it was loaded, warnings."""
    times = new_kernel(folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = [times(VALUES), times(VALUES.astype(np.float32))]
    loaded = sum(times.stats.cache_hits.values())
    return result, loaded, [str(one.message) for one in caught]


def in_child(function, prepare=lambda: None):
    """The result of a function in a forked process, after it was made another's."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            prepare()
            answer = function()
        except BaseException as error:  # also what pytest raises
            answer = repr(error)
        os.write(writer, pickle.dumps(answer))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        answer = pickle.load(file)
    os.waitpid(child, 0)
    return answer


def become_nobody():
    """A user without a home who may write nothing here."""
    cache._warn_once.cache_clear()
    os.environ["HOME"] = "/nonexistent"
    os.environ.pop("XDG_CACHE_HOME", None)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


as_root = pytest.mark.skipif(os.getuid() != 0, reason="root alone becomes another user")


@as_root
def test_code_is_read_where_it_lies_by_a_user_who_may_write_nothing(folder):
    assert call(folder) == ([6, 6], 0, [])
    assert in_child(lambda: call(folder), become_nobody) == ([6, 6], 2, [])


@as_root
def test_without_a_writable_place_code_stays_in_memory_with_one_warning(folder):
    result, loaded, warned = in_child(lambda: call(folder), become_nobody)
    assert (result, loaded, len(warned)) == ([6, 6], 0, 1)
    assert "NUMBA_CACHE_DIR" in warned[0]
    assert os.listdir(folder) == ["a_kernel.py"]


@as_root
def test_code_goes_to_the_home_where_the_package_is_read_only(folder, tmp_path):
    home = Path(tempfile.mkdtemp())
    shutil.chown(home, NOBODY)

    def at_home():
        become_nobody()
        os.environ["XDG_CACHE_HOME"] = str(home)

    try:
        assert in_child(lambda: call(folder), at_home) == ([6, 6], 0, [])
        assert in_child(lambda: call(folder), at_home) == ([6, 6], 2, [])
    finally:
        shutil.rmtree(home)


def test_a_full_disk_is_no_error_and_leaves_nothing(folder):
    def fill():
        cache._warn_once.cache_clear()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    result, loaded, warned = in_child(lambda: call(folder), fill)
    assert (result, loaded, len(warned)) == ([6, 6], 0, 1)
    assert [path for path in folder.rglob("*") if path.is_file()] == [
        folder / "a_kernel.py"
    ]


def test_of_processes_at_once_one_compiles_and_the_others_load(folder):
    children = []
    for _ in range(2):
        if (child := os.fork()) == 0:
            result, loaded, _ = call(folder)
            os._exit(loaded if result == [6, 6] else 9)
        children.append(child)
    ends = [os.waitpid(child, 0)[1] for child in children]
    assert sum(map(os.waitstatus_to_exitcode, ends)) == 2
    assert call(folder) == ([6, 6], 2, [])


def test_who_compiles_for_ever_is_not_waited_for(folder, monkeypatch):
    monkeypatch.setattr(cache, "_PATIENCE_S", 0.1)
    with (folder / "a_kernel.py").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert call(folder) == ([6, 6], 0, [])


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "a folder"])
def test_a_damaged_file_is_compiled_anew(folder, damage):
    """A folder in its place cannot be repaired: the code is kept elsewhere."""
    call(folder)
    for path in (folder / "__pycache__").iterdir():
        content = bytearray(path.read_bytes())
        path.unlink()
        if damage == "a folder":
            path.mkdir()
        content[len(content) // 2] ^= 255
        kept = {"cut": content[:-9], "changed": content, "empty": b""}.get(damage)
        if kept is not None:
            path.write_bytes(kept)
    result, loaded, _ = call(folder)
    assert (result, loaded) == ([6, 6], 0)
    assert call(folder) == ([6, 6], 2, [])


@pytest.mark.parametrize("what", ["file", "folder"])
@pytest.mark.parametrize("fault", ["mode", pytest.param("owner", marks=as_root)])
def test_code_that_others_can_write_is_not_loaded(folder, what, fault):
    assert call(folder)[1:] == (0, [])
    kept = folder / "__pycache__"
    for path in [kept] if what == "folder" else [*kept.iterdir()]:
        if fault == "mode":
            path.chmod(0o777 if what == "folder" else 0o666)
        else:
            os.chown(path, NOBODY, NOBODY)
    cache._warn_of_others.cache_clear()
    result, loaded, warned = call(folder)
    assert (result, loaded) == ([6, 6], 0)
    assert f"{kept}: compiled kernels that other users can write" in warned[0]


def test_times_of_files_mean_nothing_and_contents_do(folder):
    call(folder)
    os.utime(folder / "a_kernel.py", (1, 1))
    assert call(folder)[1] == 2
    (folder / "a_kernel.py").write_text(SOURCE.replace("3", "4"))
    assert call(folder) == ([8, 8], 0, [])


MAKE = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from test_cache import call
print(call(Path({folder!r}))[1])
"""


@pytest.mark.skipif(not cache.has_level(), reason=f"a processor below {cache.LEVEL}")
def test_code_of_a_level_is_used_by_processors_of_it_alone(folder, monkeypatch):
    """Code that travels with the package is compiled for `LEVEL`, maybe elsewhere."""
    level = {"NUMBA_CPU_NAME": cache.LEVEL, "NUMBA_CPU_FEATURES": ""}
    program = MAKE.format(tests=str(Path(__file__).parent), folder=str(folder))
    made = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **level, "NUMBA_CACHE_DIR": str(folder / "made")},
        capture_output=True,
        text=True,
    )
    assert made.stdout == "0\n", made.stderr
    (where,) = (folder / "made").iterdir()
    for places in ((where,), (folder / "checkout", where)):  # the second is installed
        monkeypatch.setattr(cache, "AHEAD", places)
        assert call(folder) == ([6, 6], 2, [])
    monkeypatch.setattr(cache, "_not_kept", set())
    cache.compile_for_a_package()  # which would lack what it loads
    assert call(folder) == ([6, 6], 0, [])
    shutil.rmtree(folder / "__pycache__")
    monkeypatch.setattr(cache, "AHEAD", (where,))
    monkeypatch.setattr(cache, "has_level", lambda: False)
    assert call(folder) == ([6, 6], 0, [])


def test_a_checkout_uses_the_kernels_of_the_installed_package():
    """Where its sources are the same: files say what they were made of."""
    installed = Path(sysconfig.get_path("platlib")) / "wfstdec" / "jit" / "compiled"
    assert cache.AHEAD[0] == cache.COMPILED
    assert installed / cache.SYSTEM in cache.AHEAD


@part
def _third(values):
    return values[0] / 3


@jit
def _twice(values):
    return _third(values) * 2


@jit
def _both(values):
    return _twice(values) + _third(values)


def test_what_kernels_call_is_linked_and_no_machine_code_of_its_own():
    values = np.full(1, 6.0)
    assert _both(values) == 6
    assert len(_both.overloads) == 1
    assert not _twice.overloads  # its part was linked
    assert _twice(values) == 4


@part
def _power(values, exponent):
    return values[0] ** exponent


@kernel
def _square_and_cube(values):
    return _power(values, 2) + _power(values, 3)


def test_parts_are_compiled_once_for_all_numbers_that_callers_name(monkeypatch):
    monkeypatch.setattr(cache.KernelCache, "load_overload", lambda *of: None)
    assert _square_and_cube(VALUES) == 12
    assert len(_power.overloads) == 1


def test_compiling_is_said_once_on_a_terminal(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    cache.say_compiling.cache_clear()
    for _ in range(2):
        cache.say_compiling()
    assert terminal.getvalue().count("compiling kernels") == 1


def test_compiling_is_told_to_the_log_and_loading_is_not(folder, monkeypatch, caplog):
    cache.say_compiling.cache_clear()
    with caplog.at_level("INFO", "wfstdec"):
        call(folder)
        assert caplog.text.count("compiling kernels") == 1
        cache.say_compiling.cache_clear()
        assert call(folder)[1] == 2
    assert caplog.text.count("compiling kernels") == 1
