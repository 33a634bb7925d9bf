"""The backends of the trie decoder, for `search.backends.make_backend`."""

BACKENDS = {
    "reference": "wfstdec.trie.reference_backend:ReferenceBackend",
    "cpu": "wfstdec.trie.cpu.backend:CpuBackend",
}
"""Name to module, and what makes the backend of a search space there."""
