"""C structs as NumPy types: one definition, which every compiler confirms."""

import dataclasses
import re
import shutil
import subprocess

import numpy as np
import pytest
from cuda_emulation.device import HERE

from wfstdec.gpu.boosts import STRUCTS
from wfstdec.gpu.records import read_struct
from wfstdec.graph.arcs import ARC
from wfstdec.wfst.gpu.layout import PROGRAM, UTTERANCE

HEADER = """
struct Other {
    u64 address;  // u32 no_field;
};
struct alignas(16) Mixed {
    u32 a, b;      // two
    const float* pointer;

    Other other;
    double c;
    float d;
};
struct Wrong {
    u32 array[2];
};
struct Unknown {
    Someone else_;
};
"""


@pytest.fixture
def header(tmp_path):
    path = tmp_path / "some.cuh"
    path.write_text(HEADER)
    return path


def test_a_struct_by_hand(header):
    other = read_struct(header, "Other")
    assert other == np.dtype([("address", "u8")])
    mixed = read_struct(header, "Mixed", Other=other)
    assert mixed.names == ("a", "b", "pointer", "other", "c", "d")
    assert [mixed.fields[name][1] for name in mixed.names] == [0, 4, 8, 16, 24, 32]
    assert mixed.itemsize == 40


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Absent", "some.cuh: no struct 'Absent', expected its definition"),
        ("Wrong", r"some.cuh: Wrong: 'u32 array\[2\];', expected fields of a known"),
        ("Unknown", "some.cuh: Unknown: 'Someone else_;', expected fields"),
    ],
)
def test_what_cannot_be_read_is_refused(header, name, message):
    with pytest.raises(ValueError, match=message):
        read_struct(header, name)


def swapped(dtype, first, second):
    """The type with two of its fields in each other's place."""
    names = list(dtype.names)
    i, j = names.index(first), names.index(second)
    names[i], names[j] = second, first
    return np.dtype([(name, dtype.fields[name][0]) for name in names], align=True)


SWAPS = {
    "Utterance": swapped(UTTERANCE, "died", "frames"),
    "Task": swapped(PROGRAM.structs["Task"], "beam", "beam_delta"),
    "Phrases": swapped(STRUCTS["Phrases"], "start", "of_tokens"),
    "Arc": swapped(ARC, "ilabel", "olabel"),
}


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
@pytest.mark.parametrize("struct", [None, *SWAPS])
@pytest.mark.share(keep=2)
def test_a_swapped_pair_of_fields_of_equal_size_does_not_compile(struct):
    """None: nothing is swapped."""
    structs = PROGRAM.structs | {name: SWAPS[name] for name in SWAPS if name == struct}
    changed = dataclasses.replace(PROGRAM, structs=structs)
    text = f'#include "emulation.h"\n{changed.source()}'
    command = ["g++", "-std=c++17", "-fsyntax-only", f"-I{HERE}", "-x", "c++", "-"]
    done = subprocess.run(command, input=text, text=True, capture_output=True)
    failed = set(re.findall(r"static assertion failed: ([\w. ]+)", done.stderr))
    if struct is None:
        assert done.returncode == 0, done.stderr
    else:
        assert len(failed) == 2 and all(one.startswith(struct) for one in failed)
