"""A wrong state, arm, reward or draw is refused in one sentence by every algorithm alike, and changes nothing."""

import pytest
import torch

from bo_robust.bandits import GPUCB, HEGPUCB, HEStableOpt
from bo_robust.bandits.a_gp_ucb import AGPUCB
from bo_robust.bandits.candidate_algorithm import CandidateAlgorithm
from bo_robust.bandits.expected_ucb import ExpectedUCB
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.candidates import candidate_kernel
from bo_robust.confidence import ConstantWidth
from bo_robust.utils.covariance import SquaredExponential
from bo_robust.utils.linalg import on_cuda

WIDTH = ConstantWidth(2.0)
OVER_CANDIDATES = {
    "MLE": CandidateAlgorithm(WIDTH),
    "Expected": ExpectedUCB(WIDTH),
    "A-GP-UCB": AGPUCB(WIDTH, (0.1, 0.3)),
    "HE-GP-UCB": HEGPUCB(WIDTH, 0.1, 0.1),
    "HE-StableOpt": HEStableOpt(WIDTH, 0.1, 0.1, num_conditions=3),
}
ALGORITHMS = {"GP-UCB": GPUCB(WIDTH)} | OVER_CANDIDATES


@pytest.fixture(params=ALGORITHMS)
def started(request, device):
    """An algorithm and its state over 12 arms in two trials; arms, rewards and draws of a round."""
    points = torch.linspace(0.0, 1.0, 12, dtype=torch.float64, device=device).unsqueeze(1)
    kernels = [SquaredExponential(0.1), SquaredExponential(0.3)]
    over = request.param in OVER_CANDIDATES
    kernel = candidate_kernel(kernels, points) if over else ArmKernel.from_covariance(kernels[0], points)
    algorithm, rewards = ALGORITHMS[request.param], points.new_tensor([0.1, 0.2])
    return algorithm, algorithm.init(kernel, 0.1, 2), torch.tensor([1, 2], device=device), rewards, rewards.clone()


def test_wrong_arms_and_rewards_change_nothing(started):
    algorithm, state, arms, rewards, uniform = started
    bad = [
        ((arms.tolist(), rewards), TypeError, "arms must be a torch tensor, got list"),
        ((arms, rewards.tolist()), TypeError, "rewards must be a torch tensor, got list"),
        ((1, rewards), TypeError, "arms must be a torch tensor, got int"),
        ((algorithm.select(state, uniform), rewards), TypeError, "arms must be a torch tensor, got .*Selection"),
        ((arms.double(), rewards), ValueError, "arms must be of dtype long, got torch.float64"),
        ((arms[:1], rewards), ValueError, r"one entry per trial \(2\)"),
        ((arms.repeat(2), rewards.repeat(2)), ValueError, r"one entry per trial \(2\)"),
        ((arms[:0], rewards[:0]), ValueError, r"one entry per trial \(2\)"),
        ((arms, rewards.unsqueeze(1)), ValueError, r"one entry per trial \(2\)"),
        ((arms, rewards.float()), ValueError, "rewards is torch.float32"),
    ]
    if not on_cuda(arms):
        bad += [((arms + shift, rewards), ValueError, "arms must be between 0 and 11") for shift in (-3, 12)]
    for observe in (algorithm.observe, algorithm.observe_initial):
        for given, kind, message in bad:
            with pytest.raises(kind, match=message):
                observe(state, *given, uniform)
    assert (state.round, getattr(state, "initial", 0)) == (0, 0)
    assert state.posterior.mean.abs().max() == 0.0


def test_an_arm_out_of_range_is_a_failed_pull_on_cuda(started):
    algorithm, state, arms, rewards, uniform = started
    if not on_cuda(arms):
        pytest.skip("a CPU refuses it")
    assert algorithm.observe(state, torch.tensor([1, 99], device=arms.device), rewards, uniform).ok.tolist() == [1, 0]


def test_what_observe_returns_is_no_state(started):
    algorithm, state, arms, rewards, uniform = started
    info = algorithm.observe(state, arms, rewards, uniform)
    for wrong in (info, None, state.posterior):
        for call in (
            lambda wrong=wrong: algorithm.select(wrong, uniform),
            lambda wrong=wrong: algorithm.observe(wrong, arms, rewards, uniform),
            lambda wrong=wrong: algorithm.observe_initial(wrong, arms, rewards, uniform),
        ):
            with pytest.raises(TypeError, match=f"that init of this algorithm made .*, got {type(wrong).__name__}"):
                call()


@pytest.mark.parametrize("algorithm", OVER_CANDIDATES.values(), ids=OVER_CANDIDATES)
def test_draws_are_a_tensor(algorithm, device):
    points = torch.linspace(0.0, 1.0, 12, dtype=torch.float64, device=device).unsqueeze(1)
    state = algorithm.init(candidate_kernel([SquaredExponential(0.1), SquaredExponential(0.3)], points), 0.1, 2)
    with pytest.raises(TypeError, match="uniform must be a torch tensor, got list"):
        algorithm.select(state, [0.1, 0.2])
