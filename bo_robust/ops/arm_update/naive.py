"""One round of an exact GP posterior over finite arms, in PyTorch on any device.

Rounds come in blocks. Let C_base be the posterior covariance at the start of the block. Each of the k rounds since then
leaves one scaled row p_i, and

    C[a, :] = C_base[a, :] - sum_i p_i[a] p_i,          p_i = C_{i-1}[a_i, :] / sqrt(lambda + C_{i-1}[a_i, a_i]),
    mean += p (y - mean[a]) / sqrt(lambda + C[a, a]),   variance -= p^2.

C_base has two layouts.

* **dense**: C_base itself, ``n x n``. At the end of a block C_base -= P^T P, one matrix product.
* **low rank**: the prior rows K_D of the m arms D pulled so far. N pulls of an arm are one reward of noise lambda / N.
  So with N the numbers of pulls at the block start,

      C_base[a, :] = K[a, :] - K_aD (K_DD + lambda N^-1)^-1 K_D = w^T K_D,    w = e_a - R^T R K_Da,

  where R = L^-1 S, S = (N / lambda)^(1/2), L L^T = I + S K_DD S. At the end of a block one m x m Cholesky
  factorization gives a new R. A block grows with m, on a CPU to m / 4 rounds: this is O(m^2) a round. The explicit
  inverse R^T R would lose the digits of lambda / N twice over, and updates of the rows of C_base would multiply errors
  by N / lambda with every new arm.

So a round is O(n m) for m distinct arms, however many rounds were run.

Functions ending in ``_`` write into the buffers they are given.
"""

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from bo_robust.utils.linalg import all_numbers, on_cuda

LONGEST_BLOCK = 256  # rounds, on CUDA


class PriorRows(Protocol):
    """The prior covariance, :class:`bo_robust.bandits.posteriors.arm_kernel.ArmKernel`."""

    def rows(self, arms: Tensor) -> Tensor:
        """Rows K[a, :] of one arm per trial, ``s x n``."""

    def write_row(self, arm: int, trial: int, out: np.ndarray) -> None:
        """Write K[a, :] of one arm in one trial into ``out``, ``n``, on a CPU."""


@dataclass
class ArmBuffers:
    """Tensors of s trials over n arms, with space for c covariance rows and b pending rows.

    The seven from ``row_arm`` to ``block_filled`` belong to the low-rank layout.
    """

    noise_var: Tensor  # lambda, `s`
    mean: Tensor  # `s x n`
    variance: Tensor  # `s x n`, never negative
    counts: Tensor  # Rewards observed per arm, `s x n`
    information_gain: Tensor  # 1/2 sum log(1 + c_t sigma_{t-1}^2(x_t) / lambda) for c_t rewards of x_t at once, `s`
    pending: Tensor  # Scaled rows p of the block, `s x b x n`
    rows: Tensor  # C_base, `s x n x n` (dense), or the prior rows K_D, `s x c x n` (low rank)
    row_arm: Tensor  # D, `s x c`
    row_counts: Tensor  # N, the pulls of D at the block start, `s x c`; zero for newer arms
    root: Tensor  # R, `s x c x c`. Columns with N = 0 are zero.
    root_ready: Tensor  # Whether R is that of this block, `s`
    slots: Tensor  # The row of each arm, `s x n`; -1 if it has none
    filled: Tensor  # Rows in use, `s`
    block_filled: Tensor  # Rows in use at the block start, `s`
    dense: bool  # Whether the layout is dense
    # So many trials after another are one group: they pull the same arms and get the same rewards
    group: int = 1
    num_pending: int = 0  # k
    num_rows: int = 0  # Upper bound of `filled` that the host knows. Rows beyond it are not read.
    whole: bool = False  # But they are read, as zeros, where sizes of a round must stay
    # On a CPU, per trial or group and arm: the pending row of its last pull in this block, and the factor (of a group,
    # ``h``) that makes it C[a, :]
    pulled: dict[tuple[int, int], tuple[int, Any]] = field(default_factory=dict, init=False, repr=False)
    _arrays: SimpleNamespace | None = field(default=None, init=False, repr=False)

    @classmethod
    def of_no_rewards(
        cls, noise_var: Tensor, mean: Tensor, variance: Tensor, rows: Tensor, block: int, dense: bool, **own: Any
    ) -> Self:
        """The prior; these tensors become buffers. Low rank, ``rows`` is space for prior rows.

        ``own`` are the fields of a subclass.
        """
        s, n = mean.shape
        tracked = 0 if dense else rows.shape[1]
        return cls(
            noise_var=noise_var,
            mean=mean,
            variance=variance,
            counts=torch.zeros_like(mean),
            information_gain=torch.zeros_like(noise_var),
            pending=mean.new_empty(s, block, n),  # written before it is read
            rows=rows,
            row_arm=mean.new_zeros(s, tracked, dtype=torch.long),
            row_counts=mean.new_zeros(s, tracked),
            root=zeros_like_shape((s, tracked, tracked), mean),
            root_ready=mean.new_zeros(s, dtype=torch.bool),
            slots=mean.new_full((s, 0 if dense else n), -1, dtype=torch.long),
            filled=mean.new_zeros(s, dtype=torch.long),
            block_filled=mean.new_zeros(s, dtype=torch.long),
            dense=dense,
            **own,
        )

    @property
    def arrays(self) -> SimpleNamespace:
        """On a CPU the tensors as NumPy arrays in the same memory, by name. They are made when first asked for."""
        if self._arrays is None:
            own = vars(self).items()
            self._arrays = SimpleNamespace(**{name: x.numpy() for name, x in own if isinstance(x, Tensor)})
        return self._arrays

    def replace(self, **tensors: Tensor) -> None:
        """Put others in the place of some of the tensors; :attr:`arrays` are made anew."""
        for name, x in tensors.items():
            setattr(self, name, x)
        self._arrays = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the arrays: those of a copy are to be views of its own tensors."""
        return self.__dict__ | {"_arrays": None}


def zeros_like_shape(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Zeros of the dtype and device of ``like``; on a CPU by calloc, which takes a page only when it is written."""
    if on_cuda(like):
        return like.new_zeros(shape)
    return torch.from_numpy(np.zeros(shape, dtype=like.numpy().dtype))


