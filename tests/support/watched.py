"""The model of `spoken`, in workers of Ray: notes what it is given; may be killed.

In the folder `WATCHED`, `heard` gets a line for each waveform, its length. The file
`slow` has seconds that each takes, and a worker that is given a waveform whose length
is in the file `deadly` removes that, and dies.
"""

import os
import signal
import time
from pathlib import Path

import spoken


def logprobs(waveform):
    folder = Path(os.environ["WATCHED"])
    with open(folder / "heard", "a") as file:
        file.write(f"{len(waveform)}\n")
    slow, deadly = folder / "slow", folder / "deadly"
    if slow.exists():
        time.sleep(float(slow.read_text()))
    if deadly.exists() and deadly.read_text() == str(len(waveform)):
        deadly.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return spoken.logprobs(waveform)
