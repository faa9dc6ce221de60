import math

import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from botorch.models.deterministic import GenericDeterministicModel
from botorch.models.map_saas import EnsembleMapSaasSingleTaskGP
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.models.transforms.input import AppendFeatures, InputPerturbation
from botorch.models.transforms.outcome import Log
from botorch.utils.datasets import SupervisedDataset
from torch.distributions import Normal

from bo_robust.acquisition import (
    GPUCB,
    EliminationUCB,
    StableOpt,
    ValueAtRiskKnowledgeGradient,
    ValueAtRiskUCB,
    eliminate,
    optimize_lnso,
    recommend_design,
    search_lacing_value,
)
from bo_robust.confidence import ConstantWidth, RKHSWidth, SelfNormalizedWidth
from bo_robust.models import CandidateEnsemble, candidate
from bo_robust.risk_measures.environments import ContinuousEnvironment, FiniteEnvironment, PerturbationEnvironment
from bo_robust.risk_measures.functionals import CVaR
from tests.refusals import check_refused

X = torch.linspace(0.0, 1.0, 8, dtype=torch.float64).reshape(4, 2)
Y = X.sum(-1, keepdim=True)
Z = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64)
BOX = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
WIDTH = ConstantWidth(2.0)
NORM = SelfNormalizedWidth(1.0, 0.1, 0.05)
CHOSEN = torch.zeros(4, dtype=torch.long)
MINUS = ScalarizedPosteriorTransform(torch.tensor([-1.0], dtype=torch.float64))
SUM = ScalarizedPosteriorTransform(torch.ones(2).double())
BELL = ContinuousEnvironment(BOX, Normal(0.5, 0.1))


def gp():
    return SingleTaskGP(X, Y)


def batched():
    return SingleTaskGP(X.expand(2, 4, 2), Y.expand(2, 4, 1))


def gp_ucb(model=None, width=WIDTH, **options):
    return GPUCB(gp() if model is None else model, width, **options)


def risk(environment=None, functional=0.1, width=2.0, model=None, **options):
    environment = FiniteEnvironment(Z) if environment is None else environment
    return ValueAtRiskUCB(gp() if model is None else model, environment, functional, width, **options)


def gradient(model=None, **options):
    return ValueAtRiskKnowledgeGradient(gp() if model is None else model, FiniteEnvironment(Z), 0.1, **options)


def ensemble(n=4, lengthscales=(0.1, 0.2)):
    return CandidateEnsemble(X[:n], Y[:n], [candidate("rbf", ell, 0.1) for ell in lengthscales])


def large():
    kinds = [candidate("rbf", 0.1, 0.1), candidate("rbf", 0.1, 0.1, outputscale=4.0, name="large")]
    return CandidateEnsemble(X, Y, kinds)


def construct(acquisition, **options):
    """By what Ax calls, of a model that each takes."""
    model = ensemble() if acquisition is EliminationUCB else gp()
    data = SupervisedDataset(X, Y, feature_names=["x", "z"], outcome_names=["y"])
    if acquisition in (ValueAtRiskUCB, ValueAtRiskKnowledgeGradient):
        options |= {"environment": {"points": [{"z": 0.0}, {"z": 0.5}]}, "functional": 0.2}
    return get_acqf_input_constructor(acquisition)(model=model, training_data=data, **options)


def lacing(acqf=None, **options):
    return search_lacing_value(acqf or risk(BELL), BOX[0], **options)


def lnso(bounds=BOX, acqf=None, **options):
    return optimize_lnso(acqf or risk(BELL), bounds, **options)


