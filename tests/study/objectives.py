"""Functions that processes can import."""

import math
import os
import sys
import time
from concurrent.futures import CancelledError
from pathlib import Path


def peak(x):
    """1 at x = 0.7."""
    return math.exp(-(((x["x"] - 0.7) / 0.2) ** 2))


def fails_on_the_left(x):
    """Raises below 0.5."""
    if x["x"] < 0.5:
        raise RuntimeError("no simulation on the left")
    return peak(x)


def fails_as_if_cancelled(x):
    """Raises what a future raises that was cancelled."""
    raise CancelledError("cancelled by its own doing")


def threads(x):
    """How many threads BLAS is to have, and whether PyTorch is loaded."""
    return os.environ.get("OMP_NUM_THREADS"), "torch" in sys.modules


def dies_once(x):
    """Takes its process down the first time it is called in this folder."""
    mark = Path(os.environ["BO_ROBUST_TEST_MARK"])
    if not mark.exists():
        mark.write_text("dead")
        os._exit(1)
    return peak(x)


def process(seconds):
    """This process, after a while."""
    time.sleep(seconds)
    return os.getpid()


def sleeps(x):
    """Takes a minute."""
    time.sleep(60.0)
    return 1.0


def marks_and_sleeps(mark):
    """Writes its process into a file and takes a minute."""
    Path(mark).write_text(str(os.getpid()))
    time.sleep(60.0)
