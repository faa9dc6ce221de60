"""Every panel that reads the data folder (BO_ROBUST_DATA), tiny."""

from dataclasses import replace

from benchmarks.run import main
from configs.heavy_tails import light, rules, stocks

FILES = (stocks, light, rules)
PANELS = [replace(panel, trials=3, rounds=40) for file in FILES for panel in file.PANELS]

if __name__ == "__main__":
    main(PANELS)
