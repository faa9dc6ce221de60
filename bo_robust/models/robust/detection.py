"""Outlier detection for a GP: a set of inliers and hyperparameters, chosen together by marginal likelihood.

Names in capitals are constants of this file, of :mod:`bo_robust.models.robust.search` and
:mod:`bo_robust.models.robust.local_deviation`; ``share`` and ``density`` are what the user may say of outliers.

**Objective.** Some observations S are inliers, the others D are outliers (gross errors). With the hyperparameters theta
they maximize

    J(S, theta) = log p(y_S | theta) + log p(theta) + sum_(i in D) log p_0(y_i) + o_1 + ... + o_|D| + strong [D empty],
    o_k = log(k / (b + n - k)),    b = 1 / share - 1,    p_0(y) = density / s min(1, (s / (4 density |y - m|))^2),

where m is the median and s the robust standard deviation of the observations, and strong = EVIDENCE_REQUIRED. The
share of outliers has the prior Beta(1, b), whose mean is ``share``. So o_k is the log odds of the k-th outlier, and
each further outlier costs less. The density p_0 of an outlier is flat up to s / (4 density), five s by default,
decays from there on as that of a Cauchy variable, and has mass 1: an outlier costs more the farther out it is, or a
good region far above many nearly equal observations would be flagged. A function that no kernel fits well gains less
than ``EVIDENCE_REQUIRED`` by leaving rows out.

**Units.** The GP sees observations in units of the inliers, (y - mean_S) / sd_S, clipped to m +- CLIP s. Noise of
standard deviation NOISE max(1, s / sd_S) is added to that of the model: hyperparameters of few observations often leave
hardly any, so that everything that no kernel fits exactly would look like an outlier, and a cluster of nearly equal
observations would be the best S. A GP that sees observations in their own units has NOISE min(1, s).

**Search.** At fixed theta row i leaves S if log p(y_i | y_S without i) < o_(|D| + 1) + log p_0(y_i), and j enters if
log p(y_j | y_S) > o_|D| + log p_0(y_j). Leave-one-out moments are in closed form (Rasmussen & Williams 2006, equations
5.10 to 5.12). At least half of the rows stay. The search climbs over S and theta in turn from these initial sets: all
rows, and the n (1 - q) observations, at most n - 1, that lie closest together, for q in SPARSE. With fewer than
``MIN_OBSERVATIONS`` all are inliers.

**Local deviations.** Next, outliers become inliers again where a local deviation of f is likelier than as many gross
errors; see :mod:`bo_robust.models.robust.local_deviation`. So two replicates that agree are inliers, however far out
they are, unless another one at their point is like all others; three that agree outvote it, and it is the outlier. The
deviations join the GP, and the rows are chosen once more. All observations are inliers if J of all is larger there.

**What the others foretell is no outlier.** Gross errors fall anywhere, so their values say nothing of each other. A
steep step or a plateau without noise also gives a cluster S of nearly equal observations a high J, and the rest of a
right function leaves. So the outliers D stay inliers if a GP fitted to all rows, without added noise, predicts them
from all others: let e be its leave-one-out residuals in D, and e_0 the residuals given S less their mean over the other
rows, which is what outliers of one side let the others know. If |D| log(rms e_0 / rms e), the log likelihood ratio of
normal errors, exceeds ``EVIDENCE_REQUIRED``, all are inliers. If half of the observations would be outliers at the
end, which is the most, nothing tells which half is right, and all are inliers.

**Outcome scales.** Positive and skewed observations may be normal in another scale w = T(y), their logarithm or a
root (:mod:`bo_robust.models.robust.outcome_scale`). The search is then made in every scale that the inliers of the
given one allow, from these and from all rows; but where the square root has a smaller J than the given scale, so have
the fourth root and the logarithm. There p(y) = p(w) T'(y), while p_0 stays as it is, since a gross error knows no
scale, and an observation outside the domain of T is an outlier. The posterior of a scale is proportional to
exp(J), where J of all but the given scale is ``SCALE_EVIDENCE`` less. Inliers are the rows that are inliers with a
probability of at least 1/2 over the scales.

**A scale must predict.** J is of densities, and a density says little of means: E y of a logarithm grows by exp(v / 2).
So the scale of the model is the one with the largest J + log L, where L is the likelihood of its errors at points left
out, replicates together, in the units of y, normal errors of the variance that fits them best: n log rms less, over the
n rows that are inliers in it and in the given one. Only scales of a larger J than the given one compete, whose rms is
at most ``WORST_RATIO`` times that of the given one: many rows where f is flat may gain J, and the few others be lost.
The means are E T^-1(w) over the variance of f, by hyperparameters fitted to the inliers without added noise.

A logarithm forgives a factor of ten, which is what people mistype. So an inlier is held if it is an outlier in the
given scale and an inlier in that of the largest J, which need not be the model's, lies beyond all rows that are inliers
in both, unless a replicate lies there, too, and agrees better with the others once it is divided or multiplied by ten.
None is where the learnt scale gains another ``DECISIVE`` times ``SCALE_EVIDENCE``.

**Limits.** Observations beyond the limits of the outcomes are outliers in every scale, and no local deviation explains
them. "D empty" then means that all outliers are beyond the limits.

**Rounding.** Where observations are equal, the search adds at least the noise of rounding, of variance c^2 / 12 for
cells of width c. They are at least as wide as the smallest difference of observations, and as the cell that holds as
many of n normal numbers of standard deviation s as are equal.

**Outlier statistics.** They have the noise that the search adds, which the fitted model has not. Let e be the
leave-one-out residual of an observation given the other inliers, v its variance, and h its o + log p_0. The
standardized residual is e / sqrt(v), its limit sqrt(2 max(0, log N(0; 0, v) - h)), and the log odds of an inlier are
log N(e; 0, v) - h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from bo_robust.models.marginal_likelihood import Array
from bo_robust.models.robust.conditioned_gp import Rows
from bo_robust.models.robust.decided import Detection
from bo_robust.models.robust.outcome_scale import IDENTITY, POWERS, OutcomeScale, outcome_scales
from bo_robust.models.robust.search import OutlierSearch, SearchData, rms
from bo_robust.models.robust.slips import ASKED, Expected, Readings, slip_of

SCALE_EVIDENCE = 8.0  # nats by which another scale must improve on the given one: good outliers make data skewed, too
BATCH_EVIDENCE = 0.0  # nats where batches are known: a factor that one shares is one deviation of logarithms alone
WORST_RATIO = 1.1  # of the error of a learnt scale to that of the given one
DECISIVE = 3.0  # multiples of ``SCALE_EVIDENCE`` beyond it from which on no row is held


def detect(data: SearchData, scale: OutcomeScale = IDENTITY, limits: tuple[float, float] | None = None) -> Detection:
    """Choose the outcome scale, inliers and hyperparameters together.

    Args:
        data: What is searched.
        scale: The given scale.
        limits: Limits of the outcomes, for other scales that may be learnt; None: none is.
    """
    given = data.search(scale)
    first = given.fit()
    searches, found = [given], [first]
    for other in [] if limits is None else outcome_scales(torch.from_numpy(data.y[first.inliers]), limits)[1:]:
        worse = found[-1].log_evidence < first.log_evidence
        if found[-1].scale.power == POWERS[0] and worse and not data.batched:
            break  # J falls further along the powers, unless logarithms alone make the factors of batches shifts
        searches.append(data.search(other))
        found.append(searches[-1].fit(first))
    detection = _over_scales(data, searches, found) if len(found) > 1 and np.isfinite(first.log_evidence) else first
    outliers = int((~detection.inliers & data.possible).sum())
    if given.is_most(outliers):
        return replace(given.statistics(given.domain.copy()), undecided=outliers)
    return detection


def detect_at_present(data: SearchData, scale: OutcomeScale) -> Detection:
    """Choose inliers at the hyperparameters of the model, in its scale."""
    found = data.search(scale).at_present()
    if scale.is_identity:
        return found
    given, learnt = data.search().fit(), data.search(scale)
    return replace(found, held=_held(data, found.inliers, given, learnt, learnt.fit(given)))


def restate(data: SearchData, detection: Detection, probability: bool) -> Detection:
    """The detection with statistics at the hyperparameters of the model; that of an inlier if ``probability``."""
    found = data.search(detection.scale).at_present(detection.inliers)
    probabilities = (found if probability else detection).probability.copy()
    for slip in detection.slips:
        wrong = [row for row in slip.rows if not found.inliers[row]]  # the source of a copy is right
        probabilities[wrong] /= 1.0 + math.exp(min(slip.log_odds, 700.0))
    return replace(found, held=detection.held, slips=detection.slips, probability=probabilities)


def with_single_slips(data: SearchData, detection: Detection, unit: float) -> Detection:
    """The detection, with what may have happened to its other outliers and held rows, one by one."""
    known = {row for slip in detection.slips for row in slip.rows}
    rows = [row for row in np.flatnonzero(~detection.inliers | detection.held).tolist() if row not in known]
    if not rows or detection.loo_mean is None or detection.loo_variance is None:
        return detection
    log_p0 = data.search().log_p0
    expected = Expected(detection.scale, detection.loo_mean, detection.loo_variance, log_p0)
    readings = Readings(data.y, unit)
    # A held row agrees better with the others once it is corrected: that is what it is held for.
    found = [slip_of(row, readings, expected, -math.inf if detection.held[row] else ASKED) for row in rows]
    return replace(detection, slips=(*detection.slips, *(slip for slip in found if slip is not None)))


def _evidence_required(data: SearchData) -> float:
    return BATCH_EVIDENCE if data.batched else SCALE_EVIDENCE


def _over_scales(data: SearchData, searches: Sequence[OutlierSearch], found: Sequence[Detection]) -> Detection:
    """The detection in the scale that predicts, of the inliers over all scales; the first is the given one."""
    evidence = np.array([each.log_evidence for each in found])
    evidence[1:] -= _evidence_required(data)
    top = int(np.nanargmax(evidence))
    weights = np.nan_to_num(np.exp(evidence - evidence[top]))
    weights /= weights.sum()
    best = _predicting(data.y, searches, found, evidence)
    inliers = searches[best].domain & (weights @ np.stack([each.inliers for each in found]) >= 0.5)
    probability = weights @ np.stack([each.probability for each in found])
    held = _held(data, inliers, found[0], searches[top], found[top])
    own = found[best] if np.array_equal(inliers, found[best].inliers) else searches[best].statistics(inliers)
    return replace(own, probability=probability, held=held)


def _predicting(y: Array, searches: Sequence[OutlierSearch], found: Sequence[Detection], evidence: Array) -> int:
    """The scale of the largest evidence plus log likelihood of its leave-one-out errors."""
    rivals = np.flatnonzero(evidence > evidence[0])
    if not len(rivals):
        return 0
    inliers, errors = found[0].inliers, y - searches[0].predictions(found[0].inliers)
    scores = {0: float(evidence[0])}
    for k in rivals.tolist():
        both = inliers & found[k].inliers
        own = y - searches[k].predictions(found[k].inliers)
        ratio = rms(own[both]) / rms(errors[both])
        if ratio <= WORST_RATIO:
            scores[k] = float(evidence[k]) - both.sum() * math.log(ratio)
    return max(scores, key=lambda k: scores[k])


def _held(data: SearchData, inliers: Rows, given: Detection, learnt: OutlierSearch, found: Detection) -> Rows:
    """Which rows are inliers in a learnt scale alone, beyond all that are inliers in both, and look mistyped, ``n``.

    Two replicates that both lie there confirm each other. None is held where the evidence of the learnt scale is
    decisive: then it explains more than these rows.
    """
    both, alone = inliers & given.inliers, inliers & ~given.inliers
    held = np.zeros_like(inliers)
    if both.any():
        for beyond in (data.y > data.y[both].max(), data.y < data.y[both].min()):
            side = alone & beyond
            held |= side & ~np.any(data.replicates & side, axis=1)
    gain = found.log_evidence - _evidence_required(data) - given.log_evidence
    if gain >= DECISIVE * SCALE_EVIDENCE or not held.any():
        return np.zeros_like(held)
    return held & learnt.mistyped(data.y, found)
