"""Kernels in numba: compiling and caching them, and what many of them use."""

from wfstdec.jit.compiling import by_class, inlined, jit, kernel, part, read_only

__all__ = ["by_class", "inlined", "jit", "kernel", "part", "read_only"]
