"""Kernels in numba: compiling and caching them, and what many of them use."""

from wfstdec.jit.compiling import inlined, jit, kernel, read_only

__all__ = ["inlined", "jit", "kernel", "read_only"]
