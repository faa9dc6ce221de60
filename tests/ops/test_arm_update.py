"""The branch-free round reads nothing back to the host: what CUDA runs, watched on the CPU."""

import pytest
import torch

from bo_robust.bandits import (
    GPUCB,
    IRGPUCB,
    TGPUCB,
    ExpectedImprovement,
    ProbabilityOfImprovement,
    PureMean,
    PureVariance,
    RandomArm,
)
from bo_robust.bandits.posteriors import arms as arm_states
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.confidence import FiniteWidth, RandomisedWidth, SelfNormalisedWidth, TGPWidth
from bo_robust.confidence.truncation import TGPTruncation
from bo_robust.ops.arm_update import naive
from bo_robust.utils.covariance import SquaredExponential
from tests.bandits.problems import NothingIsRead


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(
    "algorithm",
    [
        GPUCB(FiniteWidth(90, 0.1)),
        GPUCB(SelfNormalisedWidth(1.0, 0.3, 0.1)),
        IRGPUCB(RandomisedWidth(90)),
        TGPUCB(TGPWidth(1.0, 4.0, 1.0, 0.1, 0.1), TGPTruncation(4.0, 1.0)),
        ExpectedImprovement(),
        ProbabilityOfImprovement(),
        PureMean(),
        PureVariance(),
        RandomArm(),
    ],
    ids=lambda a: type(a).__name__,
)
def test_no_round_waits_for_the_device(algorithm, dense, monkeypatch):
    monkeypatch.setattr(arm_states.arm_update, "update_", naive.update_)
    g = torch.Generator().manual_seed(0)
    X = torch.rand(90, 2, generator=g, dtype=torch.float64)
    kernel = ArmKernel.from_covariance(SquaredExponential(0.3), X)
    state = algorithm.init(kernel, 0.1, 4)
    state.posterior = arm_states.init(kernel, 0.1, 4, dense=dense)
    noise = torch.randn(60, 4, generator=g, dtype=torch.float64)
    uniform = torch.rand(60, 4, generator=g, dtype=torch.float64)
    with NothingIsRead():  # 60 rounds: more than a block, less than the rows allocated at first
        for eta, u in zip(noise.unbind(0), uniform.unbind(0), strict=True):
            chosen = algorithm.select(state, u).arms
            algorithm.observe(state, chosen, eta)
    assert state.round == 60
