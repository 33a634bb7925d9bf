"""The plain-Python specification of each search as the backend "reference"."""

from wfstdec.greedy import options as greedy
from wfstdec.trie import options as trie
from wfstdec.wfst import options as wfst

for room in (wfst, trie, greedy):
    name = room.__name__.split(".")[1]
    room.BACKENDS["reference"] = f"{name}_reference_backend:ReferenceBackend"

HOST_BACKENDS = "reference", "cpu"
