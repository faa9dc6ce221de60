import io

import pandas as pd
import pytest
from benchmarks.loops.curves import looks_of
from bo_robust.experiments import jobs
from bo_robust.experiments.config import parse
from bo_robust.experiments.jobs import Setting
from bo_robust.experiments.plots import draw_panel, file_name
from matplotlib.image import imread

NAMES = [{"name": "random", "label": "$_x"}, {"name": "gp-ucb", "label": "_<b>"}]


@pytest.mark.parametrize("loop", ["arms", "conditions"])
@pytest.mark.parametrize(("trials", "horizon"), [(1, 1), (2, 3)])
def test_panels_of_any_size_are_drawn(tmp_path, loop, trials, horizon):
    methods = NAMES if loop == "arms" else ["random", {"name": "v-ucb", "restarts": 1, "raw_samples": 4, "maxiter": 2}]
    problem = {"kind": "rkhs_function" if loop == "arms" else "branin"}
    panel = {"name": "a $_b$", "problem": problem, "trials": trials, "horizon": horizon, "methods": methods}
    made = parse({"loop": loop, "panels": [panel]}).panels[0]
    setting = Setting(tmp_path, "digest", "cpu", None, 1, "")
    frames = []
    for job in jobs.jobs_of([made], None):
        jobs.run_job(job, made, setting)
        frames.append(jobs.read(job.path(tmp_path))[0])
    drawn = draw_panel(made, pd.concat(frames))
    assert imread(io.BytesIO(drawn)).shape[:2] > (200, 600)


def test_names_and_looks():
    assert file_name(2, "Branin-Hoo (1, 1)") == "02-branin-hoo-1-1.png"
    assert file_name(0, "λ") == "00-panel.png"
    looks = looks_of([str(i) for i in range(40)])
    assert len({tuple(look.values()) for look in looks.values()}) == 40
