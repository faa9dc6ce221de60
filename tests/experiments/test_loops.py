from dataclasses import dataclass

import numpy as np
import pandas as pd
from benchmarks.loops.curves import band, looks_of, values_of
from bo_robust.experiments import run as runs
from bo_robust.experiments.config import parse
from bo_robust.experiments.loop import Summary, TrialLoop
from bo_robust.experiments.loops import LOOPS

from benchmarks.statistics import mean_and_error, mean_interval


@dataclass(frozen=True)
class Dice:
    """A die whose largest side is to be found."""

    sides: int = 6
    notes = "A die."

    def make(self):
        return self


@dataclass(frozen=True)
class Throw:
    """Throws the die."""


class DiceLoop(TrialLoop):
    over = "dice"
    problems, methods = {"die": Dice}, {"throw": Throw}
    defaults, keys = {"trials": 2, "horizon": 3}, frozenset()
    unit = "throw"
    columns, legend = {"final regret": ("regret", "{:.2f}")}, "regret: of the last throw."

    def make_problem(self, kind, panel, trials, device):
        return kind.make()

    def run_trial(self, problem, method, panel, trial):
        sides = np.random.default_rng(trial).integers(problem.sides, size=panel.horizon)
        return {"round": list(range(panel.horizon)), "regret": (problem.sides - 1.0 - sides).tolist()}

    def of_problem(self, panel, problem, device):
        return {"sides": problem.sides}

    def summary(self, panel, rows, metadata):
        last = {label: of.groupby("trial")["regret"].last().to_numpy() for label, of in rows.items()}
        return Summary({label: {"regret": mean_and_error(of)} for label, of in last.items()}, {"regret": last}, {})

    def draw(self, panel, traces, axes):
        for label, look in looks_of(panel.labels).items():
            values = values_of(panel, traces, "regret")[label]
            band(axes[0], np.arange(values.shape[1]), mean_interval(values), label, look)


def test_a_new_loop_is_one_class_and_its_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(LOOPS, "dice", DiceLoop())
    panel = {"name": "p", "problem": {"kind": "die", "sides": 8}, "methods": ["throw"]}
    summary = runs.start(parse({"loop": "dice", "panels": [panel]}), tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"summary.json", "traces.parquet", "00-p.png"}
    assert len(pd.read_parquet(tmp_path / "out" / "traces.parquet")) == 2 * 3
    assert summary["settings"]["p"] == {"sides": 8, "methods": {"THROW": {"class": "Throw"}}}
    said = capsys.readouterr().out
    assert "p: 2 trials x 3 throws" in said
    assert "lowest regret" in said
