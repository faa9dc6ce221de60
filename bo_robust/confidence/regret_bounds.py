"""Computable regret bounds, to draw beside a regret curve.

Source: Srinivas et al. 2010, Theorems 1 and 2.
"""

import math

import torch
from torch import Tensor

from bo_robust.utils.input_checks import check_positive, check_tensor


def gp_ucb_regret_bound(widths: Tensor, information_gain: Tensor, noise_var: float, compact: bool = False) -> Tensor:
    """Bounds on R_1..R_T in units of f, R_T <= sqrt(C1 T w_T^2 gamma_T), plus 2 on a compact set; ``... x T``.

    C1 = 8 / log(1 + 1/noise_var). The bound holds with probability 1 - delta for every T at once if

    - f ~ GP(0, k) and the noise is Gaussian with variance ``noise_var``,
    - k(x, x) <= 1, which C1 assumes (otherwise rescale f and ``noise_var`` first), and
    - the widths are those of Theorem 1 (:class:`~bo_robust.confidence.FiniteWidth`) or, with ``compact``, of Theorem 2
      (:class:`~bo_robust.confidence.CompactWidth`), at scale 1.

    With other widths the curve is no guarantee. Where widths fall, the largest so far counts, as in the proof.

    Args:
        widths: w_1..w_T, ``... x T``.
        information_gain: gamma_1..gamma_T or upper bounds on them, ``... x T``. The realized gain of the points chosen
            also serves (the proof uses no more).
        noise_var: sigma^2 > 0.
        compact: Add the discretization term 2 of Theorem 2.

    Raises:
        ValueError: if the shapes differ, are empty, or ``noise_var`` is not positive.
    """
    check_positive(noise_var=noise_var)
    check_tensor("widths", widths, floating=False)
    check_tensor("information_gain", information_gain, floating=False)
    if widths.shape != information_gain.shape or widths.ndim == 0 or widths.shape[-1] == 0:
        shapes = f"{tuple(widths.shape)} and {tuple(information_gain.shape)}"
        raise ValueError(f"widths and information_gain must have one shape ... x T with T >= 1, got {shapes}.")
    rounds = torch.arange(1, widths.shape[-1] + 1, dtype=widths.dtype, device=widths.device)
    largest = widths.cummax(-1).values
    c1 = 8.0 / math.log1p(1.0 / noise_var)
    return largest * (c1 * rounds * information_gain).sqrt() + (2.0 if compact else 0.0)
