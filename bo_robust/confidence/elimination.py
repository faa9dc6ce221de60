"""Which candidates are active: pure functions of numbers per trial and candidate.

There are two tests. That of HE-GP-UCB, by errors, removes candidates for good. Source: Ziomek, Adachi & Osborne,
"Beyond Lengthscales: No-regret Bayesian Optimisation With Unknown Hyperparameters Of Any Type" (ICML 2024), Algorithm
1, lines 8-14. Let S^u be the rounds that candidate u chose, and eta_i = y_i - mu^u_{i-1}(x_i) the error of its
prediction in round i. Candidate u is removed when

    |sum_{S^u} eta_i| > sqrt(xi_t |S^u|) + sum_{S^u} w^u_i sigma^u_{i-1}(x_i),
    xi_t = 2 R^2 log(|U| pi^2 t^2 / (3 delta)).

The paper prints sigma_i for sigma_{i-1} and, in Theorem 4.1, pi for pi^2; the proofs need what stands here. |U| is the
number of candidates at the start.

The true candidate passes every test with probability 1 - delta if its width holds with probability 1 - delta / 2 and
|U| >= 2 (two-sided bounds add delta / |U|; HE-StableOpt's two families of sums ask for |U| >= 4). The last active
candidate is never removed: if it fails too, the assumptions do not hold.

The other test, ours, is by likelihood: candidate u is plausible while log p(y_1..t | u) is within log(|U| / delta) nats
of the largest. Under the true candidate, the likelihood ratio of any other one to it is a nonnegative martingale with
mean 1, however the points are chosen (an e-process). So by Ville's inequality and a union over U the true candidate is
plausible in all rounds together with probability 1 - delta, if f is drawn from its prior and the noise is Gaussian with
its variance. A candidate may become plausible again, and the likeliest always is.

Both interfaces use these functions: bandits with s trials, :func:`bo_robust.acquisition.eliminate` with one. Between
rounds they keep who is active, the :class:`Failures`, and three sums as ``3 x s x h``: of eta_i and of w_i sigma_{i-1},
in units of the reward, and |S^u| in between.

Axes: ``s`` trials, ``h`` candidates; a candidate's index is its index in U throughout.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from bo_robust.utils.input_checks import quoted
from bo_robust.utils.linalg import on_cuda

# Tests by name; "likeliest" leaves the candidate of largest evidence alone, which is a maximum likelihood fit.
ELIMINATION_KINDS = ("errors", "likelihood", "likeliest")
HALF_A_BIT = 0.5 * math.log(2.0)  # in nats: what a reward tells where sigma^2 = lambda
# What it means that every candidate failed its test
UNFIT = "the assumptions do not hold: no candidate fits, or noise_scale or the norm bound is too small"


@dataclass(frozen=True)
class Failures:
    """The first test that each candidate failed; by likelihood the first since it was last plausible."""

    at: Tensor  # Its round, counted from 1, `s x h` long; 0 where no test was failed
    # |sum eta| of that round, the limit that it exceeded, and the part sum w_i sigma_{i-1}(x_i) of the limit (the rest
    # is allowed to the noise). `3 x s x h`, in units of the reward, 0 where no test was failed. By likelihood: the nats
    # below the likeliest, the bound on them, and 0.
    sides: Tensor


@dataclass(frozen=True)
class Outcome:
    """What a round's test by errors found; all of it includes this round."""

    active: Tensor  # `s x h` bool
    sums: Tensor  # `3 x s x h`
    failures: Failures  # First failures
    left: Tensor  # |sum eta| of the candidate tested, `s`
    right: Tensor  # Its limit, `s`
    failed: Tensor  # Where left > right, `s` bool. The candidate is removed, unless it is the last active one.


def untested(template: Tensor) -> tuple[Tensor, Failures]:
    """The sums and failures of no rounds, with the candidates, dtype and device of ``template`` (``s x h``)."""
    sums = template.new_zeros(3, *template.shape)
    return sums, Failures(torch.zeros_like(template, dtype=torch.long), sums.clone())


