"""The trie search in emulation: devices of all forms, with room or without."""

from cuda_emulation.device import EmulatedDevice

from wfstdec.trie.gpu import layout as d
from wfstdec.trie.gpu.backend import DeviceBackend


def emulated(space, *, shared=True, first_entries=256, **device):
    """A search space on a device in emulation.

    Args:
        space: the space.
        shared: whether blocks have shared memory for their arrays.
        first_entries: entries of frontiers that scratch has room for at first.
        device: further arguments of every `EmulatedDevice`.
    """

    def make(form):
        return EmulatedDevice(
            form.threads,
            program=d.PROGRAMS[form.threads],
            shared_bytes=form.shared_bytes if shared else 0,
            **device,
        )

    return DeviceBackend(space, make, first_entries)
