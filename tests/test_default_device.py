"""Scripts set a default device; data on the CPU stay there. "meta" has no numbers, so what lands on it fails."""

import pytest
import torch
from botorch.models import SingleTaskGP

from benchmarks.methods.published import LogWidth
from bo_robust import suggest
from bo_robust.acquisition import ValueAtRiskKnowledgeGradient
from bo_robust.bandits import ATAGPUCB, BBKB, BKB, GPUCB, TGPUCB, VUCB
from bo_robust.bandits.posteriors.arm_kernel import ArmKernel
from bo_robust.confidence import FiniteWidth
from bo_robust.confidence.truncation import TGPTruncation
from bo_robust.features import FourierFeatures
from bo_robust.ops.cases import _numbers
from bo_robust.risk_measures.environments import FiniteEnvironment
from bo_robust.utils.covariance import SquaredExponential
from bo_robust.utils.round_numbers import RoundNumbers

N, LEVEL, CPU = 40, TGPTruncation(1.0, 1.0), torch.device("cpu")
ALGORITHMS = [
    GPUCB(FiniteWidth(N, 0.1)),
    TGPUCB(LogWidth(), LEVEL),
    VUCB(LogWidth(), 0.3, 5, (0.1, 0.2, 0.4, 0.2, 0.1), "uniform"),
    ATAGPUCB(LogWidth(), LEVEL, FourierFeatures(0.2, 8, ((0.0, 1.0),))),
    BKB(FiniteWidth(N, 0.1), 5.0),
    BBKB(FiniteWidth(N, 0.1), 5.0, 1.0),
]


@pytest.fixture
def elsewhere():
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda one: type(one).__name__)
def test_rounds_are_where_the_arms_are(algorithm, elsewhere):
    X = torch.linspace(0.0, 1.0, N, dtype=torch.float64, device="cpu").unsqueeze(1)
    state = algorithm.init(ArmKernel.from_covariance(SquaredExponential(0.2), X), 0.1, 3)
    uniform = torch.full((3,), 0.5, dtype=torch.float64, device="cpu")
    for _ in range(3):
        arms = algorithm.select(state, uniform).arms
        algorithm.observe(state, arms, uniform, uniform)
        assert arms.device == CPU


def test_numbers_of_checks_and_of_graphs(elsewhere):
    like = torch.empty(0, dtype=torch.float64, device="cpu")
    numbers = RoundNumbers(4, 0, CPU)
    with numbers.captured():
        entry = numbers.entry(float, 1, like.new_zeros(()))
    numbers.fill(2)
    assert (float(entry), _numbers(like, 3).device) == (3.0, CPU)


def test_the_knowledge_gradient(elsewhere):
    X = torch.linspace(0.0, 1.0, 8, dtype=torch.float64, device="cpu").reshape(4, 2)
    with torch.device("cpu"):
        model = SingleTaskGP(X, X.sum(-1, keepdim=True))
    for w in (3, 30):
        z = torch.linspace(0.0, 1.0, w, dtype=torch.float64, device="cpu").unsqueeze(-1)
        acqf = ValueAtRiskKnowledgeGradient(model, FiniteEnvironment(z), 0.2, X_pending=X[:1])
        assert acqf(X.unsqueeze(1)).device == CPU


@pytest.mark.parametrize("method", ["robust", "gp-ucb"])
def test_suggestions_from_lists_and_in_optuna(method, elsewhere):
    draws = torch.Generator("cpu").manual_seed(0)
    X = torch.rand(8, 2, generator=draws, dtype=torch.float64, device="cpu")
    found = suggest(X.tolist(), X.sum(-1).tolist(), bounds=[[0.0, 0.0], [1.0, 1.0]], method=method)
    assert found.X.device == CPU
    optuna = pytest.importorskip("optuna")
    from bo_robust.integrations.optuna import RobustSampler

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=RobustSampler(seed=0, method=method))
    study.optimize(lambda trial: (trial.suggest_float("x", 0.0, 1.0) - 0.3) ** 2, n_trials=4)
    assert len(study.trials) == 4
