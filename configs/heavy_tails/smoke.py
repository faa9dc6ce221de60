"""Every panel that needs no data folder, tiny, to see that each still runs."""

from dataclasses import replace

from benchmarks.run import main
from configs.heavy_tails import lower_bound, matern, one_point_spikes, pareto, student_t, where_it_matters

FILES = (student_t, pareto, matern, one_point_spikes, where_it_matters, lower_bound)
PANELS = [replace(panel, trials=3, rounds=40) for file in FILES for panel in file.PANELS]

if __name__ == "__main__":
    main(PANELS)
