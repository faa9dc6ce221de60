"""From rewards of the past to alpha, v, noise_var and a truncation rule."""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from bo_robust.tails.data import as_labels, as_rewards, within_arms
from bo_robust.tails.index import MIN_SIZE, TailIndex, default_k, hill, is_power_law, moment_index
from bo_robust.tails.moments import MIN_ARM, moment_bound
from bo_robust.truncation import TGPTruncation, median_mad
from bo_robust.validation import check_count, check_delta, is_number

MIN_ALPHA = 0.05
LARGE_ARM = 100  # rewards of an arm from which its moment is its own
SAFETY = 2.0  # times the limit of a moment: see moment_bound for what this factor achieves
# Thresholds of choose_rule, whose docstring explains them.
ENERGY_SHARE = 0.5
ONE_SIDED = 0.85
ZEROING_BIAS = 0.1


@dataclass(frozen=True)
class TruncationAdvice:
    """What :func:`choose_constants` found, in units of (y - centre) / scale.

    ``centre`` and ``scale`` are in units of y.

    Attributes:
        alpha: Exponent of the moment bound E|y|^(1+alpha) <= v, in (0, 1].
        moment_bound: v, for :class:`bo_robust.truncation.TGPTruncation` and the ATA levels.
        noise_var: lambda: within-arm variance of the rewards clipped at 2 v^(1/(1+alpha)), twice the level of round 1,
            whatever the rule. Without arm labels it includes the variance of f. Its root is a practical noise scale R.
            No R holds for heavy tails; their theorem (TGPWidth) uses b_t in its place.
        centre: Median of y, to subtract first.
        scale: Median absolute deviation of y, to divide by then.
        hill: Hill's estimate; like ``moment``, None where the largest |y| are equal or zero.
        moment: The moment estimate.
        power_tail: Whether the tail may be a power law (False: a light tail, or spikes beyond a gap).
        worthwhile: Whether truncation should gain much; where not, it should cost little.
        rule: The rule to truncate by: "zero" (TGP-UCB's), "clip" or "residual".
        text: All of it in words.
    """

    alpha: float
    moment_bound: float
    noise_var: float
    centre: float
    scale: float
    hill: TailIndex | None
    moment: TailIndex | None
    power_tail: bool
    worthwhile: bool
    rule: str
    text: str


def choose_rule(z: np.ndarray, labels: np.ndarray, level: float, tail: TailIndex | None) -> tuple[bool, str]:
    """Return whether truncation is worthwhile, and by which rule: "zero", "clip" or "residual".

    Let r be the centred, scaled rewards z minus the median of their arm; ``tail`` is the index of r if it has a power
    tail, else None. Truncation is worthwhile in two cases. The rewards beyond ``level`` (in units of z) hold at least
    half of the sum of r^2: truncating them at least halves the noise variance. Or the interval of ``tail`` ends below 2
    (infinite variance): few data may not yet show the worst.

    The rule, worthwhile or not, is "clip" if at least 85 % of the k largest |z| have one sign, because zeroing those
    would shift every arm's mean. Else it is "residual" if zeroing would move the mean of some arm by more than 0.1
    (share of its rewards beyond the level, times its |median|). Else it is "zero", the published rule.

    There is a rule in any case, because truncating what need not be costs little, and not truncating what must be costs
    much. ``benchmarks/results/rule_choice.jsonl`` compares this criterion with each fixed choice on nine problems, five
    of them real tables, by the geometric mean of average regret over that of the best rule.

    ``level`` is that of a reward of finite variance, b = sqrt(v) t^(1/4) with v from the data at alpha = 1, at t =
    min(horizon, number of rewards). Share of 200 data sets of 100 / 1,000 / 5,000 rewards that were judged worthwhile
    at horizon 3,000: Gaussian none; clean t(3) 10 / 3 / 2 %; symmetric Pareto II of index 1.5 88 / 88 / 99 %, of 1.2
    93 / 98 / 100 %; spikes of 100 at 1 in 500 16 / 85 / 100 %, which is how often the data hold one.
    """
    r = within_arms(z, labels)
    worthwhile = _energy_share(z, r, level) >= ENERGY_SHARE or (tail is not None and tail.upper < 2.0)
    largest = np.argsort(-np.abs(z), kind="stable")[: default_k(len(z))]
    positive = float((z[largest] > 0.0).mean())
    if max(positive, 1.0 - positive) >= ONE_SIDED:
        return worthwhile, "clip"
    bias = np.bincount(labels, (np.abs(z) > level) * np.abs(z - r)) / np.bincount(labels)
    return worthwhile, "residual" if bias.max() > ZEROING_BIAS else "zero"


