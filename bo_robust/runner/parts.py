"""One algorithm on trials of a panel: set up, played, and the part it leaves in the result folder.

Parts of blocks of trials join to the part of all of them (:func:`join_parts`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.torch import save_file
from torch import Tensor

from bo_robust.algorithms import State
from bo_robust.problems import Problem
from bo_robust.runner.build import build_algorithm, start_state
from bo_robust.runner.checkpoint import write_atomic, write_json
from bo_robust.runner.config import PanelConfig
from bo_robust.runner.dictionaries import dictionary_facts, join_dictionaries, keeps_dictionary
from bo_robust.runner.eliminations import elimination_facts, join_eliminations
from bo_robust.runner.loop import Traces, play
from bo_robust.runner.results import traces_frame, write_frame

__all__ = ["Game", "Part", "join_parts", "write_part"]


@dataclass
class Part:
    """What one algorithm left on some trials.

    Attributes:
        frame: :func:`bo_robust.runner.results.traces_frame`.
        final: ``mean``, ``reach`` (width times sigma) and ``f``, ``n`` each, of the worst-covered trial at the end.
        covered: Share of arms that trial's final intervals cover.
        facts: Plain data: ``seconds``, ``level``, ``notes``, ``arm_names``, ``eliminations``, ``dictionary``.
    """

    frame: pd.DataFrame
    final: dict[str, Tensor]
    covered: float
    facts: dict[str, Any]


class Game:
    """Algorithm ``j`` of a panel on some of its trials, ready to be played.

    Args:
        panel: The panel.
        j: Number of the algorithm.
        problem: Of these trials.
        trials: Their indices.

    Raises:
        RunError: as :func:`bo_robust.runner.build.build_algorithm` and :func:`~bo_robust.runner.build.start_state`.
    """

    def __init__(self, panel: PanelConfig, j: int, problem: Problem, trials: Sequence[int]) -> None:
        self.panel, self.label, self.problem, self.trials = panel, panel.algorithms[j].label, problem, trials
        self.algorithm = build_algorithm(panel.algorithms[j], panel, problem)
        self.noise_var = panel.noise_var or problem.noise_var
        room = (panel.horizon, len(trials), problem.f.device, problem.f.dtype)
        self.traces = Traces.empty(*room, dictionary=keeps_dictionary(self.algorithm))
        self.state = start_state(self.algorithm, problem, self.noise_var, len(trials), panel.horizon)

    def play(self, after_block: Callable[[State, Traces], None] = lambda state, traces: None) -> None:
        """Play from round ``traces.rounds`` on; ``after_block`` as in :func:`bo_robust.runner.loop.play`."""
        panel = self.panel
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="every hypothesis failed")  # the report says so
            play(
                self.algorithm,
                self.problem,
                self.trials,
                panel.seed,
                self.noise_var,
                self.traces,
                self.state,
                after_block,
                panel.initial,
            )

    def part(self, seconds: float) -> Part:
        """What it left; it took ``seconds``."""
        problem, posterior = self.problem, self.state.posterior
        width, truncation = self.traces.width[-1], getattr(self.algorithm, "truncation", None)
        reach = width.unsqueeze(1) * posterior.variance.sqrt()
        covered = ((problem.f - posterior.mean).abs() <= reach).to(reach.dtype).mean(1)
        worst = int(covered.argmin())  # the trial whose final interval covers least
        final = {
            "mean": posterior.mean[worst].cpu().clone(),
            "reach": reach[worst].cpu().clone(),
            "f": problem.f[worst].cpu().clone(),
        }
        level = None if truncation is None else truncation(self.panel.horizon)
        facts = {
            "seconds": seconds,
            "level": None if level is None or math.isinf(level) else level,
            "notes": problem.notes,
            "arm_names": list(problem.arm_names),
            "eliminations": elimination_facts(self.state, problem),
            "dictionary": dictionary_facts(self.state, self.traces),
        }
        frame = traces_frame(self.traces, problem, self.panel.name, self.label, self.trials)
        return Part(frame, final, float(covered[worst]), facts)


def join_parts(blocks: Sequence[Part]) -> Part:
    """The part of all trials from those of consecutive blocks, in order; seconds add up."""
    if len(blocks) == 1:
        return blocks[0]
    worst = min(blocks, key=lambda block: block.covered)  # the first of them, as in one block
    facts = blocks[0].facts | {
        "seconds": sum(block.facts["seconds"] for block in blocks),
        "eliminations": join_eliminations([block.facts["eliminations"] for block in blocks]),
        "dictionary": join_dictionaries([block.facts["dictionary"] for block in blocks]),
    }
    frame = pd.concat([block.frame for block in blocks], ignore_index=True)
    return Part(frame, worst.final, worst.covered, facts)


def write_part(path: Path, part: Part) -> None:
    """Write final intervals, facts, and last the traces, whose presence says "finished"."""
    write_atomic(path.with_suffix(".safetensors"), lambda temporary: save_file(part.final, temporary))
    write_json(part.facts, path.with_suffix(".json"))
    write_frame(part.frame, path)
