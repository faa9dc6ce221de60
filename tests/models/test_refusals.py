"""What the models refuse."""

import math

import pandas as pd
import pytest
import torch
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms.input import AppendFeatures, ChainedInputTransform, Normalize
from botorch.models.transforms.outcome import Log, Standardize
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean

from bo_robust.confidence.truncation import NoTruncation, TGPTruncation
from bo_robust.models import (
    BKBModel,
    Candidate,
    CandidateEnsemble,
    FeatureGP,
    FourierMap,
    NystromMap,
    RobustGP,
    TruncatedFeatureGP,
    TruncatedGP,
    candidate,
    candidate_grid,
    information_gain,
    marginal_moments,
    plot_outliers,
    suggest_replicates,
)
from bo_robust.models.robust.outcome_scale import OutcomeScale
from bo_robust.models.robust.posterior import ScaledOutcome
from tests.refusals import check_refused

X = torch.linspace(0.0, 1.0, 8, dtype=torch.float64).reshape(4, 2)
Y = X.sum(-1, keepdim=True)
LEVEL, MAP = TGPTruncation(4.0, 1.0), FourierMap(4)
BATCHED = RBFKernel(batch_shape=torch.Size([2]))
SEVERAL_NOISES = FixedNoiseGaussianLikelihood(torch.ones(4))
GOOD = {"kernel": "rbf", "lengthscale": 0.1, "noise_var": 0.1}
DATA = SupervisedDataset(X, Y, feature_names=["a", "b"], outcome_names=["y"])


def truncated(train_X=X, train_Y=Y, level=LEVEL, **options):
    return TruncatedGP(train_X, train_Y, level, **{"noise_var": 0.1} | options)


def features(train_X=X, train_Y=Y, chosen=MAP, **options):
    return FeatureGP(train_X, train_Y, chosen, **options)


def truncated_features(level=1.0, **options):
    return TruncatedFeatureGP(X, Y, MAP, level, **options)


def small():
    return FeatureGP(X, Y, FourierMap(6), noise_var=0.1, covar_module=RBFKernel())


ONE = [GOOD]


def ensemble(candidates=ONE, n=4, **options):
    return CandidateEnsemble(X[:n], Y[:n], candidates, **options)


class Indefinite(Kernel):
    """1 on the diagonal, -0.9 elsewhere."""

    def forward(self, x1, x2, diag=False, **params):
        K = torch.where((x1.unsqueeze(-2) - x2.unsqueeze(-3)).norm(dim=-1) < 1e-9, 1.0, -0.9).to(x1)
        return K.diagonal(dim1=-2, dim2=-1) if diag else K


ODD = Candidate(Indefinite(), 0.5, name="odd")


def again(X_pending):
    model = RobustGP(X, Y)
    model.detect_outliers()
    return suggest_replicates(model, X_pending=X_pending)


def mapped(chosen, kernel=None):
    return chosen.build(RBFKernel() if kernel is None else kernel, X, False)