def choose_constants(
    y: Any, arms: Any = None, *, horizon: int = 1000, delta: float = 0.1, f_scale: float | None = None
) -> TruncationAdvice:
    """Choose centre, scale, alpha, v, noise_var and a truncation rule from past rewards.

    alpha is 1 where the variance looks finite: the lower end of Hill's interval exceeds 2, or there is no power tail
    (moment estimate gamma <= 0, or spikes beyond a gap). Else it is (index - 1) / 2, not above 1 nor below 0.05. The
    index is taken midway between Hill's estimate and the lower end of its interval. With the estimate alone, alpha lay
    above index - 1, where there is no moment, in 22 % of 200 data sets of 1,000 rewards of symmetric Pareto II of index
    1.2; now it does in 6 %. Half, because moments just below the index cannot be estimated: for 10,000 rewards of
    symmetric Pareto II of index 1.5 the sample mean of |y|^(1+alpha) is typically 0.46 of the true one at alpha 0.4,
    0.80 at 0.25.

    v is twice the upper limit of :func:`.moment_bound`. If some arm has 100 rewards, it is the largest limit of the
    arms with at least 40. Else rewards are pooled, because a single fault would make the limit of its arm. If some arm
    has 40, what is pooled are the rewards r around their arm's median, and the largest |median| of these arms enters
    as ``f_scale`` does. The rule is :func:`choose_rule`'s.

    Args:
        y: At least 100 rewards, any shape: numpy, torch or pandas. They must be independent: correlated rewards make
            the intervals too narrow.
        arms: Label of the arm (or point) of each reward; the tail is then that of the rewards around their arm's
            median. None treats differences in f as noise.
        horizon: T, the number of rounds to be played.
        delta: All intervals and limits have confidence 1 - delta.
        f_scale: The largest |f - centre| expected at any arm, in units of y, if the data come from few points. v is
            then (f_scale / scale + (E|r|^(1+alpha))^(1/(1+alpha)))^(1+alpha), by Minkowski's inequality.

    Raises:
        ValueError: if rewards are not finite, fewer than 100, or more than half of them equal; if no arm has two
            rewards; or if an argument is out of range.

    Warns:
        UserWarning: if the tail index is 1 or less: rewards then have no mean, and no method can find its maximum.
    """
    values = as_rewards(y)
    labels = as_labels(arms, len(values))
    check_count(1, horizon=horizon)
    check_delta(delta)
    if f_scale is not None and not (is_number(f_scale) and f_scale >= 0.0):
        raise ValueError(f"f_scale must be a finite number >= 0, in units of y, got {f_scale!r}.")
    if len(values) < MIN_SIZE:
        raise ValueError(f"{len(values)} rewards are too few to tell their tail; take at least {MIN_SIZE}.")
    k = default_k(len(values))
    centre, scale = median_mad(values)
    z = (values - centre) / scale
    r = within_arms(z, labels)

    by_hill: TailIndex | None = None
    by_moments: TailIndex | None = None
    try:
        by_hill, by_moments = hill(r, k, 1.0 - delta), moment_index(r, k, 1.0 - delta)
    except ValueError:  # y is checked: the k largest |r| are equal, or some are zero
        power_tail = False
    else:
        power_tail = math.isfinite(by_moments.index) and is_power_law(r, k)
    tail = by_hill if power_tail else None
    if tail is not None and tail.index <= 1.0:
        warnings.warn(_no_mean(tail), stacklevel=2)
    alpha = 1.0
    if tail is not None and tail.lower <= 2.0:
        alpha = min(1.0, max(MIN_ALPHA, 0.5 * (0.5 * (tail.index + tail.lower) - 1.0)))

    counts = np.bincount(labels)
    groups = labels if counts.max() >= LARGE_ARM else None
    # Few rewards tell an arm's median, but not its moment.
    medians = np.abs(z - r)[counts[labels] >= MIN_ARM] if groups is None else z[:0]

    def limit(rewards: np.ndarray, alpha: float) -> float:
        return SAFETY * moment_bound(rewards, alpha, groups, confidence=1.0 - delta).upper

    def with_f(largest: float, alpha: float) -> float:
        return float((largest + limit(r, alpha) ** (1.0 / (1.0 + alpha))) ** (1.0 + alpha))

    def bound_of_z(alpha: float) -> float:
        return with_f(float(medians.max()), alpha) if len(medians) else limit(z, alpha)

    v = bound_of_z(alpha) if f_scale is None else with_f(f_scale / scale, alpha)
    truncation = TGPTruncation(v, alpha)
    noise_var = _within_variance(np.clip(z, -2.0 * truncation(1), 2.0 * truncation(1)), labels)
    finite = TGPTruncation(bound_of_z(1.0), 1.0)(min(horizon, len(z)))
    worthwhile, rule = choose_rule(z, labels, finite, tail)
    text = " ".join(
        part
        for part in [
            f"{len(z)} rewards" + ("." if arms is None else f" of {labels.max() + 1} arm(s)."),
            f"Play (y - {centre:.6g}) / {scale:.6g}; all that follows is in these units.",
            _tail_text(by_hill, by_moments, power_tail),
            f"alpha = {alpha:.3g}, v = {v:.4g}, noise_var = {noise_var:.4g}:",
            f"TGP-UCB's level grows from {truncation(1):.3g} to {truncation(horizon):.3g} at round {horizon}, beyond "
            f"which lie {100.0 * _share(z, truncation(horizon)):.2g} % of these rewards.",
            f"{100.0 * _share(z, finite):.2g} % lie beyond {finite:.3g}, where rewards of finite variance hardly come, "
            f"and hold {100.0 * _energy_share(z, r, finite):.0f} % of the squared deviations.",
            _WORTHWHILE[worthwhile],
            _RULE_ADVICE[rule],
            _TIMID if worthwhile and _energy_share(z, r, truncation(horizon)) < ENERGY_SHARE else "",
        ]
        if part
    )
    return TruncationAdvice(
        alpha=alpha,
        moment_bound=v,
        noise_var=noise_var,
        centre=centre,
        scale=scale,
        hill=by_hill,
        moment=by_moments,
        power_tail=power_tail,
        worthwhile=worthwhile,
        rule=rule,
        text=text,
    )


