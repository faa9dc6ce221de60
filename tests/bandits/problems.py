"""Small problems over arms on a line, for tests of algorithms."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bo_robust.bandits import CandidateAlgorithm
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.candidates import candidate_kernel
from bo_robust.utils.covariance import SquaredExponential

N = 40
LENGTHSCALES = (0.1, 0.2, 0.6)
READS = {"_local_scalar_dense", "nonzero", "is_nonzero", "item", "masked_select", "unique_dim", "_unique2"}


class NothingIsRead(TorchDispatchMode):
    """Raises at any operator that would wait for the device, except while ``allowed``."""

    allowed = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert self.allowed or name not in READS, f"{func} reads a tensor back to the host"
        return func(*args, **(kwargs or {}))


def line(n, device, dtype=torch.float64):
    """Evenly spaced arms of [0, 1], ``n x 1``."""
    return torch.linspace(0, 1, n, dtype=dtype, device=device).unsqueeze(1)


def places(n, d, seed=0, device="cpu"):
    """Random arms of the unit cube, ``n x d``."""
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(device)


def kernel(device, n=N, lengthscale=0.2, dtype=torch.float64):
    return ArmKernel.from_covariance(SquaredExponential(lengthscale), line(n, device, dtype))


def begin(algorithm, kern, noise_var, trials):
    """Its state under one kernel, or for algorithms over candidates under three lengthscales."""
    if isinstance(algorithm, CandidateAlgorithm):
        kern = candidate_kernel([SquaredExponential(ell) for ell in LENGTHSCALES], kern.arms)
    return algorithm.init(kern, noise_var, trials)


def run_rounds(algorithm, kern, f, noise, uniforms=None, noise_var=0.1, **seen):
    """All rounds of a table of additive noise (T x s); returns arms T x s and the final state."""
    state = begin(algorithm, kern, noise_var, f.shape[0])
    return go_on(algorithm, state, f, noise, uniforms, **seen), state


def go_on(algorithm, state, f, noise, uniforms=None, before=None, after=None):
    """The rounds from a state; returns arms T x s.

    Every round is shown to ``before(state, selection)`` and ``after(state, arms, rewards, info)``.
    """
    chosen = []
    for eta, u in zip(noise, torch.zeros_like(noise) if uniforms is None else uniforms, strict=True):
        selection = algorithm.select(state, u)
        if before is not None:
            before(state, selection)
        arms = selection.arms
        rewards = f.gather(1, arms.unsqueeze(1)).squeeze(1) + eta
        info = algorithm.observe(state, arms, rewards, u)
        if after is not None:
            after(state, arms, rewards, info)
        chosen.append(arms)
    return torch.stack(chosen)


def draw_from_prior(K, s, T, sd, device, seed=0):
    """Functions of the prior with covariance K (s x n), and noise and uniforms of T rounds (T x s)."""
    g = torch.Generator().manual_seed(seed)
    values, vectors = torch.linalg.eigh(K.cpu())
    f = torch.randn(s, len(K), generator=g, dtype=torch.float64) @ (vectors * values.clamp(min=0.0).sqrt()).mT
    noise = sd * torch.randn(T, s, generator=g, dtype=torch.float64)
    return f.to(device), noise.to(device), torch.rand(T, s, generator=g, dtype=torch.float64).to(device)


def table(s, T, device, seed=0, n=N):
    g = torch.Generator().manual_seed(seed)
    f = torch.randn(s, 3, generator=g, dtype=torch.float64)
    x = torch.linspace(0, 1, n, dtype=torch.float64)
    f = f @ torch.stack([torch.sin(3 * x), torch.cos(7 * x), x])
    noise = 0.3 * torch.randn(T, s, generator=g, dtype=torch.float64)
    uniforms = torch.rand(T, s, generator=g, dtype=torch.float64)
    return f.to(device), noise.to(device), uniforms.to(device)


def check_golden(posterior, expected, rtol=1e-9):
    """Mean and variance of a posterior over the 12 golden points with rewards, then those to test at."""
    for name in ("mean", "variance"):
        got = getattr(posterior, name)[0, 12:]
        torch.testing.assert_close(got, got.new_tensor(expected[name]), rtol=rtol, atol=0)