def update_(
    buffers: ArmBuffers, arms: Tensor, rewards: Tensor, kernel: PriorRows, counts: Tensor | None = None
) -> Tensor:
    """Observe one reward per trial, and return whether it was observed, ``s`` bool.

    Args:
        buffers: State, updated in place. There must be space for one more row per trial.
        arms: ``s``, long.
        rewards: ``s``. A NaN or infinite one, and one of an arm out of range, leaves its trial as it is.
        kernel: Prior covariance.
        counts: Numbers of pulls of which the rewards are means, ``s``: a reward has noise lambda / count. Zero leaves
            the trial as it is. None means one everywhere.
    """
    begin_round_(buffers)
    last = buffers.mean.shape[1] - 1
    rewards = torch.where((arms >= 0) & (arms <= last), rewards, math.nan)
    arms = arms.clamp(0, last)
    base = _dense_rows(buffers, arms) if buffers.dense else _low_rank_rows_(buffers, arms, kernel)
    ok = apply_(buffers, posterior_row(buffers, base, arms), arms, rewards, counts)
    return ok & all_numbers(buffers.mean, buffers.variance)


def begin_round_(buffers: ArmBuffers) -> None:
    """Begin a new block if there is no space for one more pending row."""
    if buffers.num_pending == buffers.pending.shape[1]:
        end_block_(buffers)
        if not buffers.dense:
            refresh_root_(buffers, slice(None), min(buffers.num_rows, buffers.rows.shape[1]), branch_free=True)


def _dense_rows(buffers: ArmBuffers, arms: Tensor) -> Tensor:
    """C_base[a, :], ``s x n``."""
    s, n = buffers.mean.shape
    return buffers.rows.gather(1, arms.view(s, 1, 1).expand(s, 1, n)).squeeze(1)


def _low_rank_rows_(buffers: ArmBuffers, arms: Tensor, kernel: PriorRows) -> Tensor:
    """C_base[a, :], ``s x n``. Stores the prior row of a new arm first. No branch on data."""
    s, n = buffers.mean.shape
    capacity = buffers.rows.shape[1]
    buffers.num_rows = min(buffers.num_rows + 1, capacity)
    m = capacity if buffers.whole else buffers.num_rows
    rows, row_arm, root = buffers.rows[:, :m], buffers.row_arm[:, :m], buffers.root[:, :m, :m]
    index = arms.unsqueeze(1)
    slot = buffers.slots.gather(1, index)
    new = slot < 0
    slot = torch.where(new, buffers.filled.unsqueeze(1), slot)
    k_row = kernel.rows(arms)
    rows.scatter_(1, slot.unsqueeze(2).expand(s, 1, n), k_row.unsqueeze(1))
    row_arm.scatter_(1, slot, index)
    buffers.slots.scatter_(1, index, slot)
    buffers.filled.add_(new.squeeze(1))
    at_arms = k_row.gather(1, row_arm).unsqueeze(2)
    weights = torch.bmm(root.mT, torch.bmm(root, at_arms)).squeeze(2).neg_()
    weights.scatter_add_(1, slot, torch.ones_like(slot, dtype=weights.dtype))
    return torch.bmm(weights.unsqueeze(1), rows).squeeze(1)


