"""The panel that needs no data folder, tiny."""

from dataclasses import replace

from benchmarks.run import main
from configs.srinivas import synthetic

FILES = (synthetic,)
PANELS = [replace(panel, trials=3, rounds=40) for file in FILES for panel in file.PANELS]

if __name__ == "__main__":
    main(PANELS)