LEFT = eliminate(ensemble())
REFUSALS = [
    ("model", lambda: gp_ucb("gp")),
    *(("width", lambda w=w: gp_ucb(width=w)) for w in ("2", None, ConstantWidth)),
    *(("t", lambda t=t: gp_ucb(t=t)) for t in (0, 1.5, torch.tensor(3))),
    ("training data", lambda: gp_ucb(GenericDeterministicModel(lambda x: x.sum(-1, keepdim=True)), t=1)),
    ("t", lambda: gp_ucb(ModelListGP(gp(), SingleTaskGP(X[:3], Y[:3])), posterior_transform=SUM)),
    *(("X_pending", lambda x=x: gp_ucb(X_pending=x)) for x in ([[0.1, 0.2]], X[:, :1], X[0], X * math.nan)),
    *(("X", lambda x=x: gp_ucb()(x)) for x in (X[:1].float(), X[:1].numpy(), X[:1, :1])),
    *(("ensemble", lambda f=f: f(model=EnsembleMapSaasSingleTaskGP(X, Y))) for f in (gp_ucb, risk)),
    # candidates
    *(("CandidateEnsemble", lambda f=f: f(gp())) for f in (eliminate, EliminationUCB)),
    ("elimination", lambda: eliminate(ensemble(), "mle")),
    ("width", lambda: eliminate(ensemble(), width=ConstantWidth)),
    ("2 widths", lambda: eliminate(ensemble(lengthscales=(0.1, 0.2, 0.3)), width=(WIDTH, WIDTH))),
    *(("large", lambda w=w: eliminate(large(), width=w)) for w in (RKHSWidth(1.0, 0.1), (WIDTH, NORM))),
    *(
        (n, lambda n=n, v=v: eliminate(ensemble(), **{n: v}))
        for n, v in (("maximize", 1), ("noise_scale", 0.0), ("delta", 1.0), ("num_initial", -1))
    ),
    *(("chosen", lambda c=c: eliminate(ensemble(), chosen=c)) for c in (CHOSEN[:3], CHOSEN + 3, CHOSEN.double())),
    ("chosen", lambda: eliminate(ensemble(), "likelihood", chosen=CHOSEN)),
    ("elimination", lambda: EliminationUCB(ensemble(), "errors")),
    ("after 3 rewards", lambda: EliminationUCB(ensemble(), eliminate(ensemble(3)))),
    ("after 3 rewards", lambda: risk(model=ensemble(), width=None, elimination=eliminate(ensemble(3)))),
    ("maximize", lambda: EliminationUCB(ensemble(), eliminate(ensemble()), MINUS)),
    *(("elimination", lambda o=o: risk(model=ensemble(), **o)) for o in ({"elimination": LEFT}, {"width": None})),
    (
        "maximized",
        lambda: StableOpt(ensemble(), FiniteEnvironment(Z), elimination=eliminate(ensemble(), maximize=False)),
    ),
    # value at risk
    *(("environment", lambda e=e: risk(e)) for e in (FiniteEnvironment(X), Z, FiniteEnvironment(Z.float()))),
    ("environment", lambda: risk(PerturbationEnvironment(Z))),
    ("functional", lambda: risk(functional=10)),
    ("width", lambda: risk(width="2")),
    ("value", lambda: risk(width=-1.0)),
    ("t", lambda: risk(t=1.5)),
    ("X_pending", lambda: risk(X_pending=X[0])),
    ("pending", lambda: risk(model=batched(), X_pending=X[:1, :1])),
    ("batch shape", lambda: risk(model=batched())(X[:, None, None, :1].expand(4, 3, 2, 1))),
    *(("X", lambda x=x: risk()(x)) for x in (X[:1], torch.cat([X, X], 1))),
    *(  # bounds over (x, z) would give a point whose z means nothing
        ("the bounds of x", lambda use=use: getattr(risk(), use)(X.unsqueeze(1)))
        for use in ("forward", "select_condition", "lacing_values", "regret_bound", "bounds_at")
    ),
    *(
        ("makes several points of one", lambda f=f, t=t: f(SingleTaskGP(X, Y, input_transform=t).eval()))
        for t in (AppendFeatures(X[:2, :1]), InputPerturbation(X[:2]))
        for f in (
            lambda m: risk(model=m)(X[:, None, :1]),
            lambda m: recommend_design(m, FiniteEnvironment(Z), 0.1, X[:, :1]),
        )
    ),
    # knowledge gradient
    ("model", lambda: gradient("gp")),
    *((n, lambda n=n, v=v: gradient(**{n: v})) for n, v in (("seed", -1), ("num_samples", 0), ("X_evaluated", X[0]))),
    ("X_evaluated", lambda: gradient(SingleTaskVariationalGP(X, Y))),
    *(("X", lambda x=x: gradient()(x)) for x in (X[:1].float(), X[:1, :1], torch.cat([X, X], 1))),
    *(("X_pending", lambda x=x: gradient(X_pending=x)) for x in (X[0], X * math.nan, X.float())),
    ("batch shape", lambda: gradient(batched())(X[:1])),
    ("outcome_transform", lambda: gradient(SingleTaskGP(X, Y + 1.0, outcome_transform=Log()))(X[:1])),
    (
        "makes several points of one",
        lambda: gradient(SingleTaskGP(X, Y, input_transform=InputPerturbation(X[:2])).eval())(X[:1]),
    ),
    ("width", lambda: construct(GPUCB, width="finite")),
    *(("beta", lambda f=f: construct(f, width={"kind": "beta"})) for f in (GPUCB, EliminationUCB, ValueAtRiskUCB)),
    *(
        ("search space", lambda f=f, o=o: construct(f, bounds=[(0.0, 1.0), (0.0, 0.4)], **o))
        for f, o in ((ValueAtRiskUCB, {"width": 1.0}), (ValueAtRiskKnowledgeGradient, {}))
    ),
    ("X", lambda: risk().select_condition([[0.1]])),
    ("selection_rule", lambda: risk().select_condition(X[:, :1], "best")),
    *(
        ("X_queried", lambda x=x: recommend_design(gp(), FiniteEnvironment(Z), 0.1, x))
        for x in ([[0.1]], X[:0], X.long())
    ),
    ("z", lambda: recommend_design(gp(), FiniteEnvironment(Z), 0.1, X)),
    # searches over a box of conditions
    *(
        ("acqf", lambda f=f, a=a: f(a))
        for f in (lambda a: lnso(acqf=a), lacing)
        for a in (risk(), risk(BELL, CVaR(0.1)), risk(BELL, model=batched()))
    ),
    ("bounds", lambda: lnso(BOX.flip(0))),
    *(("X", lambda b=b: lnso(b)) for b in (BOX.float(), BOX.expand(2, 2))),
    *((n, lambda n=n, v=v: lnso(**{n: v})) for n, v in (("num_draws", 0), ("fit_steps", 0), ("radius", math.nan))),
    *((n, lambda n=n, v=v: lacing(**{n: v})) for n, v in (("steps", 0), ("num_draws", 3), ("rate", 0.0))),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("argument", "call"), REFUSALS, ids=[argument for argument, _ in REFUSALS])
def test_refusals_name_the_argument(argument, call):
    check_refused(call, argument)
