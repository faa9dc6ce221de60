"""Every panel that needs no data folder, tiny, to see that each still runs."""

from dataclasses import replace

from benchmarks.run import main
from configs.unknown_hyperparameters import ball, conditions, decomposition, lengthscale, mean, period, sweep

FILES = (lengthscale, period, decomposition, mean, sweep, ball, conditions)
PANELS = [replace(panel, trials=3, rounds=12) for file in FILES for panel in file.PANELS]

if __name__ == "__main__":
    main(PANELS)
