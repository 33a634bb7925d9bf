"""What is run on a GPU machine: the probe, searches beside the CPU's, sanitizers.

The exit status of each: all well; other answers than the CPU's; a peer that is not
installed; points are left for another run; the device is unfit for the kernels.
"""

OK_STATUS, WRONG_STATUS, MISSING_STATUS, UNFINISHED_STATUS, UNFIT_STATUS = 0, 1, 3, 4, 5
