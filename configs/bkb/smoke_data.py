"""Every panel that reads the data folder (BO_ROBUST_DATA), tiny."""

from dataclasses import replace

from benchmarks.run import main
from configs.bkb import abalone

FILES = (abalone,)
PANELS = [replace(panel, trials=2, rounds=25) for file in FILES for panel in file.PANELS]

if __name__ == "__main__":
    main(PANELS)
