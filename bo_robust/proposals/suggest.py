"""What to measure next, from all that was measured: :func:`suggest`, on a box, a mixed space or a list of designs.

Nothing is kept between calls: a suggestion is a function of its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

import torch
from botorch.models.model import Model
from torch import Tensor

from bo_robust.models.robust.slips import Slip
from bo_robust.proposals.conditions import ANY_CONDITION, CHOOSING, encoded_space
from bo_robust.proposals.core import Problem, Recommendation, expected, fit, propose, recommend, slips
from bo_robust.proposals.frames import data_in_numbers
from bo_robust.proposals.inputs import Search, Space
from bo_robust.proposals.methods import DEFAULT, Choice, choose
from bo_robust.proposals.outcomes import Data, Outputs
from bo_robust.utils.host import on_host
from bo_robust.utils.input_checks import check_count, is_number, shortened
from bo_robust.utils.specs import nearest

__all__ = ["Data", "Space", "Suggestion", "suggest"]

SHOWN = 6  # designs, columns or rows that a representation writes


@dataclass(frozen=True)
class Suggestion:
    """What to measure next, and what the data say so far.

    Attributes:
        X: ``q x d`` designs to measure next, in the columns and units of the data: a tensor, or a frame where columns
            have names, of candidates its rows.
        replicate: Whether each of them repeats a design whose observation may be an outlier, ``q`` bool.
        exhausted: Whether all designs of a finite space were measured, under way, failed or chosen before each of them,
            ``q`` bool. Such a design is a second one of its kind.
        outliers: Which observations the models flag as outliers (or truncate), ``n`` bool.
        held: Which observations are plausible only in a learnt outcome scale, and beyond all others on the good side,
            ``n`` bool. A second observation of their designs comes first.
        expected: ``n x m`` means of the objectives at the designs measured, in units of Y, from observations that are
            neither flagged nor held.
        best: The row of the design to use now; None for several objectives, or where no design can be recommended.
        mean: Mean of the objective there, in units of Y; NaN where ``best`` is None.
        interval: The ends of its 95 % interval there, in units of Y.
        model: The model of all outputs in the unit cube, in robust standard deviations of each output, where large
            objectives are good; None before there are data.
        slips: What may have happened to observations that are flagged or held, a
            :class:`bo_robust.models.robust.slips.Slip` for each.
        random: Which of the designs to measure do not follow from Y, ``q`` bool: those of an initial design, and a pair
            of design and condition in place of one that V-UCB repeats.
        num_initial: Rows measured, pending or failed from which designs follow from Y; 0 where there are as many.
        worst: The share of conditions of which ``mean`` is the value at risk; None without conditions.
    """

    X: Any
    replicate: Tensor
    exhausted: Tensor
    outliers: Tensor
    held: Tensor
    expected: Tensor
    best: int | None
    mean: float
    interval: tuple[float, float]
    model: Model | None
    slips: tuple[Slip, ...] = ()
    random: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))
    num_initial: int = 0
    worst: float | None = None

    @property
    def chance(self) -> str:
        """A sentence where designs do not follow from Y; else nothing."""
        if not self.random.any():
            return ""
        if self.model is None:
            return "No reading yet: these are first designs."
        if self.num_initial:
            return f"An initial design: proposals follow from the readings once there are {self.num_initial} rows."
        return "V-UCB repeated a pair of design and condition, so a random one takes its place."

    def __repr__(self) -> str:
        """What to do, in three lines."""
        names = list(getattr(self.X, "columns", self.X if isinstance(self.X, Mapping) else ()))
        rows = zip(*(self.X[name] for name in names), strict=True) if names else self.X.tolist()
        texts = [[shortened(f"{x:.10g}" if is_number(x) else str(x)) for x in row] for row in rows]
        texts = [[f"{shortened(str(name))} = {x}" for name, x in zip(names, row, strict=False)] or row for row in texts]
        again = [" (again)" * one for one in self.replicate.tolist()]
        designs = [f"({_joined(row)}){repeated}" for row, repeated in zip(texts, again, strict=True)]
        wrong, held = (_joined(mask.nonzero().flatten().tolist()) or "none" for mask in (self.outliers, self.held))
        ends = " to ".join(f"{end:.6g}" for end in self.interval)
        what = "mean" if self.worst is None else f"expected in the worst {100.0 * self.worst:g} % of conditions"
        what = f"{what} {self.mean:.6g}, 95 % interval {ends}"
        best = "no design yet" if self.best is None else f"row {self.best}: {what}"
        wrong = f"Rows that look wrong: {wrong}; that need a second reading first: {held}"
        kinds = [f"{slip.kind} ({', '.join(map(str, slip.rows))})" for slip in self.slips]
        wrong += f"; perhaps {_joined(kinds)}" * bool(kinds)
        measure = f"Measure {_joined(designs) or 'nothing (q = 0)'}. {self.chance}".rstrip()
        return f"{measure}\n{wrong}.\nUse {best}."


def _joined(parts: list[Any]) -> str:
    """The parts in one line, of many the first."""
    return ", ".join(map(str, parts[:SHOWN])) + f" and {len(parts) - SHOWN} more" * (len(parts) > SHOWN)


@on_host
def suggest(
    X: Any,
    Y: Any = None,
    *,
    space: Space | None = None,
    q: int = 1,
    method: str = DEFAULT,
    settings: Mapping[str, Any] = MappingProxyType({}),
    seed: int = 0,
    trial: int | None = None,
    num_initial: int | None = None,
    repeats: str = "if noisy",
    restarts: int = 8,
    raw_samples: int = 128,
    device: str = "cpu",
    **described: Any,
) -> Suggestion:
    """Suggest the next designs to measure, on a box, a mixed space or a list of candidates.

    The first designs are quasi-random. Then the default method maximizes BoTorch's ``qLogNoisyExpectedImprovement`` (or
    hypervolume improvement) on :class:`bo_robust.RobustGP`, with the probability that ``constraints`` hold. An
    observation that is better than all inliers, but flagged as an outlier or held, is measured a second time first;
    under ``conditions`` none is. Units of designs and observations do not matter.

    Args:
        X: ``n x d`` designs measured, numbers or a data frame; or all :class:`bo_robust.Data`.
        Y: ``n`` or ``n x m`` observations of m objectives; left out beside ``Data``.
        space: The designs that there are; or give the fields of :class:`bo_robust.Space` as arguments.
        q: Number of designs; 0 for the analysis alone.
        method: A name in :data:`bo_robust.proposals.methods.METHODS`. Under ``conditions`` the default is "v-ucb" on
            the default model; "knowledge-gradient" takes more time, and may find more beyond some 20 experiments.
        settings: Settings of the method, see :mod:`bo_robust.proposals.methods`.
        seed: Seed of all random numbers, >= 0.
        trial: Number of the trial, which random numbers depend on. Default: the number of designs so far.
        num_initial: Designs of the initial design. Default: 2 d + 2, of a list at most an eighth (but 4).
        repeats: Whether expected improvement may choose a design of a finite space that was measured before: "never",
            or "if noisy", where the noise is large against what is unknown of the other designs. A second observation
            of a design whose observation may be an outlier does not count.
        restarts: Local searches for the best acquisition value.
        raw_samples: Random points from which these searches get their starts.
        device: "cpu", "cuda" or "cuda:1". Models of fewer than 300 readings take less time on a CPU.
        **described: Fields of ``Space`` and ``Data``: ``bounds`` or ``candidates``, ``categorical``, ``maximize``, ...

    Raises:
        ValueError: if shapes, values or settings are wrong, or the observations differ by more than floating point
            holds.
        InfeasibilityError: BoTorch's, if no design of a box fulfils the constraints.

    Examples:
        >>> X, Y = [[20.0], [60.0], [90.0]], [1.2, 3.4, 2.2]
        >>> suggest(X, Y, bounds=[[0.0], [100.0]]).X
        >>> suggest(Data(X, Y, X_pending=[[70.0]]), space=Space(bounds=[[0.0], [100.0]]), q=2).X
        >>> suggest(df[["T", "base"]], df["yield"], bounds={"T": (20, 90)}, categorical={"base": ["KOH", "DBU"]}).X
    """
    check_count(0, q=q, seed=seed, trial=0 if trial is None else trial)
    how = Search(num_initial, repeats, restarts, raw_samples, device)
    data, asked = _from_arguments(X, Y, space, described)
    data, named = data_in_numbers(data, asked.columns)
    encoded = encoded_space(asked, data.X, method)
    X, pending, failed = (encoded.rows(name, getattr(data, name)) for name in ("X", "X_pending", "X_failed"))
    q, seed = int(q), int(seed)
    trial = len(X) + len(pending) + len(failed) if trial is None else int(trial)
    num_initial = encoded.num_initial if num_initial is None else num_initial
    listed = {} if encoded.candidates is None else {"num_arms": len(encoded.candidates)}
    facts = {"dim": encoded.columns, "num_initial": num_initial, **listed, **ANY_CONDITION}
    choice = choose(method, settings, facts)
    outputs = Outputs.from_data(data, len(X), choice.centers)
    _check_method(method, choice, data, asked, outputs)
    if encoded.conditioned and not {"environment", "functional"}.isdisjoint(settings):
        raise ValueError("leave environment and functional out of settings: conditions are those of X; set `worst`.")
    if encoded.conditioned and len(X):
        choice = encoded.at_risk(choice, device)
    problem = Problem(encoded, outputs, choice, X, pending, failed, how, seed)
    fitted = fit(problem) if len(X) else None
    chosen, again, exhausted, random = propose(problem, fitted, q, trial, num_initial)
    initial, worst = num_initial if trial < num_initial else 0, asked.worst if encoded.conditioned else None
    about: dict[str, Any] = {"random": random, "num_initial": initial, "worst": worst}
    if fitted is None:
        none, nothing = again[:0], torch.empty(0, outputs.objectives, dtype=torch.float64)
        return Suggestion(named(chosen), again, exhausted, none, none, nothing, *Recommendation(), None, **about)
    outliers, held = fitted.outliers.cpu(), fitted.held.cpu()
    told = (outliers, held, expected(fitted), *recommend(fitted), fitted.model, slips(fitted))
    return Suggestion(named(chosen), again, exhausted, *told, **about)


def _from_arguments(X: Any, Y: Any, space: Space | None, more: Mapping[str, Any]) -> tuple[Data, Space]:
    """The data and the space of a call, whose fields may be arguments; raises ``TypeError`` where they do not fit."""
    names = {kind: [one.name for one in fields(kind) if one.init] for kind in (Data, Space)}
    every = names[Data] + names[Space]
    if unknown := [name for name in more if name not in every]:
        raise TypeError(f"suggest has no argument {unknown[0]!r}; {nearest(unknown[0], every)}.")
    data_fields, described = ({name: more[name] for name in names[kind] if name in more} for kind in (Data, Space))
    if (isinstance(X, Data) and (data_fields or Y is not None)) or (space is not None and described):
        raise TypeError("give Data or its fields, and Space or its fields, not both of one.")
    return X if isinstance(X, Data) else Data(X, Y, **data_fields), Space(**described) if space is None else space


def _check_method(method: str, choice: Choice, data: Data, space: Space, outputs: Outputs) -> None:
    """Raise ``ValueError`` where a method cannot do what is asked."""
    for name in ("outcome_limits", "batch"):
        if getattr(data, name) is not None and not choice.takes(name):
            raise ValueError(f"{method} takes no {name}; only {DEFAULT} does.")
    if method in CHOOSING and not space.conditions:
        raise ValueError(f"{method} needs conditions: name their columns in `conditions`, or use it in Ax or BoTorch.")
    if getattr(choice.acquisition, "takes_conditions", False) and not space.set_conditions:
        raise ValueError(f"{method} chooses conditions: leave set_conditions true, or take the default method.")
    if outputs.several and len(space.conditions):
        raise ValueError("a value at risk under conditions is of one outcome, without requirements; leave others out.")
    if outputs.several and choice.acquisition is not None:
        raise ValueError(f"{method} takes one objective and no constraints; the default method takes several of both.")
