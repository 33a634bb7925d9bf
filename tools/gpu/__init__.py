"""What is run on a GPU machine: the probe, searches, sanitizers.

The exit status of each: all well; other answers than the CPU's; a peer that is not
installed; the device is unfit for the kernels.
"""

OK_STATUS, WRONG_STATUS, MISSING_STATUS, UNFIT_STATUS = 0, 1, 3, 5
