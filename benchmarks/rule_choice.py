"""Does the criterion of ``bo_robust.tails`` choose the right truncation rule? ``python -m benchmarks.rule_choice``.

For every panel of configs/heavy_tails/rules.yaml: 1,000 rewards of random arms, what ``recommend`` says of them, and
the average regret of the rule it names over that of the best rule, from the committed results of
``python -m benchmarks.reproduce heavy_tails_rules``. Then the geometric mean over panels, of the criterion and of each
fixed choice. (The criterion once said "none" where truncation did not look worthwhile, at a mean of 1.11; these panels
showed that to be wrong, so they are no independent test of it as it is now.)
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import os
import warnings
from pathlib import Path

import torch

from benchmarks.common import ROOT, environment, report
from bo_robust.experiments.build import build_problem
from bo_robust.experiments.config import PanelConfig
from bo_robust.experiments.files import load
from bo_robust.random import stream
from bo_robust.tails import recommend

RULES = ("none", "zero", "clip", "residual")
TRIALS, REWARDS = 20, 1_000


def main() -> None:
    """One line per panel, one per way of choosing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("BO_ROBUST_DATA"))
    data_dir = parser.parse_args().data_dir
    report("environment", 0, "none", None, None, environment())
    played = json.loads((ROOT / "benchmarks" / "results" / "curves" / "heavy_tails_rules.json").read_text())
    ratios = collections.defaultdict(list)
    for panel, result in zip(load(ROOT / "configs/heavy_tails/rules.yaml").panels, played["panels"], strict=True):
        assert isinstance(panel, PanelConfig)
        problem = build_problem(panel, range(TRIALS), data_dir, torch.device("cpu"))
        named: collections.Counter[str] = collections.Counter()
        for i in range(TRIALS):
            rng = stream(panel.seed + 1, "past rewards", i)  # other rewards than those played
            arms = torch.from_numpy(rng.integers(problem.num_arms, size=REWARDS))
            draws = torch.from_numpy(problem.rewards.draw(rng, REWARDS)).to(problem.f)
            y = problem.rewards(problem.f[i].expand(REWARDS, -1), arms, draws)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                named[recommend(y, arms, horizon=panel.horizon).rule] += 1
        regret = {rule: result["algorithms"][rule]["average_regret"][0] for rule in RULES}
        best = min(regret.values())
        chosen = sum(count * regret[rule] for rule, count in named.items()) / TRIALS
        ratios["the criterion"].append(chosen / best)
        for rule in RULES:
            ratios[f"always {rule}"].append(regret[rule] / best)
        detail = {"recommended": dict(named), "average_regret": regret}
        report(
            f"{panel.name}: regret of the rule recommended over the best", chosen / best, "ratio", None, None, detail
        )
    for way, values in ratios.items():
        mean = math.exp(sum(math.log(v) for v in values) / len(values))
        report(f"{way}: geometric mean over panels", mean, "ratio to the best", None, None, {"worst": max(values)})


if __name__ == "__main__":
    main()
