"""The emulation as benchmarks see a GPU."""

import time

from cuda_emulation.device import EmulatedDevice
from trie_devices import emulated

from tools.bench.gpu_device import Gpu, Timing, padded
from wfstdec import WfstDecoder
from wfstdec.wfst.gpu.backend import DeviceBackend


class Emulated(Gpu):
    """The emulation as the benchmark sees a GPU; `change` spoils its options."""

    def __init__(self, change=lambda options: options):
        self.change, self.timed = change, 0

    def describe(self):
        return {"gpu": "none"}

    def decoder(self, graph, options, *, frame_shift_s, threads):
        options = self.change(options)
        decoder = WfstDecoder(graph, options, "cpu", frame_shift_s=frame_shift_s)
        device = EmulatedDevice(threads)
        decoder._backend = DeviceBackend(graph, device, first_capacity=64)
        return decoder

    def trie_backend(self, space):
        return emulated(space)

    def tensor(self, array):
        return array

    def upload(self, arrays, dtype):
        return padded(arrays, dtype)

    def time(self, run, repeats):
        self.timed += 1
        begin = time.perf_counter()
        run()
        seconds = time.perf_counter() - begin
        return Timing([seconds] * repeats, [seconds] * repeats)

    def release(self):
        pass
