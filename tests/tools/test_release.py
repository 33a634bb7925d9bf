"""Checks of a release: each thing that must not go out is found."""

import configparser
import io
import tarfile
import zipfile

import pytest

from tools import release

FILES = [
    "wfstdec/__init__.py",
    "wfstdec/gpu/kernels/block.cuh",
    "graphs/librispeech_demo/tokens.txt",
    "tests/test_readme.py",
    "README.md",
    "LICENSE",
    "setup.cfg",
]
INFO = "wfstdec-0.2.0.dist-info"
RECIPE = "wfstdec-0.2.0.data/data/share/wfstdec/graphs/librispeech_demo/tokens.txt"


def metadata(**changes):
    """Metadata that setup.cfg says, as a wheel has them."""
    declared = configparser.ConfigParser()
    declared.read(release.ROOT / "setup.cfg")
    lines = declared["options"]["install_requires"].splitlines()
    needs = [line.replace(" ", "") for line in lines if line and line[0] != "#"]
    fields = {
        "Name": "wfstdec",
        "Version": "0.2.0",
        "Requires-Python": "<3.15,>=3.11",
        "Description-Content-Type": "text/markdown",
    }
    fields |= {name.replace("_", "-"): value for name, value in changes.items()}
    rows = [f"{name}: {value}" for name, value in fields.items()]
    rows += [f"Requires-Dist: {need}" for need in needs]
    rows += ["Requires-Dist: torch>=2.2; extra == 'torch'"]
    rows += [f"Provides-Extra: {name}" for name in declared["options.extras_require"]]
    return "\n".join(rows) + "\n\nThe text.\n"


def wheel_of(folder, without=(), more=(), **changes):
    """A wheel of the files above."""
    path = folder / "wfstdec-0.2.0-py3-none-any.whl"
    names = {"wfstdec/__init__.py", "wfstdec/gpu/kernels/block.cuh", RECIPE}
    names |= {f"{INFO}/licenses/LICENSE", f"{INFO}/RECORD"}
    texts = dict.fromkeys((names | set(more)) - set(without), "")
    texts[f"{INFO}/METADATA"] = metadata(**changes)
    command = "" if "command" in without else "wfstdec = wfstdec.cli.main:main"
    texts[f"{INFO}/entry_points.txt"] = f"[console_scripts]\n{command}\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    return path


def sdist_of(folder, names):
    path = folder / "wfstdec-0.2.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"wfstdec-0.2.0/{name}"), io.BytesIO())
    return path


def test_a_wheel_that_is_right(tmp_path):
    release.check_wheel(wheel_of(tmp_path), FILES)
    compiled = ["wfstdec/jit/compiled/cpython-311/search.kernel"]
    release.check_wheel(wheel_of(tmp_path, more=compiled), FILES)


@pytest.mark.parametrize(
    "name",
    ["wfstdec/gpu/kernels/block.cuh", RECIPE, f"{INFO}/licenses/LICENSE", "command"],
)
def test_what_a_wheel_lacks(tmp_path, name):
    with pytest.raises(release.ReleaseError, match="lacks|no command"):
        release.check_wheel(wheel_of(tmp_path, without=[name]), FILES)


@pytest.mark.parametrize(
    "name", ["tests/__init__.py", "wfstdec/__pycache__/x.pyc", "graphs/graph_1.npz"]
)
def test_what_a_wheel_must_not_have(tmp_path, name):
    with pytest.raises(release.ReleaseError, match="expected none of them"):
        release.check_wheel(wheel_of(tmp_path, more=[name]), FILES)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Version", "0.0.9"),
        ("Requires_Python", ">=3.10"),
        ("Description_Content_Type", "text/plain"),
        ("Provides_Extra", "more"),
        ("Requires_Dist", "scipy"),
    ],
)
def test_metadata_that_the_checkout_does_not_say(tmp_path, field, value):
    with pytest.raises(release.ReleaseError, match=f"{field.replace('_', '-')} is"):
        release.check_wheel(wheel_of(tmp_path, **{field: value}), FILES)


