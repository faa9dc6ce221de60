"""Small changes of a sparse posterior: one reward more, or one point more or less in the dictionary, O(r^2) each.

Let M = lambda K_D + sum_a c_a k_D(a) k_D(a)^T. The posterior of :mod:`bo_robust.bandits.posteriors.dtc` has the mean w
. k_D with w = M^-1 sum_a s_a k_D(a), and the variance k(x, x) - k_D^T K_D^-1 k_D + lambda k_D^T M^-1 k_D. Its factors
are roots of the two inverses: R^T R = K_D^-1, where R is lower triangular, and F^T F = M^-1, where F is lower
triangular only when built from scratch.

- n more rewards of arm x: M gains n k_D(x) k_D(x)^T. With u = F k_D(x) and s^2 = 1 + n ||u||^2, F becomes
  (I + n u u^T)^(-1/2) F = F - n u (u^T F) / (s (s + 1)).
- Point j less: for A = R and for A = F, A^T A loses h h^T with h = A^T A e_j / ||A e_j||.
- Point j less in R: let L = R^-1, and R_i row i of R. Without row and column j, L has the inverse chol(I + u u^T)^-1
  (R_i + u_i R_j) in its rows i > j, where u_i = -R_ij / R_jj. This is a positive update, so it is stable.
- Point j less in F: a reflection takes F e_j to a multiple of e_j, after which row j is +-h. F without row and column j
  is the new factor.
- A point p more: each factor gains a row below. With z = R k_D(p) and rho^2 = k(p, p) - ||z||^2, R gains
  r = (-R^T z, 1) / rho, and every arm the feature z_p(a) = r . k(a). With l = F sum_a c_a k_D(a) z_p(a) and
  d^2 = lambda + sum_a c_a z_p(a)^2 - ||l||^2, F gains (r - F^T l) / d. Where rho^2 is next to nothing, r has few
  correct digits; such posteriors are to be rebuilt.

Slots of points that left stay empty (zero rows and columns) until :func:`pack`, as directions noted before need their
points. Each change adds a multiple of h . k_D(x) to the mean of an arm, and a multiple of its square to the variance.
They are gathered as :class:`bo_robust.ops.dtc_scores.naive.Steps`, so that one pass over all arms applies them all.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from bo_robust.bandits.posteriors.arm_kernel import ArmKernel
from bo_robust.bandits.posteriors.whitening import update_cholesky_
from bo_robust.features.leverage import padded
from bo_robust.ops.dtc_scores.naive import Steps

SPARE = 16  # Empty slots made at once
# Share of its prior variance that a point must have left to be put in by a change: r is known to eps ||R|| / rho.
# Dictionaries that have points with less do not change but by a rebuild either.
SAFE_SHARE = 1e-7
# Changes multiply rounding by k / lambda: where eps k(x, x) / lambda is larger than this, everything is rebuilt. In
# float64 that is lambda below 2e-6 k(x, x), in float32 any usual lambda.
SAFE_ROUNDING = 1e-10


@dataclass
class Factors:
    """The factors of some trials, changed in place by the functions of this file.

    Attributes not listed here are those of :class:`bo_robust.bandits.posteriors.dtc.DTCPosterior`.
    """

    noise_var: Tensor
    trials: Tensor  # Which trials of the kernel these are, `s` long
    points: Tensor
    root: Tensor
    factor: Tensor
    weights: Tensor
    # Direction h of every change so far, `s x r` each; r is the number of slots at that time
    directions: list[Tensor] = field(default_factory=list)
    in_mean: list[Tensor] = field(default_factory=list)  # Factor of h . k_D(x) that each change adds to the mean, `s`.
    # Factor of (h . k_D(x))^2 that each change adds to the variance, `s`.
    in_variance: list[Tensor] = field(default_factory=list)
    taken: Tensor = field(init=False)  # Slots that are or were in use, `s x r` bool

    def __post_init__(self) -> None:
        self.taken = self.active

    @property
    def active(self) -> Tensor:
        """Slots in use, ``s x r`` bool."""
        return self.root.diagonal(dim1=1, dim2=2) > 0.0

    def steps(self) -> Steps:
        """All changes so far; there must be at least one."""
        r = self.points.shape[1]
        grown = [torch.nn.functional.pad(g, (0, r - g.shape[1])) for g in self.directions]
        return Steps(torch.stack(grown, 1), torch.stack(self.in_mean, 1), torch.stack(self.in_variance, 1))

    def note(self, direction: Tensor, in_mean: Tensor, in_variance: Tensor) -> None:
        """Record a change."""
        self.directions.append(direction)
        self.in_mean.append(in_mean)
        self.in_variance.append(in_variance)


def learn(factors: Factors, kernel: ArmKernel, arms: Tensor, counts: Tensor, sums: Tensor) -> None:
    """Observe ``counts`` rewards (``s x c``, zero where there are none) of ``arms`` (``s x c``) with the given sums."""
    k = kernel.between(arms, factors.points, factors.trials)
    for k_x, n, total in zip(k.unbind(1), counts.unbind(1), sums.unbind(1), strict=True):
        gain, norm = learn_(factors.factor, k_x, n)
        step = (total - n * (factors.weights * k_x).sum(1)) / (1.0 + norm)
        factors.weights = factors.weights + gain * step.unsqueeze(1)
        factors.note(gain, step, -factors.noise_var * n / (1.0 + norm))


def learn_(factor: Tensor, k: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """Update F (``s x r x r``) in place by ``n`` (``s``) more rewards of the arms with columns ``k`` (``s x r``).

    Returns F^T u (``s x r``) and n ||u||^2 (``s``) of the F before.
    """
    u = factor @ k.unsqueeze(2)
    gain = u.mT @ factor
    norm = n * u.square().sum((1, 2))
    size = (1.0 + norm).sqrt()
    factor.baddbmm_(u * (n / (size * (size + 1.0))).view(-1, 1, 1), gain, alpha=-1.0)
    return gain.squeeze(1), norm


def remove_points(factors: Factors, gone: Tensor) -> None:
    """Remove the points in the slots ``gone`` (``s x r`` bool, all in use)."""
    trial, gone = torch.arange(len(gone), device=gone.device), gone.clone()
    for _ in range(int(gone.sum(1).max())):
        do, slot = gone.any(1), gone.byte().argmax(1)
        gone[trial, slot] = False
        direction = _without(factors.root, slot, do)
        factors.note(direction, torch.zeros_like(factors.noise_var), torch.ones_like(factors.noise_var))
        direction, norm = _reflected(factors.factor, slot, do)
        drop = factors.weights[trial, slot] / norm
        factors.note(direction, -drop, -factors.noise_var)
        factors.weights = factors.weights - direction * drop.unsqueeze(1)
        factors.weights[trial, slot] = torch.where(do, 0.0, factors.weights[trial, slot])


def _without(R: Tensor, slot: Tensor, do: Tensor) -> Tensor:
    """Remove the point in ``slot`` from R in place, in the trials where ``do``; returns h, ``s x r``."""
    trial, first = torch.arange(len(slot), device=slot.device), int(slot.min())
    column, row = R[trial, :, slot], R[trial, slot]
    norm = torch.where(do, torch.linalg.vector_norm(column, dim=1), 1.0)
    direction = (column.unsqueeze(1) @ R).squeeze(1) * (do / norm).unsqueeze(1)
    pivot = torch.where(do, column[trial, slot], 1.0)
    below = torch.arange(R.shape[1], device=R.device) > slot.unsqueeze(1)
    u = torch.where(below & do.unsqueeze(1), -column / pivot.unsqueeze(1), 0.0)
    rest, u_rest = R[:, first:], u[:, first:]
    rest.addcmul_(u_rest.unsqueeze(2), row.unsqueeze(1))
    _clear(R, slot, do)
    update_cholesky_(rest, u_rest)
    return direction


def _reflected(F: Tensor, slot: Tensor, do: Tensor) -> tuple[Tensor, Tensor]:
    """Remove the point in ``slot`` from F in place, in the trials where ``do``; returns h, ``s x r``, and ||F e_j||."""
    trial = torch.arange(len(slot), device=slot.device)
    column = F[trial, :, slot]
    norm = torch.where(do, torch.linalg.vector_norm(column, dim=1), 1.0)
    column = column * (do / norm).unsqueeze(1)
    direction = (column.unsqueeze(1) @ F).squeeze(1)
    # The reflection goes to the far one of +-e_j, so that the subtraction cancels no digits.
    sign = torch.where(column[trial, slot] > 0.0, -1.0, 1.0).to(F) * do
    v = column.clone()
    v[trial, slot] -= sign
    along = direction - sign.unsqueeze(1) * F[trial, slot]  # v^T F
    scale = 2.0 / v.square().sum(1).clamp(min=1.0)  # v^T v >= 2 but where it is zero
    F.addcmul_((v * scale.unsqueeze(1)).unsqueeze(2), along.unsqueeze(1), value=-1.0)
    _clear(F, slot, do)
    return direction, norm


def _clear(A: Tensor, slot: Tensor, do: Tensor) -> None:
    """Zero the row and column of ``slot`` in the trials where ``do``."""
    trial, keep = torch.arange(len(slot), device=slot.device), ~do.unsqueeze(1)
    A[trial, slot] = torch.where(keep, A[trial, slot], 0.0)
    A[trial, :, slot] = torch.where(keep, A[trial, :, slot], 0.0)


def add_points(
    factors: Factors, kernel: ArmKernel, added: Tensor, counts: Tensor, sums: Tensor, spanned: Tensor
) -> Tensor:
    """Add the ``added`` arms (``s x n`` bool, none in the dictionary) that the others do not span, best first.

    ``counts`` and ``sums`` are the number and the sum of the rewards per arm, ``s x n``. An arm counts as spanned when
    at most the share ``spanned`` (``s``) of its prior variance is left.

    Returns:
        Trials left short of an arm, ``s`` bool: it is not spanned, but too nearly so to be added by a change.
    """
    points, is_point = padded(added)
    pulled, is_pulled = padded(counts > 0)
    counts, sums = counts.gather(1, pulled) * is_pulled, sums.gather(1, pulled) * is_pulled
    trial, trials = torch.arange(len(points), device=points.device), factors.trials
    prior = kernel.diagonal_of(points, trials).clamp(min=0.0)  # rounding may have made it negative
    k_pulled = kernel.between(pulled, factors.points, trials)
    k_wanted = kernel.between(points, factors.points, trials)
    explained = (k_wanted @ factors.root.mT).square().sum(2)  # ||R k_D||^2
    left = torch.where(is_point, prior - explained, 0.0)
    safe = spanned.clamp_min(SAFE_SHARE)
    while True:
        best = torch.where(prior > 0.0, left / prior, 0.0).argmax(1)
        best_left, best_prior = left[trial, best], prior[trial, best]
        do = best_left > safe * best_prior
        if not bool(do.any()):
            return best_left > spanned * best_prior
        slot, arm = _free_slots(factors, do), points[trial, best]
        grown = factors.points.shape[1] - k_pulled.shape[2]
        k_pulled, k_wanted = (torch.nn.functional.pad(k, (0, grown)) for k in (k_pulled, k_wanted))
        root_row = _row_of_root(factors.root, k_wanted[trial, best], best_left, slot, do)
        _fill(k_pulled, kernel.between(pulled, arm.unsqueeze(1), trials), slot, do)
        _fill(k_wanted, kernel.between(points, arm.unsqueeze(1), trials), slot, do)
        factor_row = _row_of_factor(factors, root_row, k_pulled, counts, do)
        factors.points[trial, slot] = torch.where(do, arm, factors.points[trial, slot])
        step = (sums.unsqueeze(1) @ k_pulled @ factor_row.unsqueeze(2)).view(-1)
        _add_rows(factors, root_row, factor_row, step, slot, do)
        left = (left - (k_wanted @ root_row.unsqueeze(2)).squeeze(2).square()).clamp_(min=0.0)
        left[trial, best] = torch.where(do, 0.0, left[trial, best])


def _add_rows(factors: Factors, root_row: Tensor, factor_row: Tensor, step: Tensor, slot: Tensor, do: Tensor) -> None:
    """Put the rows of a new point into R and F; ``step`` is its part of the weights."""
    trial = torch.arange(len(slot), device=slot.device)
    for A, row in ((factors.root, root_row), (factors.factor, factor_row)):
        A[trial, slot] = torch.where(do.unsqueeze(1), row, A[trial, slot])
    factors.weights = factors.weights + factor_row * step.unsqueeze(1)
    factors.note(root_row, torch.zeros_like(step), -torch.ones_like(step))
    factors.note(factor_row, step, factors.noise_var)


def _row_of_root(R: Tensor, k_p: Tensor, left: Tensor, slot: Tensor, do: Tensor) -> Tensor:
    """The row of R for a new point p with rho^2 = ``left``, ``s x r``; zero in the trials that get none."""
    trial = torch.arange(len(slot), device=slot.device)
    rho = torch.where(do, left, 1.0).sqrt()
    z = (R @ k_p.unsqueeze(2)).squeeze(2)
    row = -(z.unsqueeze(1) @ R).squeeze(1) / rho.unsqueeze(1)
    row[trial, slot] = 1.0 / rho
    return row.mul_(do.unsqueeze(1))


def _row_of_factor(factors: Factors, root_row: Tensor, k_pulled: Tensor, counts: Tensor, do: Tensor) -> Tensor:
    """The row of F for a new point, ``s x r``; zero in the trials that get none."""
    F = factors.factor
    feature = (k_pulled @ root_row.unsqueeze(2)).squeeze(2)
    weighted = counts * feature
    cross = (F @ (weighted.unsqueeze(1) @ k_pulled).mT).squeeze(2)
    surplus = ((weighted * feature).sum(1) - cross.square().sum(1)).clamp_(min=0.0)
    pivot = surplus.add_(factors.noise_var).sqrt_()
    row = (root_row - (cross.unsqueeze(1) @ F).squeeze(1)) / pivot.unsqueeze(1)
    return row.mul_(do.unsqueeze(1))


def _fill(k: Tensor, column: Tensor, slot: Tensor, do: Tensor) -> None:
    """Put ``column`` (``s x A x 1``) into the ``slot`` of ``k`` (``s x A x r``) in the trials where ``do``."""
    trial = torch.arange(len(slot), device=slot.device)
    k[trial, :, slot] = torch.where(do.unsqueeze(1), column.squeeze(2), k[trial, :, slot])


def _free_slots(factors: Factors, do: Tensor) -> Tensor:
    """The slot behind the last one that is or was in use, ``s`` long; makes space where there is none."""
    place = torch.arange(1, factors.points.shape[1] + 1, device=do.device)
    slot = (factors.taken * place).amax(1) * do
    if int(slot.max()) == len(place):
        pad = torch.nn.functional.pad
        for name in ("points", "weights", "taken"):
            setattr(factors, name, pad(getattr(factors, name), (0, SPARE)))
        for name in ("root", "factor"):
            setattr(factors, name, pad(getattr(factors, name), (0, SPARE, 0, SPARE)))
    factors.taken[torch.arange(len(slot), device=slot.device), slot] |= do
    return slot


def pack(factors: Factors) -> None:
    """Close the gaps that removed points left. Directions noted before no longer fit."""
    active = factors.active
    slots, used = padded(active)
    factors.points = factors.points.gather(1, slots) * used
    factors.weights = factors.weights.gather(1, slots) * used
    both = used.unsqueeze(1) & used.unsqueeze(2)
    for name in ("root", "factor"):
        A = torch.take_along_dim(getattr(factors, name), slots.unsqueeze(2), 1)
        setattr(factors, name, torch.take_along_dim(A, slots.unsqueeze(1), 2) * both)