def noise_allowance(t: int, noise_scale: float, candidates: int, delta: float) -> float:
    """xi_t = 2 R^2 log(|U| pi^2 t^2 / (3 delta)), in squared units of the reward.

    The noise is R-sub-Gaussian with R = ``noise_scale``; |U| = ``candidates`` is the number at the start.
    """
    return 2.0 * noise_scale**2 * math.log(candidates * math.pi**2 * t**2 / (3.0 * delta))


def largest_bound(bounds: Tensor, among: Tensor, rounding: float = 0.0) -> Tensor:
    """u_t: the candidate of largest upper bound ``among`` these, first of equals, ``s`` long.

    ``bounds`` and ``among`` are ``s x h``. Relative differences up to ``rounding`` count as none.
    """
    bounds = bounds.masked_fill(~among, -math.inf)
    if rounding == 0.0:
        return bounds.argmax(1)
    top = bounds.amax(1, keepdim=True)
    return (bounds >= top - rounding * (1.0 + top.abs())).to(torch.uint8).argmax(1)


def run_error_test(
    active: Tensor,
    sums: Tensor,
    failures: Failures,
    chosen: Tensor,
    error: Tensor,
    reach: Tensor,
    xi: Tensor | float,
    t: Tensor | float,
    ok: Tensor,
) -> Outcome:
    """Lines 8 and 11-14: enter the round and test the candidate that chose. No argument is written to.

    Args:
        active: ``s x h`` bool, at least one per trial.
        sums: Up to the round before, ``3 x s x h``.
        failures: Up to the round before.
        chosen: u_t, ``s`` long.
        error: eta_t = y_t - mu^u_{t-1}(x_t) of every candidate, ``s x h``.
        reach: w^u_t sigma^u_{t-1}(x_t) of every candidate before the reward, ``s x h``.
        xi: :func:`noise_allowance` of this round, a number or ``s x 1``.
        t: Round, counted from 1, a number or ``s x 1``.
        ok: False where the pull failed, ``s`` bool: nothing is entered or tested there.
    """
    index, taken = chosen.unsqueeze(1), ok.unsqueeze(1)
    error_of_chosen = error.gather(1, index)
    entered = torch.stack([error_of_chosen, torch.ones_like(error_of_chosen), reach.gather(1, index)]).masked_fill_(
        ~taken, 0.0
    )
    thrice = index.expand(3, -1, 1)
    sums = sums.scatter_add(2, thrice, entered)
    left, count, reached = sums.gather(2, thrice).unbind(0)
    right = count.mul_(xi).sqrt_().add_(reached)
    failed = (left.abs_() > right).logical_and_(taken)
    if on_cuda(failed) or bool(failed.any()):  # on a CPU looking costs nothing and nearly always ends it here
        failed.logical_and_(active.gather(1, index))
        first = failed & (failures.at.gather(1, index) == 0)
        sides = torch.stack([left, right, reached])
        failures = Failures(_put(failures.at, index, first, t), _put(failures.sides, thrice, first, sides))
        removed = failed & (active.sum(1, keepdim=True) > 1)
        active = _put(active, index, removed, torch.zeros_like(removed))
    return Outcome(active, sums, failures, left.squeeze(1), right.squeeze(1), failed.squeeze(1))


def check_elimination(elimination: object) -> None:
    """Raise ``ValueError`` unless ``elimination`` is one of :data:`ELIMINATION_KINDS`."""
    if elimination not in ELIMINATION_KINDS:
        names = ", ".join(map(repr, ELIMINATION_KINDS))
        raise ValueError(f"elimination must be one of {names}, got {quoted(elimination)}.")


EliminationKind = Annotated[str, check_elimination]


def evidence_bound(elimination: str, candidates: int, delta: float) -> float:
    """How many nats below the likeliest a candidate is plausible: log(|U| / delta); 0 for "likeliest"."""
    return math.log(candidates / delta) if elimination == "likelihood" else 0.0