def posterior_row(buffers: ArmBuffers, base: Tensor, arms: Tensor) -> Tensor:
    """C[a, :] from C_base[a, :], ``s x n``: subtracts the pending part."""
    k = buffers.num_pending
    if k == 0:
        return base
    s = base.shape[0]
    pending = buffers.pending[:, :k]
    at_arm = pending.gather(2, arms.view(s, 1, 1).expand(s, k, 1))
    return torch.baddbmm(base.unsqueeze(1), at_arm.mT, pending, alpha=-1.0).squeeze(1)


def apply_(buffers: ArmBuffers, row: Tensor, arms: Tensor, rewards: Tensor, counts: Tensor | None = None) -> Tensor:
    """Condition mean, variance, counts and gain on the rewards, given C[a, :]. Its scaled row becomes pending."""
    index = arms.unsqueeze(1)
    prior_variance = row.gather(1, index).squeeze(1).clamp_(min=0.0)
    ok, noise_var = rewards.isfinite(), buffers.noise_var
    if counts is not None:  # a reward that does not count has infinite noise
        ok = ok.logical_and_(counts > 0)
        noise_var = torch.where(ok, noise_var / counts, math.inf)
    scale = (prior_variance + noise_var).rsqrt_().mul_(ok)
    pending = buffers.pending[:, buffers.num_pending]
    torch.mul(row, scale.unsqueeze(1), out=pending)
    buffers.num_pending += 1
    innovation = torch.where(ok, rewards - buffers.mean.gather(1, index).squeeze(1), 0.0).mul_(scale)
    buffers.mean.addcmul_(pending, innovation.unsqueeze(1))
    buffers.variance.addcmul_(pending, pending, value=-1.0).clamp_(min=0.0)
    taken = ok.to(scale.dtype) if counts is None else ok * counts
    buffers.counts.scatter_add_(1, index, taken.unsqueeze(1))
    gain = prior_variance.div_(noise_var).log1p_().mul_(ok)
    buffers.information_gain.add_(gain, alpha=0.5)
    return ok


def end_block_(buffers: ArmBuffers) -> None:
    """Take the pending rounds into C_base and start a new block. R is stale until :func:`refresh_root_`."""
    k, m = buffers.num_pending, min(buffers.num_rows, buffers.rows.shape[1])
    if buffers.dense:
        pending = buffers.pending[:, :k]
        buffers.rows.baddbmm_(pending.mT, pending, alpha=-1.0)
    else:
        row_arm = buffers.row_arm[:, :m]
        in_use = torch.arange(m, device=row_arm.device) < buffers.filled.unsqueeze(1)
        torch.mul(buffers.counts.gather(1, row_arm), in_use, out=buffers.row_counts[:, :m])
        buffers.block_filled.copy_(buffers.filled)
        buffers.root_ready.fill_(False)
        least = rounds_of_a_block(m, buffers.mean)
        if buffers.pending.shape[1] < least:
            s, n = buffers.mean.shape
            buffers.replace(pending=buffers.pending.new_empty(s, least, n))
    buffers.num_pending = 0
    buffers.pulled.clear()


def rounds_of_a_block(m: int, like: Tensor) -> int:
    """How many keep the O(m^3) factorization at O(m^2) per round, at least.

    A CUDA graph is of one length, of which a runner's chunks of rounds are a multiple, and a GPU factorizes fast.
    """
    return min(1 << (m // 16).bit_length() >> 1, LONGEST_BLOCK) if on_cuda(like) else m // 4


def refresh_root_(buffers: ArmBuffers, trials: slice, m: int, *, branch_free: bool) -> None:
    """Compute R of ``trials`` over their first ``m`` rows.

    All eigenvalues of I + S K_DD S are >= 1, so the Cholesky factor exists unless lambda / N is below the rounding of
    k(x, x). Then rounding is added to the diagonal for a second factorization. ``branch_free`` always computes the
    second one, so that nothing is read back to the host.
    """
    row_arm = buffers.row_arm[trials, :m]
    S = (buffers.row_counts[trials, :m] / buffers.noise_var[trials].unsqueeze(1)).sqrt_()
    A = buffers.rows[trials, :m].gather(2, row_arm.unsqueeze(1).expand(-1, m, m))
    A = A.mul_(S.unsqueeze(2)).mul_(S.unsqueeze(1))
    A.diagonal(dim1=1, dim2=2).add_(1.0)
    L, failed = torch.linalg.cholesky_ex(A)
    if branch_free or bool(failed.any()):
        top = A.diagonal(dim1=1, dim2=2).amax(1, keepdim=True)
        A.diagonal(dim1=1, dim2=2).add_(top * (m * torch.finfo(A.dtype).eps) * (failed > 0).unsqueeze(1))
        L, _ = torch.linalg.cholesky_ex(A)
    buffers.root[trials, :m, :m] = torch.linalg.solve_triangular(L, torch.diag_embed(S), upper=False)
    buffers.root_ready[trials] = True
