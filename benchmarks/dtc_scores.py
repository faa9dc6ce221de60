"""Scores of all arms under a DTC posterior: share of the matrix product peak, and speed against plain blocks.

``python -m benchmarks.dtc_scores [--device cuda]``
"""

from __future__ import annotations

import argparse
import json

import torch
from torch import Tensor

from benchmarks.common import environment, report
from benchmarks.stats import medians
from bo_robust.covariance import Matern, SquaredExponential
from bo_robust.features.nystrom import dictionary_root
from bo_robust.ops.dtc_scores import Dictionary, Scores, dtc_scores
from bo_robust.ops.dtc_scores.naive import BLOCK, layers

Covariance = SquaredExponential | Matern


def problem(n: int, r: int, d: int, covariance: Covariance) -> tuple[Tensor, Dictionary, Tensor]:
    """Arms of the unit cube, a dictionary of r of them, the posterior of 10 r rewards, and the noise variance."""
    generator = torch.Generator().manual_seed(0)
    arms = torch.rand(n, d, generator=generator, dtype=torch.float64)
    pulled = arms[torch.randperm(n, generator=generator)[: 10 * r]]
    root = dictionary_root(covariance(pulled[:r], pulled[:r]))
    points, R, noise = pulled[root.order], root.inverse, 0.1
    Z = covariance(pulled, points) @ R.mT
    L = torch.linalg.cholesky(Z.mT @ Z + noise * torch.eye(len(R), dtype=torch.float64))
    F = torch.linalg.solve_triangular(L, R, upper=False)
    rewards = torch.randn(len(Z), 1, generator=generator, dtype=torch.float64)
    weights = F.mT @ torch.linalg.solve_triangular(L, Z.mT @ rewards, upper=False)
    dictionary = Dictionary(points[None], R[None], F[None], weights.mT)
    return arms, dictionary, torch.tensor([noise], dtype=torch.float64)


def plain(arms: Tensor, dictionary: Dictionary, covariance: Covariance, noise_var: Tensor) -> Scores:
    """What one would write first: blocks of 2^21 covariances, two full matrix products."""
    mean, variance = dictionary.root.new_empty(2, 1, len(arms))
    R, F = dictionary.root[0], dictionary.factor[0]
    length = (1 << 21) // R.shape[-1]
    for start in range(0, len(arms), length):
        rows = slice(start, start + length)
        k = covariance(arms[rows].to(R.dtype), dictionary.points[0])
        explained = (k @ R.mT).square_().sum(1)
        left = (k @ F.mT).square_().sum(1).mul_(noise_var)
        mean[0, rows] = k @ dictionary.weights[0]
        variance[0, rows] = (covariance.outputscale - explained).clamp_(min=0.0).add_(left)
    return Scores(mean, variance)


def case(n: int, r: int, d: int, covariance: Covariance, dtype: torch.dtype, device: str, target: float | None) -> None:
    """One line: flops of the products that were done, a second, over those of a square matrix product."""
    arms, dictionary, noise = problem(n, r, d, covariance)
    arms, noise = arms.to(device, dtype), noise.to(device, dtype)
    kept = (dictionary.points, dictionary.root, dictionary.factor, dictionary.weights)
    dictionary = Dictionary(*(x.to(device, dtype) for x in kept))
    block, size = BLOCK, 1024
    if device != "cpu":
        from bo_robust.ops.dtc_scores import fused

        block, size = fused.BLOCK, 8192
    scores, other = dtc_scores(arms, dictionary, covariance, noise), plain(arms, dictionary, covariance, noise)
    A, B = torch.randn(2, size, size, dtype=dtype, device=device)
    op_s, plain_s, matmul_s = medians(
        7,
        lambda: dtc_scores(arms, dictionary, covariance, noise).best(2.0),
        lambda: plain(arms, dictionary, covariance, noise).best(2.0),
        lambda: A @ B,
    )
    rank = dictionary.root.shape[-1]
    peak = 2.0 * size**3 / matmul_s
    flops = 2.0 * n * sum(part[0].numel() for part in layers(dictionary, block))
    share = flops / op_s / peak
    family = "se" if isinstance(covariance, SquaredExponential) else f"matern{covariance.nu:g}"
    report(
        f"dtc_scores_{device}_n{n}_r{rank}_d{d}_{family}_{str(dtype)[6:]}",
        share,
        "of matrix product peak (flops done)",
        None if target is None else f">= {target:g}",
        None if target is None else share >= target,
        {
            key: float(f"{value:.3g}")
            for key, value in {
                "arms_per_s": n / op_s,
                "seconds": op_s,
                "plain_s": plain_s,
                "times_plain": plain_s / op_s,
                "peak_Tflop_s": peak / 1e12,
                "share_counting_4_r2_an_arm": 4.0 * n * rank**2 / op_s / peak,
                "mean_difference": float((scores.mean - other.mean).abs().max()),
                "variance_difference": float((scores.variance - other.variance).abs().max()),
            }.items()
        },
    )


def main() -> None:
    """Print the environment, then one line per result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    smooth, rough = SquaredExponential(0.5), Matern(2.5, 0.5)
    if device == "cpu":
        torch.set_num_threads(1)
    print(json.dumps({"environment": environment()}), flush=True)
    with torch.inference_mode():
        if device == "cpu":
            for covariance in (smooth, rough, Matern(0.5, 0.5)):
                case(1 << 17, 200, 6, covariance, torch.float64, device, None)
            case(1 << 15, 500, 6, smooth, torch.float64, device, None)
            return
        for dtype in (torch.float64, torch.float32):
            for covariance in (smooth, rough):
                case(1_000_000, 500, 6, covariance, dtype, device, 0.5)


if __name__ == "__main__":
    main()