_WORTHWHILE = {
    True: "Truncation is worthwhile.",
    False: "Truncation is not worthwhile: it will hardly change anything, and plain GP-UCB should do about as well.",
}
_RULE_ADVICE = {
    "zero": "The largest rewards have either sign: set rewards beyond the level to zero (rule 'zero', TGP-UCB's).",
    "clip": (
        "The largest rewards have one sign: clip rewards to the level (rule 'clip'), for zeroing them would be a bias "
        "at every arm."
    ),
    "residual": (
        "Zeroing would pull arms far from the centre towards it: truncate what is left after subtracting the posterior "
        "mean (rule 'residual'). The theorem covers it with a `reference_bound`."
    ),
}
_TIMID = (
    "But at the last round the theorem's level truncates next to nothing; a scale below 1 (say 0.3) truncates more, "
    "outside the theorem."
)


def _energy_share(z: np.ndarray, r: np.ndarray, level: float) -> float:
    """Share of the sum of r^2 at rewards beyond the level; 0 where r is 0 throughout."""
    squares = r**2
    return float(squares[np.abs(z) > level].sum() / max(squares.sum(), np.finfo(float).tiny))


def _share(z: np.ndarray, level: float) -> float:
    return float((np.abs(z) > level).mean())


def _within_variance(z: np.ndarray, labels: np.ndarray) -> float:
    """Variance around the arms' means, pooled (divisor: rewards minus arms)."""
    counts = np.bincount(labels)
    freedom = len(z) - len(counts)
    if freedom == 0:
        raise ValueError("no arm has two rewards, so noise cannot be told from f; leave out arms to pool them.")
    means = np.bincount(labels, z) / counts
    return float(((z - means[labels]) ** 2).sum() / freedom)


def _tail_text(by_hill: TailIndex | None, by_moments: TailIndex | None, power_tail: bool) -> str:
    if by_hill is None or by_moments is None:
        return "The largest rewards are equal: there is no tail to estimate."
    numbers = f"Tail index {_interval(by_hill)} by Hill, {_interval(by_moments)} by moments (k = {by_hill.k})"
    if not power_tail:
        light = math.isinf(by_moments.index)
        return (
            f"{numbers}, but it is no power law: {'the tail is light' if light else 'a clump of spikes beyond a gap'}."
        )
    if by_hill.index <= 1.0:
        return f"{numbers}. {_no_mean(by_hill)}"
    if by_hill.upper < 2.0:
        return f"{numbers}: the variance is infinite."
    return f"{numbers}: " + ("the variance is finite." if by_hill.lower > 2.0 else "the variance may be infinite.")


def _no_mean(tail: TailIndex) -> str:
    return (
        f"The tail index is {_interval(tail)}: at 1 or less rewards have no mean, and no method can find the arm of "
        "largest mean. Optimise a transform of the reward (its logarithm, a quantile) instead."
    )


def _interval(tail: TailIndex) -> str:
    return f"{tail.index:.2f} [{tail.lower:.2f}, {tail.upper:.2f}]".replace("inf", "∞")
