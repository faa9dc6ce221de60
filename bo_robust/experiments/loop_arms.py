"""The loop over arms: all trials of an algorithm together, round after round, and what is shown of them.

Random numbers come in chunks of rounds from streams keyed by (seed, purpose, trial, chunk): "reward" for rewards,
"algorithm" for randomized rules, and "initial" for the arms of an initial design. All algorithms of a panel use the
same streams and therefore get the same rewards and initial arms. Nothing is read back from the device until a chunk
ends. On CUDA, blocks of rounds are replayed as one graph (:mod:`bo_robust.bandits.captured`).
"""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bo_robust.bandits import ALGORITHMS, ArmAlgorithm, Selection, State
from bo_robust.bandits.captured import Capture, captured_rounds
from bo_robust.confidence.base import is_open, sized
from bo_robust.confidence.truncation import Truncation
from bo_robust.experiments import eliminations
from bo_robust.experiments.build import build_algorithm, build_problem, memory_errors, resolved, start_state
from bo_robust.experiments.curves import band, looks_of, values_of
from bo_robust.experiments.loop import Loop, Metadata, Summary, check_initial
from bo_robust.experiments.problems import ARM_PROBLEMS, Problem, Trials
from bo_robust.experiments.statistics import difference, mean_and_error, mean_interval
from bo_robust.experiments.traces import Traces
from bo_robust.utils.linalg import row_argmax
from bo_robust.utils.random import stream

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bo_robust.experiments.config import Panel

# The number of the chunk is part of the streams' keys: another length gives other random numbers.
CHUNK_ROUNDS = 256
DRAWN = 200  # points of a curve on a logarithmic axis
# An arm is reported when more than half of its rewards, and at least this many, were truncated: one such reward of an
# arm pulled once says nothing.
MIN_TRUNCATED = 3


