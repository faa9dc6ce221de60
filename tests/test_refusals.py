"""What covariances, environments and functionals refuse."""

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal, Normal, Uniform

from bo_robust.risk_measures.environments import ContinuousEnvironment, FiniteEnvironment, PerturbationEnvironment
from bo_robust.risk_measures.functionals import CVaR, MeanVariance, ValueAtRisk, WorstCase, as_functional
from bo_robust.risk_measures.weighted_quantile import quantile_index
from bo_robust.utils.covariance import GPyTorchCovariance, Matern, SquaredExponential
from tests.refusals import check_refused

Z = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64)
X = torch.linspace(0.0, 1.0, 8, dtype=torch.float64).reshape(4, 2)
BOX = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
NAN = float("nan")


def draws(values, **options):
    return ContinuousEnvironment(BOX, sampler=lambda n: values.expand(n, *values.shape[1:]), **options)


def moved(*perturbations, **options):
    return PerturbationEnvironment(*perturbations, **options).points


REFUSALS = [
    *(("lengthscale", lambda v=v: SquaredExponential(v)) for v in (0.0, -1.0, "0.2", [0.2, 0.3], (), (0.1, 0.0))),
    *(("lengthscale", lambda v=v: Matern(2.5, v)) for v in (0.0, NAN, None, np.array([0.2]))),
    *(("nu", lambda v=v: Matern(v, 0.2)) for v in (2.0, "2.5", np.array([2.5, 1.5]))),
    ("outputscale", lambda: Matern(2.5, 0.2, 0.0)),
    ("outputscale", lambda: SquaredExponential(1.0, 0.0)),
    ("kernel", lambda: GPyTorchCovariance("rbf")),
    *(
        ("points", lambda z=z: FiniteEnvironment(z))
        for z in (Z.numpy(), Z.tolist(), Z[:, 0], Z.half(), Z[:0], Z.long(), Z * NAN)
    ),
    *(
        ("probabilities", lambda p=p: FiniteEnvironment(Z, p))
        for p in ([0.2, 0.3, 0.5], Z[:, 0] + 1.0, Z[:, 0] - 0.5, Z[:2, 0], Z[:0, 0], Z[:, 0] * NAN, Z[:, 0].float())
    ),
    *(("perturbations", lambda z=z: PerturbationEnvironment(z)) for z in (Z[:, 0], Z * NAN, [[0.1]])),
    ("probabilities", lambda: PerturbationEnvironment(Z, Z[:, 0] - 0.5)),
    ("perturbations", lambda: PerturbationEnvironment(Z).points(X)),
    *(
        ("X is torch.float32", lambda e=e: e.points(X.float()))
        for e in (PerturbationEnvironment(X), FiniteEnvironment(Z))
    ),
    ("the bounds of the environment", lambda: moved(lambda X: X.unsqueeze(-2), bounds=UNIT)(X.float())),
    *(
        ("perturbations", lambda f=f: moved(f)(X))
        for f in (lambda X: X.tolist(), lambda X: X, lambda X: X.unsqueeze(-2).float(), lambda X: X.unsqueeze(-2) * NAN)
    ),
    ("... x 2 x 2", lambda: moved(lambda X: X.unsqueeze(-2), Z[:2, 0] + 0.25)(X)),
    ("bounds is torch.float32", lambda: PerturbationEnvironment(X, bounds=UNIT.float())),
    ("radius", lambda: PerturbationEnvironment.ball(0.0, BOX)),
    ("num_points", lambda: PerturbationEnvironment.ball(0.1, BOX, num_points=1)),
    *(
        ("bounds", lambda b=b: ContinuousEnvironment(b, Normal(0.5, 0.1)))
        for b in (BOX * 0.0, Z, BOX / 0.0, [[0.0], [1.0]])
    ),
    ("bounds", lambda: ContinuousEnvironment(Uniform(0.0, 1.0))),
    *(("distribution", lambda d=d: ContinuousEnvironment(BOX, *d)) for d in ((), ("normal",), (Uniform(0.25, 0.75),))),
    ("distribution", lambda: ContinuousEnvironment(BOX, Normal(0.0, 1.0), lambda n: torch.rand(n, 1).double())),
    ("distribution", lambda: ContinuousEnvironment(X[:2], MultivariateNormal(torch.zeros(2), torch.eye(2)))),
    ("bounds", lambda: ContinuousEnvironment(BOX, Normal(90.0, 0.1))),
    *(("sampler", lambda z=z: draws(z)) for z in (Z[:1] * NAN, Z[:1].float(), X[:1])),
    ("sampler", lambda: ContinuousEnvironment(BOX, sampler=lambda n: Z[:1].expand(n, 1).tolist())),
    ("log_prob", lambda: draws(Z[:1], log_prob=lambda z: z.sum(-1) * NAN)),
    ("log_prob", lambda: ContinuousEnvironment(BOX, Normal(0.0, 1.0), log_prob=lambda z: z.sum(-1))),
    ("the declared bounds", lambda: draws(Z[:1] + 2.0)),
    ("num_points", lambda: ContinuousEnvironment(BOX, Normal(0.5, 0.1), num_points=0)),
    *(("alpha", lambda f=f, a=a: f(a)) for f in (ValueAtRisk, CVaR) for a in (0.0, 1.0, NAN, "0.1", None)),
    *(("weights", lambda p=p: quantile_index(Z.T, p, 0.5)) for p in (Z[:2, 0], Z[:, 0].long())),
    *(("values", lambda v=v: quantile_index(v, None, 0.5)) for v in (Z[:, :0], Z.long())),
    *(("weight", lambda w=w: MeanVariance(w)) for w in ("1", -1.0)),
    ("functional", lambda: as_functional(10)),
    ("functional", lambda: as_functional("variance")),
    ("alpha", lambda: as_functional("var")),
    *(
        ("values", lambda f=f: f(np.array([1.0, 2.0])))
        for f in (ValueAtRisk(0.5), CVaR(0.5), WorstCase(), MeanVariance(1.0))
    ),
]


@pytest.mark.parametrize(("argument", "call"), REFUSALS, ids=[argument for argument, _ in REFUSALS])
def test_refusals_name_the_argument(argument, call):
    check_refused(call, argument)