def test_an_sdist_has_what_wheels_are_made_of_and_no_tests(tmp_path):
    whole = [name for name in FILES if not name.startswith("tests/")]
    release.check_sdist(sdist_of(tmp_path, [*whole, "PKG-INFO"]), FILES)
    with pytest.raises(release.ReleaseError, match=r"lacks \['graphs/"):
        release.check_sdist(sdist_of(tmp_path, [*whole[:2], *whole[3:]]), FILES)
    with pytest.raises(release.ReleaseError, match=r"has \['tests/test_readme.py'\]"):
        release.check_sdist(sdist_of(tmp_path, FILES), FILES)


@pytest.mark.parametrize(
    ("tag", "kernels", "version", "message"),
    [
        ("py3-none-any", [], None, None),
        ("py3-none-any", [311], None, "expected none"),
        ("cp311-cp311-linux_x86_64", [311] * 60, "3.11", "another tag"),
        ("cp311-cp311-manylinux_2_17_x86_64", [311] * 60, "3.11", None),
        ("cp311-cp311-manylinux_2_17_x86_64", [311] * 59, "3.11", "59 kernels"),
        ("cp311-cp311-manylinux_2_17_x86_64", [312, *[311] * 60], "3.11", "60 of"),
    ],
)
def test_tag_and_kernels_are_of_one_python(tmp_path, tag, kernels, version, message):
    wheel = tmp_path / f"wfstdec-0.2.0-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for number, digits in enumerate(kernels):
            archive.writestr(
                f"wfstdec/jit/compiled/cpython-{digits}/{number}.kernel", ""
            )
    if message is None:
        release.check_kernels(wheel, version)
    else:
        with pytest.raises(release.ReleaseError, match=message):
            release.check_kernels(wheel, version)


def test_notes_are_the_section_of_the_version(tmp_path):
    changelog = tmp_path / "CHANGELOG.md"
    with pytest.raises(
        release.ReleaseError, match=r"expected a section '## \[0.2.0\]'"
    ):
        release.notes_of("0.2.0", changelog)
    changelog.write_text(
        "# Changelog\n\n## [0.2.1]\n\n## [0.2.0] - 2026-11-28\n\n"
        "### Added\n\n- One thing\n\n## [0.1.0]\n\n- Another\n"
    )
    assert release.notes_of("0.2.0", changelog) == "### Added\n\n- One thing\n"
    for version in ("0.2.1", "0.3.0"):  # without text; without a section
        with pytest.raises(release.ReleaseError, match="no notes"):
            release.notes_of(version, changelog)


@pytest.mark.parametrize("limit", ["MOST_DOWNLOADED_MB", "MOST_INSTALLED_MB"])
def test_space_has_limits(tmp_path, monkeypatch, limit):
    files = tmp_path / "files"
    for folder in ("numba", "pip"):
        (tmp_path / "lib/python3.12/site-packages" / folder).mkdir(parents=True)
        path = tmp_path / "lib/python3.12/site-packages" / folder / "a.py"
        path.write_bytes(bytes(3_000_000 if folder == "numba" else 9_000_000))
    files.mkdir()
    (files / "numba.whl").write_bytes(bytes(2_000_000))
    space = release.check_space(tmp_path, files)
    assert space == "2.0 MB downloaded, 3 MB installed"
    monkeypatch.setattr(release, limit, 1)
    with pytest.raises(release.ReleaseError, match="2.0 MB downloaded, 3 MB installed"):
        release.check_space(tmp_path, files)


def test_the_recipe_and_all_kernels_are_in_the_list():
    listed = set(release.packaged(release.tracked_files()))
    assert {"graphs/librispeech_demo/lm.arpa.gz", "wfstdec/cli/main.py"} <= listed
    assert any(name.endswith(".cuh") for name in listed)
