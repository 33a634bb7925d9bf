"""Parts of kernels as kernels run them: called from Python they run as Python."""

import numba


def compiled(part):
    """A part with a way in."""

    @numba.njit(error_model="numpy")
    def call(*arguments):
        return part(*arguments)

    return call