REFUSALS = [
    # data; the contract of models has NaN, other shapes and other dtypes
    *(("train_X", lambda x=x: truncated(x)) for x in (X.numpy(), X.tolist(), X.half(), X.expand(2, 4, 2))),
    ("train_X", lambda: truncated(pd.DataFrame(X.numpy()))),
    ("train_Y", lambda: truncated(X, Y.numpy())),
    ("data", lambda: truncated(X[:0], Y[:0])),
    ("data", lambda: features(X[:0], Y[:0])),
    ("data", lambda: BKBModel(X[:0], Y[:0])),
    # TruncatedGP
    *(("truncation", lambda b=b: truncated(level=b)) for b in (3.0, NoTruncation, "tgp")),
    *(
        ("levels", lambda b=b: truncated(level=b))
        for b in (Y[:2] + 1.0, Y * 0.0, Y * math.nan, Y[:, 0], Y.float() + 1.0)
    ),
    *(("noise_var", lambda v=v: truncated(noise_var=v)) for v in (0.0, 1e-9, "0.1")),
    ("noise_var", lambda: truncated(X.float(), Y.float(), noise_var=9e-5)),
    ("noise_var", lambda: truncated(train_Yvar=Y + 1.0)),
    ("noise_var", lambda: truncated(likelihood=GaussianLikelihood())),
    *(("rule", lambda r=r: truncated(rule=r)) for r in ("none", "residual")),
    ("outcome_transform", lambda: truncated(outcome_transform=Standardize(m=1))),
    ("Y", lambda: truncated().condition_on_observations(X[:1], [[1.0]])),
    ("X", lambda: truncated().condition_on_observations(X[:1].numpy(), Y[:1])),
    ("schedule", lambda: truncated(level=Y + 1.0).condition_on_observations(X[:1], Y[:1])),
    *(("targets", lambda y=y: truncated().set_train_data(targets=y)) for y in ([1.0] * 4, Y[:, 0] * math.nan)),
    *(("truncation", lambda s=s: TruncatedGP.construct_inputs(DATA, s)) for s in ({"kind": "tpg"}, "tgp")),
    # FeatureGP and its maps
    *(("features", lambda m=m: features(chosen=m)) for m in ("fourier", 4)),
    ("features", lambda: FeatureGP.construct_inputs(DATA, {"kind": "rff"})),
    ("train_X", lambda: features(X.expand(2, 4, 2), Y.expand(2, 4, 1))),
    *(("noise_var", lambda v=v: features(noise_var=v, outcome_transform=None)) for v in (0.0, 9e-7)),
    ("noise_var", lambda: features(noise_var=0.1, likelihood=GaussianLikelihood())),
    ("noise variance", lambda: features(likelihood=SEVERAL_NOISES)),
    ("covar_module", lambda: features(chosen=NystromMap(X), covar_module="rbf")),
    ("batch shape", lambda: features(covar_module=BATCHED)),
    ("bounds", lambda: features(X + 5.0)),
    *(("X", lambda x=x: small().posterior(x)) for x in (X.numpy(), X[:, :1], X[0], X.float())),
    ("bounds", lambda: small().posterior(X + 1.0)),
    ("bounds", lambda: small().condition_on_observations(X + 1.0, Y)),
    ("noise", lambda: small().condition_on_observations(X, Y, noise=Y)),
    *(("targets", lambda y=y: small().set_train_data(targets=y)) for y in (Y[:2, 0], Y[:, 0] * math.nan)),
    *(("nodes", lambda n=n: FourierMap(n)) for n in (0, "8")),
    ("frequencies", lambda: mapped(FourierMap(1000))),
    *(
        ("bounds", lambda b=b: mapped(FourierMap(4, b)))
        for b in ([[0.0], [1.0]], "unit", [[0, 1], [1, 1]], [[0, 0], [1, math.inf]])
    ),
    *(("RBFKernel", lambda k=k: mapped(MAP, k)) for k in (MaternKernel(), ScaleKernel(MaternKernel()))),
    ("RBFKernel", lambda: mapped(MAP, AdditiveKernel(RBFKernel()))),
    ("dimensions", lambda: mapped(MAP, RBFKernel(active_dims=[0]))),
    ("lengthscales", lambda: mapped(MAP, RBFKernel(ard_num_dims=3))),
    *(("inducing_points", lambda a=a: NystromMap(*a)) for a in ((), (X, 3))),
    *(
        ("inducing_points", lambda x=x: mapped(NystromMap(x)))
        for x in (X[0], X[:0], [[0.0, math.nan]], [[0.1, 0.2], [0.3]])
    ),
    ("size", lambda: NystromMap(size=0)),
    # TruncatedFeatureGP
    *(("truncation", lambda b=b: truncated_features(b)) for b in ("tgp", None, -1.0, 0.0, math.nan)),
    ("truncation", lambda: truncated_features(lambda t: 0.0)),
    ("truncation", lambda: TruncatedFeatureGP.construct_inputs(DATA, MAP, {"kind": "ata"})),
    ("root", lambda: truncated_features(root="qr")),
    ("rule", lambda: truncated_features(rule="drop")),
    ("outcome_transform", lambda: truncated_features(outcome_transform=Standardize(m=1))),
    # BKBModel
    *(("oversampling", lambda q=q: BKBModel(X, Y, oversampling=q)) for q in (0.99, math.inf)),
    ("max_size", lambda: BKBModel(X, Y, max_size=0)),
    ("min_size", lambda: BKBModel(X, Y, min_size=0)),
    *(("seed", lambda s=s: BKBModel(X, Y, seed=s)) for s in ("a", -1)),
    ("noise_var", lambda: BKBModel(X, Y, noise_var=-1.0)),
    ("X", lambda: BKBModel(X, Y).with_pending(X[:, :1])),
    ("batch shape", lambda: BKBModel(X, Y, covar_module=BATCHED)),
    # RobustGP
    ("train_X", lambda: RobustGP(pd.DataFrame(X.numpy()), Y)),
    ("train_Y", lambda: RobustGP(X, Y.unsqueeze(0))),
    ("batch", lambda: RobustGP(X.expand(2, 4, 2), Y.expand(2, 4, 1))),
    ("maximize", lambda: RobustGP(X, Y, maximize="no")),
    *(("outlier_share", lambda s=s: RobustGP(X, Y, outlier_share=s)) for s in (0.5, "a")),
    ("outlier_density", lambda: RobustGP(X, Y, outlier_density=0.0)),
    ("outcome_scale", lambda: RobustGP(X, Y, outcome_scale="log")),
    *(("outcome_limits", lambda x=x: RobustGP(X, Y, outcome_limits=x)) for x in (3.0, (0.0,), ("a", 1.0), (2.0, 1.0))),
    ("outcome_limits", lambda: RobustGP(X, Y, outcome_limits=(1e6, None))),
    ("covar_module", lambda: RobustGP(X, Y, cat_dims=[0])),
    ("no option 'outlier_shar'; did you mean 'outlier_share'", lambda: RobustGP(X, Y, outlier_shar=0.1)),
    ("did you mean 'maximize'", lambda: RobustGP(X, Y, maximise=True)),
    ("logarithm", lambda: ScaledOutcome(OutcomeScale(0.0))(1.0 - Y)),
    *(
        ("train_Yvar", lambda v=v: RobustGP(X, Y, v))
        for v in (0.1, torch.ones(4), Y[:, 0], Y[:3], Y * math.nan, -1.0 - Y)
    ),
    ("train_Yvar", lambda: RobustGP(X, Y, likelihood=SEVERAL_NOISES)),
    ("make a new one", lambda: RobustGP(X, Y, Y + 1.0).set_train_data(X, Y[:, 0])),
    ("Y", lambda: RobustGP(X, Y).eval().condition_on_observations(X, Y[:, 0])),
    ("fit_gpytorch_mll", lambda: RobustGP(X, Y).recommendable()),
    ("fit_gpytorch_mll", lambda: suggest_replicates(RobustGP(X, Y))),
    *(("model", lambda a=a: suggest_replicates(*a)) for a in (("abc",), (X, Y))),
    ("maximize", lambda: suggest_replicates(SingleTaskGP(X, Y), maximize=Y)),
    *(("q", lambda q=q: suggest_replicates(SingleTaskGP(X, Y), q=q)) for q in (0, 2.5)),
    *(("X_pending", lambda x=x: again(x)) for x in (X[:1].float(), X.new_zeros(1, 3), X[:1] * math.nan)),
    # CandidateEnsemble
    ("U", lambda: ensemble([])),
    *(("candidates", lambda c=c: ensemble(c)) for c in ("smooth", 4, ["rbf"], GOOD)),
    ("lengthscales", lambda: ensemble([GOOD, GOOD | {"lengthscales": 0.1}])),
    ("lengthscale", lambda: ensemble([GOOD, {"kernel": "rbf"}])),
    ("outcome_transform", lambda: ensemble(outcome_transform=Log())),
    *(("input_transform", lambda t=t: ensemble(input_transform=t)) for t in ("n", Normalize)),
    *(
        ("learns its coefficients", lambda t=t: ensemble(input_transform=t))
        for t in (Normalize(d=2), ChainedInputTransform(a=Normalize(d=2)))
    ),
    ("adds points", lambda: ensemble(input_transform=AppendFeatures(torch.zeros(2, 1).double()))),
    ("X", lambda: ensemble().condition_on_observations(X[:, :1], Y)),
    ("noise_var", lambda: ensemble().condition_on_observations(X, Y, noise=Y)),
    ("hallucinated points", lambda: ensemble().hallucinate(X).condition_on_observations(X, Y)),
    *(("X", lambda x=x: ensemble().posterior(x)) for x in (X.float(), X[0])),
    ("X_pending", lambda: ensemble().hallucinate(X[0])),
    ("candidate", lambda: ensemble().subset([])),
    ("one output", lambda: ensemble().subset_output([1])),
    *(
        ("torch tensor", lambda name=name: getattr(ensemble(), name)(X.tolist()))
        for name in ("posterior", "member_moments", "member_posterior", "hallucinate")
    ),
    *(
        ("candidate 1", lambda n=n, c=c: ensemble([GOOD, c], n))
        for n in (0, 3)
        for c in (
            candidate("rbf", [0.1, 0.2, 0.3], 0.1),
            candidate("rbf", 0.1, 0.1, groups=[[0], [5]]),
            *(Candidate(kernel, 0.1) for kernel in (RBFKernel(active_dims=(7,)), MultitaskKernel(RBFKernel(), 2))),
            *(Candidate(RBFKernel(), 0.1, m) for m in (LinearMean(3), ConstantMean(batch_shape=torch.Size([2])))),
        )
    ),
    ("odd", lambda: ensemble([GOOD, ODD])),
    ("odd", lambda: ensemble([GOOD, ODD], 1).condition_on_observations(X[1:], Y[1:])),
    # candidates and their grids
    *(("kernel", lambda k=k: candidate(k, 0.3, 0.1)) for k in ("cubic", ["rbf"], None)),
    *(("lengthscale", lambda v=v: candidate(**GOOD | {"lengthscale": v})) for v in ("0.3", [])),
    *((n, lambda n=n: candidate(**GOOD | {n: 0.0})) for n in ("noise_var", "outputscale")),
    *(("nu", lambda k=k, nu=nu: candidate(k, 0.3, 0.1, nu=nu)) for k, nu in (("matern", 2.0), ("matern32", 2.5))),
    ("period", lambda: candidate(**GOOD, period=1.0)),
    *(("period", lambda p=p: candidate("periodic", 0.1, 0.1, **p)) for p in ({}, {"period": -1.0})),
    ("lengthscale", lambda: candidate("rbf", [0.1, 0.2], 0.1, groups=[[0], [1]])),
    *(("groups", lambda g=g: candidate(**GOOD, groups=g)) for g in ([0, 1], [[]])),
    *(("column", lambda g=g: candidate(**GOOD, groups=g)) for g in ([[0], [-1]], [[0], ["x"]])),
    *(("covar_module", lambda k=k: Candidate(k, 0.1)) for k in ("rbf", BATCHED)),
    ("mean_module", lambda: Candidate(RBFKernel(), 0.1, 0.0)),
    *(("lengthscale", lambda v=v: candidate_grid(v, 0.01)) for v in ((0.8, 0.1), (0.1, 0.2, 0.3), [0.1, 0.8])),
    ("noise_var", lambda: candidate_grid(0.1, (0.0, 1.0))),
    ("num", lambda: candidate_grid((0.1, 0.4), 0.01, num=0)),
    *(("kernels", lambda k=k: candidate_grid(0.1, 0.01, kernels=k)) for k in ("rbf", ())),
    ("cubic", lambda: candidate_grid(0.1, 0.01, kernels=["cubic"])),
    ("kernel", lambda: candidate_grid(0.1, 0.01, kernels=[{"period": 1.0}])),
    # moments
    ("n 1 1 d", lambda: marginal_moments(SingleTaskGP(X.expand(3, 4, 2), Y.expand(3, 4, 1)), X.unsqueeze(1))),
    ("ModelListGP", lambda: information_gain(ModelListGP(SingleTaskGP(X, Y)))),
    ("model", lambda: plot_outliers(SingleTaskGP(X, Y))),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("argument", "call"), REFUSALS, ids=[argument for argument, _ in REFUSALS])
def test_refusals_name_the_argument(argument, call):
    check_refused(call, argument)
