"""Truncated sums of ATA-GP-UCB: the Triton op against plain torch (CUDA), chunks against all at once (CPU).

``python -m benchmarks.truncated_sum [--device cuda]``
"""

from __future__ import annotations

import argparse
import json
from typing import Any, TypeAlias

import torch
from torch import Tensor

from benchmarks.common import copy_bandwidth, environment, medians, report
from bo_robust.ops.truncated_sum import naive, truncated_sum

Data: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]


def problem(s: int, p: int, t: int, dtype: torch.dtype, device: str) -> Data:
    """Root, features, Student-t(3) rewards of s trials, and a level that truncates about 1 % of the products."""
    generator = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype, device=device)

    root, features = normal(s, p, p) / p**0.5, normal(s, t, p)
    rewards = normal(s, t) / ((normal(s, t, 3) ** 2).mean(-1).sqrt())
    sample = root[0] @ features[0, :1000].mT * rewards[0, :1000]
    return root, features, rewards, sample.abs().flatten().quantile(0.99)


def bounds(data: Data, bandwidth: float) -> dict[str, float]:
    """Bytes read and flops of the sums, and what they would take at this device's copy and matrix product rates."""
    root, features, rewards, _ = data
    n = 8192 if root.is_cuda else 1024
    A, B = torch.randn(2, n, n, dtype=root.dtype, device=root.device)
    (matmul_s,) = medians(5, lambda: A @ B)
    rate, flops = 2.0 * n**3 / matmul_s, 2.0 * rewards.numel() * root.shape[-1] ** 2
    read = float(sum(x.numel() * x.element_size() for x in (root, features, rewards)))
    return {
        "GB_read": read / 1e9,
        "Tflop": flops / 1e12,
        "copy_GB_s": bandwidth / 1e9,
        "matmul_Tflop_s": rate / 1e12,
        "read_at_copy_rate_ms": 1e3 * read / bandwidth,
        "flops_at_matmul_rate_ms": 1e3 * flops / rate,
    }


def fused_case(s: int, p: int, t: int, dtype: torch.dtype, device: str, bandwidth: float, targets: bool) -> None:
    """The Triton op against plain torch, the faster of chunked and all at once; and its share of the roofline."""
    from bo_robust.ops.truncated_sum import fused

    data = problem(s, p, t, dtype, device)
    error = _difference(fused.truncated_sum(*data), naive.truncated_sum(*data))
    agrees = error < 1e-2  # a product that rounding carries across the level adds some 1e-4
    fused_s, chunked_s, direct_s = medians(
        7,
        lambda: fused.truncated_sum(*data),
        lambda: naive.truncated_sum(*data),
        lambda: naive.truncated_sum_direct(*data),
    )
    detail = bounds(data, bandwidth)
    read_ms = detail["read_at_copy_rate_ms"]
    roofline_ms = max(read_ms, detail["flops_at_matmul_rate_ms"])
    detail |= {
        "fused_ms": 1e3 * fused_s,
        "chunked_ms": 1e3 * chunked_s,
        "direct_ms": 1e3 * direct_s,
        "share_of_roofline": roofline_ms / (1e3 * fused_s),
        "bandwidth_share_at_roofline": read_ms / roofline_ms,
        "relative_difference": error,
    }
    speed, share = min(chunked_s, direct_s) / fused_s, read_ms / (1e3 * fused_s)
    for name, value, unit, least in (
        ("fused_vs_plain", speed, "x faster than the faster of chunked and direct", 10.0),
        ("bandwidth_share", share, "of copy bandwidth", 0.6),
    ):
        report(
            f"truncated_sum_s{s}_p{p}_t{t}_{str(dtype)[6:]}_{name}",
            value,
            unit,
            f">= {least:g}" if targets else None,
            value >= least and agrees if targets else None,
            _rounded(detail),
        )


def cpu_case(s: int, p: int, t: int, bandwidth: float) -> None:
    """What runs without CUDA, chunk by chunk, against all products at once; one thread."""
    data = problem(s, p, t, torch.float64, "cpu")
    chunked_s, direct_s = medians(
        7,
        lambda: truncated_sum(*data),
        lambda: naive.truncated_sum_direct(*data),
    )
    detail = bounds(data, bandwidth) | {
        "chunked_ms": 1e3 * chunked_s,
        "direct_ms": 1e3 * direct_s,
        "relative_difference": _difference(truncated_sum(*data), naive.truncated_sum_direct(*data)),
    }
    name = f"truncated_sum_s{s}_p{p}_t{t}_chunked_vs_direct"
    report(name, direct_s / chunked_s, "x faster", None, None, _rounded(detail))


def _difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


def _rounded(detail: dict[str, float]) -> dict[str, Any]:
    return {key: float(f"{value:.3g}") for key, value in detail.items()}


def main() -> None:
    """Print the environment, then one line per result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    print(json.dumps({"environment": environment()}), flush=True)
    with torch.inference_mode():
        if device == "cpu":
            torch.set_num_threads(1)
            bandwidth = copy_bandwidth("cpu")
            for s, p, t in ((1, 32, 100_000), (1, 128, 100_000), (16, 64, 2_000)):
                cpu_case(s, p, t, bandwidth)
            return
        bandwidth = copy_bandwidth(device, 1 << 28)
        for p in (128, 32):  # targets where they were set; p = 32 has a quarter of the flops a byte
            for dtype in (torch.float64, torch.float32):
                fused_case(64, p, 100_000, dtype, device, bandwidth, targets=p == 128)


if __name__ == "__main__":
    main()