class ArmsLoop(Loop):
    """Algorithms over finitely many arms."""

    over = "arms"
    problems = ARM_PROBLEMS
    methods = ALGORITHMS
    defaults: ClassVar[Mapping[str, int]] = {"trials": 20, "horizon": 1000}
    keys = frozenset({"delta", "noise_var", "dtype"})
    by_trial = False
    columns: ClassVar[Mapping[str, tuple[str, str]]] = {
        "average regret": ("average_regret", "{:.3g}"),
        "simple regret": ("simple_regret", "{:.3g}"),
        "best queried": ("best_queried", "{:.3g}"),
        "cover": ("coverage", "{:.3f}"),
        "end": ("final_coverage", "{:.3f}"),
        "width": ("mean_width", "{:.3g}"),
        "truncated": ("truncated", "{:.2g}%"),
        "sec.": ("seconds", "{:.1f}"),
    }
    legend = (
        "average regret: R_T / T; simple regret: of the arm recommended at the end, of largest posterior mean; best "
        "queried: of the best arm chosen; all mean ± standard error over trials. cover: share of arms whose mean lies "
        "in the interval, over all rounds; end: in the last round; of the likeliest candidate, where there are some. "
        "width: mean multiplier of the standard deviation; truncated: share of the rewards beyond their level; sec.: "
        "time run. Differences are paired by trial; 'lower' and 'higher' are t tests at 5 %, one at a time."
    )

    def check(self, panel: Panel) -> None:
        """Raise ``RunError`` unless the initial design leaves a round; algorithms need the problem to be built."""
        check_initial(panel)

    def make_problem(self, kind: Any, panel: Panel, trials: Sequence[int], device: torch.device) -> Problem:
        problem: Problem = kind.make(Trials(trials, panel.seed))
        problem = dataclasses.replace(problem, noise_var=panel.noise_var or problem.noise_var)
        return problem.to(device, getattr(torch, panel.dtype))

    def settings_used(
        self, panel: Panel, data_dir: Path | None, device: torch.device, size: int | None
    ) -> dict[str, Any]:
        problem = build_problem(panel, range(1), data_dir, device)
        algorithms = {method.label: build_algorithm(method, panel, problem) for method in panel.methods}
        with memory_errors(panel):
            for algorithm in algorithms.values():
                start_state(algorithm, problem)
        methods = {label: resolved(algorithm) for label, algorithm in algorithms.items()}
        used: dict[str, Any] = {"noise_var": problem.noise_var, "methods": methods}
        if size is not None:  # notes tell of all trials, and no job has them all
            used["notes"] = build_problem(panel, range(panel.trials), data_dir, torch.device("cpu")).notes
        return used

    def run(self, panel: Panel, j: int, problem: Problem, trials: Sequence[int]) -> tuple[pd.DataFrame, dict[str, Any]]:
        """As the base class; metadata are also the final truncation ``level``, ``arm_names`` and ``eliminations``."""
        algorithm = build_algorithm(panel.methods[j], panel, problem)
        traces = Traces(panel.horizon, problem, dictionary="dictionary" in algorithm.records)
        state = start_state(algorithm, problem, panel.horizon)
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="every candidate failed")  # the summary says so
            run_rounds(algorithm, problem, trials, panel.seed, traces, state, panel.initial or 0)
        metadata = {
            "seconds": time.perf_counter() - began,
            "level": _final_level(getattr(algorithm, "truncation", None), panel.horizon, state),
            "arm_names": list(problem.arm_names),
            "eliminations": eliminations.elimination_record(algorithm, state, problem, trials),
        }
        return traces.frame(problem, trials), metadata

    def join(self, jobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return super().join(jobs) | {"eliminations": eliminations.joined([of.get("eliminations") for of in jobs])}

    def summary(self, panel: Panel, rows: Mapping[str, pd.DataFrame], metadata: Metadata) -> Summary:
        methods: dict[str, Any] = {}
        measures: dict[str, dict[str, np.ndarray]] = {"average_regret": {}, "simple_regret": {}, "best_queried": {}}
        for label, frame in rows.items():
            by_trial = frame.groupby("trial", sort=True)
            measures["best_queried"][label] = by_trial["regret"].min().to_numpy()
            measures["average_regret"][label] = by_trial["regret"].mean().to_numpy()
            measures["simple_regret"][label] = by_trial["simple_regret"].last().to_numpy()
            with_width = bool(frame["width"].notna().any())
            failed = frame.loc[~frame["ok"], ["trial", "round"]].sort_values(["round", "trial"])
            methods[label] = {
                **{measure: mean_and_error(values[label]) for measure, values in measures.items()},
                "coverage": float(frame["coverage"].mean()) if with_width else None,
                "final_coverage": float(by_trial["coverage"].last().mean()) if with_width else None,
                "mean_width": float(frame["width"].mean()) if with_width else None,
                "truncated": float(frame["truncated"].mean()),
                "failed_pulls": len(failed),
                "first_failed": failed.iloc[0].tolist() if len(failed) else None,
                "seconds": metadata[label]["seconds"],
                "dictionary": _dictionary(frame),
                "eliminations": eliminations.summarize(metadata[label]["eliminations"], panel.trials),
            }
        average, algorithms = measures["average_regret"], {of.label: ALGORITHMS[of.name] for of in panel.methods}
        baselines = [label for label, algorithm in algorithms.items() if algorithm.is_baseline]
        gaps = [(a, difference(average[a], average[b])) for a in average if a not in baselines for b in baselines]
        no_better = [a for a, gap in gaps if not (gap["significant"] and gap["mean"] < 0)]
        warned: list[str] = []
        for label, algorithm in algorithms.items():
            truncation = _truncation_warning(label, rows[label], metadata[label], algorithm.truncates_anew)
            warned += [truncation] if truncation else []
        for label, numbers in methods.items():
            warned += eliminations.warnings_of(label, numbers["eliminations"], panel.delta)
        others = {"delta": panel.delta, "no_better_than_random": no_better, "warnings": warned}
        return Summary(methods, measures, others)

    def draw(self, panel: Panel, traces: pd.DataFrame, axes: Sequence[Axes]) -> None:
        """Average and simple regret: means over trials, shaded by one standard error."""
        regret, simple = values_of(panel, traces, "regret"), values_of(panel, traces, "simple_regret")
        average = {label: values.cumsum(1) / np.arange(1, panel.horizon + 1) for label, values in regret.items()}
        at = np.unique(np.geomspace(1, panel.horizon, min(panel.horizon, DRAWN)).round().astype(int))
        for axis, title, curves in ((axes[0], "average regret R_t / t", average), (axes[1], "simple regret", simple)):
            axis.set_title(f"{title}: mean ± standard error")
            for label, look in looks_of(panel.labels).items():
                band(axis, at, mean_interval(curves[label][:, at - 1]), label, look)
            axis.set_xscale("log")
            axis.set_xlim(left=0.9)
            axis.set_ylim(bottom=0.0)

    def lines(self, panel: dict[str, Any]) -> list[str]:
        lines = []
        if panel["no_better_than_random"]:
            lines.append(f"Not shown to be better than random arms: {', '.join(panel['no_better_than_random'])}.")
        for label, method in panel["methods"].items():
            if method["dictionary"] is not None:
                size, ratio = method["dictionary"]
                lines.append(f"{label}: {size:.3g} arms in the dictionary at the end, {ratio:.3g} d_eff on average.")
            if method["eliminations"] is not None:
                lines.append(f"{label}: {eliminations.in_words(method['eliminations'])}")
            if method["coverage"] is not None and method["coverage"] < 1.0 - panel["delta"]:
                lines.append(
                    f"{label}: intervals covered {method['coverage']:.3f} of the arms, below 1 - delta = "
                    f"{1 - panel['delta']:.3g}; do not read them as guarantees."
                )
            if method["failed_pulls"]:
                trial, round_ = method["first_failed"]
                lines.append(
                    f"{label}: {method['failed_pulls']} failed pulls (rewards NaN or infinite), the first in trial "
                    f"{trial}, round {round_}; they were ignored and the trials went on."
                )
        return lines


def _final_level(truncation: Truncation | None, horizon: int, state: State) -> float | None:
    """b_T, the mean over trials where it depends on the dictionary; None where it is infinite, which JSON is not."""
    if truncation is None:
        return None
    level = sized(truncation, state.posterior.size)(horizon) if is_open(truncation) else truncation(horizon)
    mean = float(torch.as_tensor(level).mean())
    return None if math.isinf(mean) else mean


def _dictionary(frame: pd.DataFrame) -> list[float] | None:
    """Mean size at the end, and mean over all rounds of the size over the effective dimension; None without one."""
    if "dictionary_size" not in frame or bool(frame["dictionary_size"].isna().all()):
        return None
    last = frame[frame["round"] == frame["round"].max()]
    ratio = frame["dictionary_size"] / frame["effective_dimension"]
    return [float(last["dictionary_size"].mean()), float(ratio.mean())]


def _truncation_warning(label: str, rows: pd.DataFrame, metadata: Mapping[str, Any], anew: bool) -> str | None:
    """Warn if more than half of the rewards of an arm, or of all, were truncated.

    Algorithms that truncate all rewards ``anew`` each round may restore them later: a warning then needs more than half
    of all rewards to be truncated in their own round.
    """
    share = float(rows["truncated"].mean())
    if anew:
        if share <= 0.5:
            return None
        return (
            f"{label}: {100 * share:.3g} % of all rewards lost more than half of their weight in their own "
            f"round. Final b_t = {metadata['level']:.3g} (for u y with |u| <= 1), median |reward| = "
            f"{float(rows['reward'].abs().median()):.3g}: v (moment_bound) is too small for these rewards."
        )
    by_arm = rows.groupby("arm")["truncated"]
    truncated, pulls = by_arm.sum(), by_arm.size()
    most = truncated[(truncated > 0.5 * pulls) & (truncated >= (MIN_TRUNCATED if share <= 0.5 else 0))]
    if most.empty:
        return None
    arm = int(most.index.to_numpy()[most.to_numpy().argmax()])
    arm_name = metadata["arm_names"][arm] if metadata["arm_names"] else str(arm)
    scale = float(rows.loc[rows["arm"] == arm, "reward"].abs().median())
    return (
        f"{label}: {len(most)} of {len(pulls)} arms pulled lost more than half of their rewards to truncation "
        f"({100 * share:.3g} % of all rewards); the most in number is arm {arm_name} with {truncated[arm]} of "
        f"{pulls[arm]}. Final b_t = {metadata['level']:.3g}, median |reward| of that arm = {scale:.3g}: v "
        "(moment_bound) is too small for these rewards, or they are not centered."
    )


def run_rounds(
    algorithm: ArmAlgorithm,
    problem: Problem,
    trials: Sequence[int],
    seed: int,
    traces: Traces,
    state: State,
    initial: int = 0,
    capture: Capture | None = None,
) -> None:
    """Run until the traces are full.

    ``trials`` are the trial indices of the problem's rows, and ``initial`` counts the rounds of the initial design. The
    state is that after ``traces.rounds`` rounds and changes in place. ``capture`` is that of
    :func:`bo_robust.bandits.captured.captured_rounds`.
    """
    horizon, among = traces.horizon, problem.design_arms or problem.num_arms
    arms = [stream(seed, "initial", trial).integers(among, size=initial) for trial in trials]
    design = torch.from_numpy(np.stack(arms, 1)).to(problem.f.device)
    blocks = captured_rounds(algorithm, state, partial(run_round, algorithm, problem, state), capture)
    while traces.rounds < horizon:
        chunk = traces.rounds // CHUNK_ROUNDS
        begin, stop = chunk * CHUNK_ROUNDS, min(horizon, (chunk + 1) * CHUNK_ROUNDS)
        draws, uniforms = draw_chunk(problem, trials, seed, chunk)
        with torch.no_grad():
            while traces.rounds < stop:
                i, end = traces.rounds - begin, stop - begin
                chosen = traces.rounds >= initial
                if blocks and chosen and (ran := blocks.run(draws[i:end], uniforms[i:end])):
                    traces.write(ran[0], **ran[1])
                else:
                    given = None if chosen else design[traces.rounds]
                    traces.write(**run_round(algorithm, problem, state, draws[i], uniforms[i], given))


def run_round(
    algorithm: Any, problem: Problem, state: State, draws: Tensor, uniform: Tensor, design: Tensor | None = None
) -> dict[str, Tensor | float]:
    """Run one round of all trials: choose, reward, observe; returns its row of the traces. The state changes.

    ``draws`` are raw reward variates (``s x k``) and ``uniform`` draws from [0, 1) (``s``) of the round. Arms of an
    initial ``design``, ``s``, take the place of the algorithm's choice.
    """
    posterior, chosen = state.posterior, design is None
    selection = algorithm.select(state, uniform) if design is None else Selection(design)
    width: Tensor | float = torch.nan if selection.width is None else selection.width
    coverage: Tensor | float = torch.nan
    if selection.width is not None:
        reach = posterior.variance.sqrt().mul_(width.unsqueeze(1) if isinstance(width, Tensor) else width)
        # Where sigma is rounding of the prior, so is |f - mu|: a billionth of the prior scale counts as covered.
        slack = 1e-9 if posterior.mean.dtype == torch.float64 else 1e-4
        covered = (problem.f - posterior.mean).abs_() <= reach.add_(slack)
        coverage = covered.to(reach.dtype).mean(1)
    rewards = problem.rewards(problem.f, selection.arms, draws)
    info = (algorithm.observe if chosen else algorithm.observe_initial)(state, selection.arms, rewards, uniform)
    if problem.num_conditions > 1 and hasattr(algorithm, "recommend"):
        recommended = algorithm.recommend(state) * problem.num_conditions
    else:
        recommended = row_argmax(posterior.mean)
    of_dictionary: dict[str, Tensor] = {}
    if "dictionary" in algorithm.records:
        of_dictionary = {"dictionary_size": posterior.size, "effective_dimension": posterior.effective_dimension}
    return {
        "arm": selection.arms,
        "reward": rewards,
        "recommended": recommended,
        "width": width,
        "coverage": coverage,
        "truncated": False if info.truncated is None else info.truncated,
        "ok": info.ok,
        **of_dictionary,
    }


def draw_chunk(problem: Problem, trials: Sequence[int], seed: int, chunk: int) -> tuple[Tensor, Tensor]:
    """Raw reward variates (``B x s x k``) and uniforms (``B x s``) of a chunk, on the problem's device."""
    draws = [problem.rewards.draw(stream(seed, "reward", trial, chunk), CHUNK_ROUNDS) for trial in trials]
    uniforms = [stream(seed, "algorithm", trial, chunk).random(CHUNK_ROUNDS) for trial in trials]
    below_one = 1.0 - torch.finfo(problem.f.dtype).eps / 2.0  # float32 rounds some draws up to 1
    tensors = [torch.from_numpy(np.stack(rows, 1)).to(problem.f) for rows in (draws, uniforms)]
    return tensors[0], tensors[1].clamp_(max=below_one)
