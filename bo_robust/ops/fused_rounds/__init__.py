"""All rounds of (T)GP-UCB over at most 128 arms in one call: select, reward, truncate, observe, T times.

On a GPU a round of a small problem is shorter than a single kernel launch. If the noise does not depend on the arm,
and widths and truncation levels depend on the round only, tables of them can be drawn beforehand. A round is then

    x_t = argmax mu + w_t sigma,  y_t = f(x_t) + eta_t,  y^_t = y_t 1{|y_t| <= b_t},  then mu and C conditioned on y^_t.

``naive`` is PyTorch; ``fused`` keeps each trial's covariance matrix in the registers of one Triton program.
"""

from torch import Tensor

from bo_robust.ops.checked import dispatch
from bo_robust.ops.fused_rounds import naive
from bo_robust.ops.fused_rounds.naive import FusedRounds
from bo_robust.utils.input_checks import check_like, check_tensor

__all__ = ["MAX_ARMS", "FusedRounds", "fused_rounds"]

# The covariance matrix must fit in the registers of one Triton program.
MAX_ARMS = 128


def fused_rounds(
    covariance: Tensor, mean: Tensor, f: Tensor, noise_var: Tensor, noise: Tensor, widths: Tensor, levels: Tensor
) -> FusedRounds:
    """Run T rounds in all trials. No argument is written to.

    Args:
        covariance: Prior C of every trial, ``s x n x n`` with n <= 128. It may be an expanded tensor.
        mean: Prior mean, ``s x n``.
        f: Mean rewards, ``s x n``.
        noise_var: lambda, ``s``.
        noise: eta_t, ``T x s``, finite.
        widths: w_t, ``T x s``.
        levels: b_t, ``T``. The level inf truncates nothing.

    Raises:
        ValueError: if shapes, dtypes or devices do not fit, or there are more than 128 arms.
    """
    check_tensor("f", f)
    (s, n), T = f.shape, len(noise)
    if n > MAX_ARMS:
        raise ValueError(f"fused_rounds takes at most {MAX_ARMS} arms, got {n}; run round by round.")
    for name, x, shape in (
        ("covariance", covariance, (s, n, n)),
        ("mean", mean, (s, n)),
        ("noise_var", noise_var, (s,)),
        ("noise", noise, (T, s)),
        ("widths", widths, (T, s)),
        ("levels", levels, (T,)),
    ):
        if x.shape != shape:
            raise ValueError(f"{name} must be {shape}, got {tuple(x.shape)}.")
        check_like(name, x, "f", f)
    given = covariance, mean, f, noise_var, noise, widths, levels
    return dispatch("fused_rounds", f, lambda fused: fused.fused_rounds(*given), lambda: naive.fused_rounds(*given))
