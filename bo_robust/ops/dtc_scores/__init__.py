"""Mean and variance of a block of arms under sparse (DTC) posteriors in one pass: the scoring of BKB and BBKB.

Calandriello et al. 2019, section 3, in the notation of :mod:`bo_robust.bandits.posteriors.dtc`: with D the dictionary,
R^T R = K_D^+, V = L L^T and F = L^{-1} R,

    mean(x) = k_D(x) . weights,    variance(x) = max(k(x, x) - ||R k_D(x)||^2, 0) + noise_var ||F k_D(x)||^2.

``naive`` is PyTorch, ``fused`` is Triton and cuBLAS for the stationary covariances of this package. Other
covariances take the naive path on CUDA too. No gradients.
"""

from torch import Tensor

from bo_robust.ops.checked import dispatch
from bo_robust.ops.dtc_scores import naive
from bo_robust.ops.dtc_scores.naive import Dictionary, Scores, form_of
from bo_robust.utils.covariance import Covariance


def dtc_scores(arms: Tensor, dictionary: Dictionary, covariance: Covariance, noise_var: Tensor) -> Scores:
    """Posterior mean and variance of f at B arms, for all s trials, in O(s B r^2).

    Memory beyond the result is that of one chunk of arms, so a block may be all arms. A NaN arm has NaN scores.

    Args:
        arms: ``B x d``, float32 or float64; converted to the dtype of the dictionary chunk by chunk. If points are not
            floating point, such as numbers of items, arms are passed to the covariance as they are.
        dictionary: The posteriors. Its dtype, float64 or float32, is that of the computation and of the result.
        covariance: k. This op evaluates :class:`bo_robust.utils.covariance.SquaredExponential` and
            :class:`bo_robust.utils.covariance.Matern` itself. It calls any other with a chunk of arms and one trial's
            points.
        noise_var: lambda, ``s``.

    Raises:
        ValueError: if a covariance of several lengthscales has not d of them.
    """
    form = form_of(covariance, dictionary.points)
    if form is None:
        return naive.dtc_scores(arms, dictionary, covariance, noise_var)
    return dispatch(
        "dtc_scores",
        dictionary.root,
        lambda fused: fused.dtc_scores(arms, dictionary, form, noise_var),
        lambda: naive.dtc_scores(arms, dictionary, covariance, noise_var),
    )
