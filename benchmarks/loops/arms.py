"""The loop over arms: all trials of an algorithm together, round after round, and what is shown of them.

Random numbers come in chunks of rounds from streams keyed by (seed, purpose, trial, chunk): "reward" for rewards,
"algorithm" for randomized rules, and "initial" for the arms of an initial design. All algorithms of a panel use the
same streams and therefore get the same rewards and initial arms. Nothing is read back from the device until a chunk
ends. On CUDA, blocks of rounds are replayed as one graph (:mod:`bo_robust.bandits.captured`).
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from benchmarks.loops import eliminations
from benchmarks.loops.traces import Traces
from benchmarks.methods.arms import DELTA
from benchmarks.panel import Metadata, Panel, Summary, shared
from benchmarks.pictures import band, looks_of, values_of
from benchmarks.problems.base import Problem, Trials
from benchmarks.statistics import difference, mean_and_error
from bo_robust.bandits import ArmAlgorithm, Selection, State
from bo_robust.bandits.captured import Capture, captured_rounds
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.candidates import candidate_kernel
from bo_robust.utils.linalg import row_argmax
from bo_robust.utils.random import stream

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The number of the chunk is part of the streams' keys: another length gives other random numbers.
CHUNK_ROUNDS = 256
DRAWN = 200  # points of a curve on a logarithmic axis
# An arm is reported when more than half of its rewards, and at least this many, were truncated: one such reward of an
# arm pulled once says nothing.
MIN_TRUNCATED = 3


@dataclass(frozen=True)
class ArmsPanel(Panel):
    """Algorithms over finitely many arms.

    A method is an algorithm, or a function of the problem that makes one. The function gets the problem of the first
    trial, whose ``rounds`` are those of the panel. The rounds of the ``initial`` design are among the rounds.
    """

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

    def built(self, trials: range, device: torch.device) -> Problem:
        """The problem of some trials, the same object for all methods."""

        def make() -> Problem:
            problem: Problem = self.problem.make(Trials(trials, self.seed))
            return dataclasses.replace(problem, rounds=self.rounds).to(device, torch.float64)

        made: Problem = shared(make, self.problem, self.seed, self.rounds, trials, str(device))
        return made

    def made(self, device: torch.device) -> Self:
        if self.initial is not None and self.initial >= self.rounds:
            raise ValueError(f"panel {self.name!r}: the {self.initial} rounds of the initial design leave none.")
        problem, methods = self.built(range(1), device), {}
        for label, method in self.methods.items():
            methods[label] = method if isinstance(method, ArmAlgorithm) else method(problem)
            try:
                start_state(methods[label], problem)
            except ValueError as error:
                raise ValueError(f"{label!r} of panel {self.name!r}: {error}") from None
        return dataclasses.replace(self, methods=methods)

    def parts(self) -> list[range]:
        return [range(self.trials)]

    def run(self, label: str, trials: range, device: torch.device) -> tuple[pd.DataFrame, dict[str, Any]]:
        """As the base class; metadata are also ``arm_names`` and ``eliminations``."""
        algorithm, problem = self.methods[label], self.built(trials, device)
        traces = Traces(self.rounds, problem, dictionary="dictionary" in algorithm.records)
        state = start_state(algorithm, problem, self.rounds)
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="every candidate failed")  # the summary says so
            run_rounds(algorithm, problem, trials, self.seed, traces, state, self.initial or 0)
        metadata = {
            "seconds": time.perf_counter() - began,
            "notes": problem.notes,
            "baseline": algorithm.is_baseline,
            "anew": algorithm.truncates_anew,
            "arm_names": list(problem.arm_names),
            "eliminations": eliminations.counted(algorithm, state, problem),
        }
        return traces.frame(problem, trials), metadata

    def summary(self, rows: Mapping[str, pd.DataFrame], metadata: Metadata) -> Summary:
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
                "eliminations": metadata[label]["eliminations"],
            }
        average, baselines = measures["average_regret"], [label for label in rows if metadata[label]["baseline"]]
        gaps = [(a, difference(average[a], average[b])) for a in average if a not in baselines for b in baselines]
        no_better = [a for a, gap in gaps if not (gap["significant"] and gap["mean"] < 0)]
        warned: list[str] = []
        for label, frame in rows.items():
            truncation = _truncation_warning(label, frame, metadata[label]["anew"], metadata[label]["arm_names"])
            warned += [truncation] if truncation else []
        for label, numbers in methods.items():
            warned += eliminations.warnings_of(label, numbers["eliminations"])
        others = {"no_better_than_random": no_better, "warnings": warned}
        return Summary(methods, measures, others)

    def draw(self, traces: pd.DataFrame, axes: Sequence[Axes]) -> None:
        """Average and simple regret: means over trials, shaded by one standard error."""
        regret, simple = (values_of(traces, self.labels, self.trials, column) for column in ("regret", "simple_regret"))
        average = {label: values.cumsum(1) / np.arange(1, self.rounds + 1) for label, values in regret.items()}
        at = np.unique(np.geomspace(1, self.rounds, min(self.rounds, DRAWN)).round().astype(int))
        for axis, title, curves in ((axes[0], "average regret R_t / t", average), (axes[1], "simple regret", simple)):
            axis.set_title(f"{title}: mean ± standard error")
            for label, look in looks_of(self.labels).items():
                band(axis, at, curves[label][:, at - 1], label, look)
            axis.set_xscale("log")
            axis.set_xlim(left=0.9)
            axis.set_ylim(bottom=0.0)

    def lines(self, summary: Mapping[str, Any]) -> list[str]:
        lines = []
        if summary["no_better_than_random"]:
            lines.append(f"Not shown to be better than random arms: {', '.join(summary['no_better_than_random'])}.")
        for label, method in summary["methods"].items():
            if method["dictionary"] is not None:
                size, ratio = method["dictionary"]
                lines.append(f"{label}: {size:.3g} arms in the dictionary at the end, {ratio:.3g} d_eff on average.")
            if method["eliminations"] is not None:
                lines.append(f"{label}: {eliminations.in_words(method['eliminations'])}")
            if method["coverage"] is not None and method["coverage"] < 1.0 - DELTA:
                lines.append(
                    f"{label}: intervals covered {method['coverage']:.3f} of the arms, below 1 - delta = "
                    f"{1 - DELTA:.3g}; do not read them as guarantees."
                )
            if method["failed_pulls"]:
                trial, round_ = method["first_failed"]
                lines.append(
                    f"{label}: {method['failed_pulls']} failed pulls (rewards NaN or infinite), the first in trial "
                    f"{trial}, round {round_}; they were ignored and the trials went on."
                )
        return lines


def _dictionary(frame: pd.DataFrame) -> list[float] | None:
    """Mean size at the end, and mean over all rounds of the size over the effective dimension; None without one."""
    if "dictionary_size" not in frame or bool(frame["dictionary_size"].isna().all()):
        return None
    last = frame[frame["round"] == frame["round"].max()]
    ratio = frame["dictionary_size"] / frame["effective_dimension"]
    return [float(last["dictionary_size"].mean()), float(ratio.mean())]


def _truncation_warning(label: str, rows: pd.DataFrame, anew: bool, names: Sequence[str]) -> str | None:
    """Warn if more than half of the rewards of an arm, or of all, were truncated.

    Algorithms that truncate all rewards ``anew`` each round may restore them later: a warning then needs more than half
    of all rewards to be truncated in their own round.
    """
    share, by_arm = float(rows["truncated"].mean()), rows.groupby("arm")["truncated"]
    truncated, pulls = by_arm.sum(), by_arm.size()
    most = truncated[(truncated > 0.5 * pulls) & (truncated >= MIN_TRUNCATED)]
    if share <= 0.5 and (anew or most.empty):
        return None
    where = ""
    if not most.empty:
        arm = int(most.index.to_numpy()[most.to_numpy().argmax()])
        name = names[arm] if names else arm
        where = f", and more than half of those of {len(most)} arms, most of arm {name}, {most[arm]} of {pulls[arm]}"
    return (
        f"{label}: {100 * share:.3g} % of all rewards were truncated{where}: v (moment_bound) is too small for these "
        "rewards, or they are not centered."
    )


def start_state(algorithm: ArmAlgorithm, problem: Problem, rounds: int | None = None) -> State:
    """The state before any reward, under the prior of every candidate if the algorithm is over candidates.

    ``rounds`` are the rounds to come, if known.
    """
    priors = problem.candidates if algorithm.over_candidates else None
    if algorithm.over_candidates and priors is None:
        raise ValueError(f"the algorithm chooses among candidate priors, and problem {problem.name!r} has none.")
    kernels, prior_mean = (None, problem.prior_mean) if priors is None else (priors.kernels, priors.prior_means)
    if kernels is not None:
        kernel = candidate_kernel([*kernels], problem.arms)
    elif isinstance(problem.kernel, Tensor):
        kernel = ArmKernel.from_matrix(problem.kernel, problem.arms)
    else:
        assert problem.arms is not None
        kernel = ArmKernel.from_covariance(problem.kernel, problem.arms)
    return algorithm.init(kernel, problem.noise_var, problem.trials, prior_mean=prior_mean, rounds=rounds)


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
    calls = next(kind for kind in type(problem.rewards).__mro__ if "__call__" in vars(kind))
    blocks = None
    if vars(calls).get("capturable", False):
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
        coverage = (problem.f - posterior.mean).abs_().le_(reach.add_(slack)).mean(1)
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
