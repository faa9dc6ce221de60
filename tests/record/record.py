"""The scenarios of the record, and the file that holds their values."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from botorch.acquisition.multi_objective import logei

from tests.record.hosts import hosts
from tests.record.models import MODELS
from tests.record.problems import PROBLEMS
from tests.record.values import place

FILE = Path(__file__).with_name("values.json")
QUICK = (  # what one run of the tests computes again; the others are slow
    *("suggest, box", "suggest, replicated outlier", "suggest, held", "suggest, mixed, outlier", "suggest, bkb"),
    *("suggest, conditions, not set", "suggest, candidates, outlier", "suggest, pending and failed, outlier"),
    *("suggest, constraint, outlier", "suggest, two objectives, outlier", "suggest, he-gp-ucb", "suggest, fixed"),
    *("statistics, plain", "statistics, replicates", "statistics, held", "statistics, several outputs"),
    *("statistics, learnt scale of decades", "statistics, grown", "statistics, bump"),
    *("command, outlier", "command, observed", "optuna, outlier", "ax, held"),
)


def scenarios() -> dict[str, Callable[[], Any]]:
    """Every scenario that the packages installed allow, by name."""
    found: dict[str, Callable[[], Any]] = {f"suggest, {name}": each.record for name, each in PROBLEMS.items()}
    return found | {f"statistics, {name}": case for name, case in MODELS.items()} | hosts()


def compute(scenario: Callable[[], Any]) -> Any:
    """The values of a scenario, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    logei._load_attempted = True  # a kernel that BoTorch compiles where it can would round otherwise
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            return json.loads(json.dumps(scenario()))
    finally:
        torch.set_num_threads(threads)


def write() -> None:
    """Compute all scenarios and store them; those of packages that are absent stay as they were."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))["scenarios"] if FILE.exists() else {}
    stored |= {name: compute(scenario) for name, scenario in scenarios().items()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(stored[name])}" for name in sorted(stored))
    FILE.write_text(f'{{"place": {json.dumps(place())},\n"scenarios": {{\n{lines}\n}}}}\n', encoding="utf-8")
