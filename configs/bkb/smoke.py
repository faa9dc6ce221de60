"""Every panel of this folder that needs no data, tiny."""

from dataclasses import replace

from benchmarks.run import main
from configs.bkb import dictionary, many_arms

FILES = (many_arms, dictionary)
PANELS = [replace(panel, trials=2, rounds=30) for file in FILES for panel in file.PANELS]

if __name__ == "__main__":
    main(PANELS)