def plausible(evidence: Tensor, bound: float) -> Tensor:
    """Candidates whose ``evidence`` (``s x h``, nats) is within ``bound`` of the largest, bool; for 0 the first."""
    if bound == 0.0:
        return torch.zeros_like(evidence, dtype=torch.bool).scatter_(1, evidence.argmax(1, keepdim=True), True)
    return evidence >= evidence.amax(1, keepdim=True) - bound


def shrinkage(evidence: Tensor, bound: float) -> Tensor:
    """The factor of widths in the test by likelihood, ``s x h``: sqrt(1 - nats below the likeliest / bound).

    The likeliest candidate keeps its whole width, and a candidate that is removed has width 0.
    """
    gap = evidence.amax(1, keepdim=True) - evidence
    return (1.0 - gap / bound).clamp_min_(0.0).sqrt_()


def acquisition_set(active: Tensor, evidence: Tensor, last_gain: Tensor) -> Tensor:
    """The candidates whose largest bound is maximized in the test by likelihood, ``s x h`` bool.

    After a reward that informed the MAP candidate by half a bit or more (``last_gain``, ``s x h`` in nats), that is the
    MAP candidate alone. Otherwise it would go on to exploit, and all active candidates count. So the most flexible
    candidate costs regret only where the MAP candidate learns nothing any more, and can be contradicted there.
    """
    first = evidence.masked_fill(~active, -math.inf).argmax(1, keepdim=True)
    alone = torch.zeros_like(active).scatter_(1, first, True)
    return torch.where(last_gain.gather(1, first) >= HALF_A_BIT, alone, active)


def run_likelihood_test(
    active: Tensor, failures: Failures, evidence: Tensor, bound: float, t: Tensor | float
) -> Failures:
    """The failures after round ``t`` of the test by likelihood, which left ``active``. No argument is written to."""
    gap = evidence.amax(1, keepdim=True) - evidence
    sides = torch.stack([gap, torch.full_like(gap, bound), torch.zeros_like(gap)])
    failed = failures.at > 0
    at = torch.where(failed, failures.at, t).masked_fill(active, 0)
    return Failures(at, torch.where(failed, failures.sides, sides).masked_fill(active, 0.0))


def log_density(square: Tensor, variance: Tensor) -> Tensor:
    """log N(y; mu, variance) in nats, from ``square`` = (y - mu)^2 / variance. Both arguments are overwritten."""
    return square.add_(variance.mul_(2.0 * math.pi).log_()).mul_(-0.5)


def _put(x: Tensor, index: Tensor, where: Tensor, value: Tensor | float) -> Tensor:
    """``x`` (``... x h``) with ``value`` at ``index`` in the rows where ``where`` is True."""
    return x.scatter(-1, index, torch.where(where, value, x.gather(-1, index)))


def violated(active: Tensor, failures: Failures) -> Tensor:
    """Trials whose last candidate failed its test as well, ``s`` bool: no candidate fits, the assumptions are wrong."""
    return (active & (failures.at > 0)).any(1)


def timeline(active: Tensor, failures: Failures) -> list[dict[str, Any]]:
    """Who failed when and by how much, by trial and round; read to the host.

    Returns:
        One row per failure. ``trial``; ``candidate``, its index in U; ``round`` (from 1); ``left`` > ``right``, both
        sides of the test in units of the reward; ``noise_factor``, how many times the noise's share of the limit would
        have been needed (near 1 where sums drift slowly); ``eliminated``, False for a last candidate that was kept. By
        likelihood both sides are in nats, and the factor is their ratio.
    """
    left, right, reach = failures.sides
    factor = (left - reach) / (right - reach)
    trial, candidate = (failures.at > 0).nonzero(as_tuple=True)
    names = ("trial", "candidate", "round", "left", "right", "noise_factor", "eliminated")
    failed = [x[trial, candidate] for x in (failures.at, left, right, factor, ~active)]
    rows = zip(*(x.tolist() for x in (trial, candidate, *failed)), strict=True)
    return sorted((dict(zip(names, row, strict=True)) for row in rows), key=lambda row: (row["trial"], row["round"]))
