"""What algorithms and posteriors over arms refuse; the contract of algorithms has what holds for each of them."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from bo_robust import bandits
from bo_robust.bandits import ATAGPUCB, BBKB, BKB, GPUCB, TGPUCB, VUCB, HEStableOpt, MiniGPUCB, StableOpt
from bo_robust.bandits.posteriors import arms, candidates, truncated
from bo_robust.bandits.posteriors.arm_kernel import noise_of_trials
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.dictionary import NystromDictionary
from bo_robust.bandits.posteriors.streams import ArmStream
from bo_robust.bandits.posteriors.whitening import FeatureTable
from bo_robust.confidence import ConstantWidth, RKHSWidth, SelfNormalizedWidth
from bo_robust.confidence.elimination import check_elimination
from bo_robust.confidence.truncation import ATANystromTruncation, NoTruncation, TGPTruncation
from bo_robust.features import FourierFeatures
from bo_robust.utils.covariance import GPyTorchCovariance, Matern, SquaredExponential
from tests.refusals import check_refused

WIDTH, LEVEL, FOURIER = ConstantWidth(2.0), TGPTruncation(4.0, 1.0), FourierFeatures(0.3, 5, ((0.0, 1.0),))
OPEN = ATANystromTruncation(1.0, 1.0, 0.1, 50, num_features=None)
X = torch.linspace(0.0, 1.0, 6, dtype=torch.float64).unsqueeze(-1)
SE = SquaredExponential(0.3)
K = SE(X, X)
THREE = candidates.candidate_kernel([SquaredExponential(0.1 * i) for i in (1, 2, 3)], X)
PULLS, ONES = torch.zeros(2, dtype=torch.long), torch.ones(2, dtype=torch.float64)
EYE, ONE = torch.eye(3, dtype=torch.float64), torch.ones(30, dtype=torch.float64)
BATCHED = GPyTorchCovariance(RBFKernel(batch_shape=torch.Size([2])).double())
TWO = candidates.candidate_kernel([SquaredExponential(0.2), Matern(1.5, 0.2)], X)
TABLE = FeatureTable(torch.eye(3, dtype=torch.float64))


def start(algorithm, kernel=None, noise_var=0.1, **options):
    return algorithm.init(ArmKernel.from_matrix(K, X) if kernel is None else kernel, noise_var, **options)


def streamed(**options):
    return bandits.StreamedBBKB(**{"width": WIDTH, "oversampling": 5.0, "batch_constant": 1.0} | options)


def v_ucb(**options):
    return VUCB(**{"width": WIDTH, "functional": 0.1, "num_conditions": 2} | options)


def observe(arms=PULLS, rewards=ONES, algorithm=None):
    algorithm = algorithm or GPUCB(WIDTH)
    algorithm.observe(start(algorithm, trials=2), arms, rewards)


def count(counts):
    arms.observe(start(GPUCB(WIDTH), trials=2).posterior, PULLS, ONES, counts)


def observe_twice(algorithm):
    state = start(algorithm)
    for _ in range(2):
        algorithm.observe(state, PULLS[:1], ONES[:1])


def started(level=None):
    posterior = truncated.init(TABLE, ONES)
    if level is not None:
        truncated.observe(posterior, PULLS, ONES, level)
    return posterior


REFUSALS = [
    # algorithms
    *(("width", lambda w=w: GPUCB(w)) for w in (2.0, ConstantWidth)),
    ("truncation", lambda: TGPUCB(WIDTH, 3.0)),
    ("rule", lambda: TGPUCB(WIDTH, LEVEL, "drop")),
    ("rule", lambda: BKB(WIDTH, 5.0, rule="drop")),
    ("rule", lambda: ATAGPUCB(WIDTH, LEVEL, FOURIER, rule="drop")),
    ("root", lambda: ATAGPUCB(WIDTH, LEVEL, FOURIER, "qr")),
    ("features", lambda: ATAGPUCB(WIDTH, LEVEL, 16)),
    ("num_features", lambda: ATAGPUCB(WIDTH, OPEN, FOURIER)),
    ("number of features", lambda: OPEN(1)),
    ("level", lambda: observe_twice(ATAGPUCB(WIDTH, lambda t: 1.0 / t, FOURIER))),
    ("arms", lambda: start(ATAGPUCB(WIDTH, NoTruncation(), FOURIER), ArmKernel.from_matrix(K))),
    ("bounds", lambda: start(ATAGPUCB(WIDTH, NoTruncation(), FOURIER), ArmKernel.from_matrix(K, 3.0 * X))),
    *(
        ("prior_mean", lambda a=a: start(a, prior_mean=X[:, 0]))
        for a in (BKB(WIDTH, 1.0), ATAGPUCB(WIDTH, LEVEL, FOURIER))
    ),
    *(("oversampling", lambda q=q: BKB(WIDTH, q)) for q in (0.5, "5")),
    ("redraw", lambda: BKB(WIDTH, 5.0, "never")),
    *(
        ("uniform", lambda a=a: observe(algorithm=a))
        for a in (BKB(WIDTH, 5.0), ATAGPUCB(WIDTH, LEVEL, NystromDictionary(5.0)))
    ),
    *(("state", lambda s=s: GPUCB(WIDTH).select(s, ONES[:1])) for s in (None, start(BKB(WIDTH, 5.0)))),
    *(("batch_constant", lambda c=c: MiniGPUCB(WIDTH, c)) for c in (0.5, math.inf, "1.1")),
    *(("counts", lambda c=c: count(c)) for c in (torch.ones(3, dtype=torch.float64), torch.ones(2, dtype=torch.long))),
    ("batch_constant", lambda: BBKB(WIDTH, 5.0, -1.0)),
    ("oversampling", lambda: streamed(oversampling=0.0)),
    ("batch_constant", lambda: streamed(batch_constant=-1.0)),
    ("shortlist", lambda: streamed(shortlist=0)),
    ("noise_var", lambda: streamed().init(Matern(2.5, 0.3), 0.0, 2)),
    ("dim", lambda: streamed().init(Matern(2.5, 0.3), 0.1, 0)),
    *(("lengthscales", lambda s=s: bandits.AGPUCB(WIDTH, s)) for s in ((), 0.2)),
    ("margin", lambda: bandits.ProbabilityOfImprovement(0.0)),
    *(("lengthscale", lambda s=s: bandits.AGPUCB(WIDTH, (0.1, s))) for s in (0.0, -1.0)),
    ("power", lambda: bandits.AGPUCB(WIDTH, (0.1,), power=0.0)),
    ("noise_scale", lambda: bandits.HEGPUCB(WIDTH, 0.0, 0.1)),
    ("delta", lambda: bandits.HEGPUCB(WIDTH, 0.1, 1.0)),
    # several candidates
    ("2 lengthscales", lambda: start(bandits.AGPUCB(WIDTH, (0.1, 0.2)), THREE)),
    ("1 widths", lambda: start(bandits.CandidateAlgorithm((WIDTH,)), THREE)),
    ("2 widths", lambda: start(bandits.HEGPUCB((WIDTH, WIDTH), 0.1, 0.1), THREE)),
    *(
        ("Divide", lambda w=w: start(bandits.HEGPUCB(w, 0.1, 0.1), candidates.candidate_kernel([K, 4.0 * K])))
        for w in (SelfNormalizedWidth(1.0, 0.1, 0.05), (WIDTH, RKHSWidth(1.0, 0.1)))
    ),
    ("noise_var", lambda: start(bandits.HEGPUCB(WIDTH, 0.1, 0.1), noise_var=torch.ones(2, 2))),
    # pairs of a design and a condition
    ("num_conditions", lambda: v_ucb(num_conditions=0)),
    ("num_conditions", lambda: StableOpt(WIDTH, 0)),
    ("num_conditions", lambda: HEStableOpt(WIDTH, 0.1, 0.1, 0)),
    ("noise_scale", lambda: HEStableOpt(WIDTH, 0.0, 0.1, 4)),
    *(("alpha", lambda f=f: v_ucb(functional=f)) for f in (10, 1.0)),
    *(
        ("probabilities", lambda p=p: v_ucb(probabilities=p))
        for p in ((0.5, 0.6), (1.0,), (1.1, -0.1), (1.0, math.nan), "ab")
    ),
    ("selection_rule", lambda: v_ucb(selection_rule="best")),
    *(
        ("arms", lambda a=a: start(a))
        for a in (v_ucb(num_conditions=4), StableOpt(WIDTH, 4), HEStableOpt(WIDTH, 0.1, 0.1, 4))
    ),
    # kernels over arms
    *(("arms", lambda x=x: ArmKernel.from_covariance(SE, x)) for x in (X.numpy(), X.tolist(), X.half(), X.long())),
    *(("arms", lambda x=x: ArmKernel.from_covariance(SE, x)) for x in (X[:, 0], X[:0], X * math.nan)),
    ("covariance", lambda: ArmKernel.from_covariance(0.2, X)),
    ("kernel", lambda: ArmKernel.from_covariance(RBFKernel(), X)),
    ("lengthscales", lambda: ArmKernel.from_covariance(Matern(2.5, (0.2, 0.3)), X)),
    ("batch shape", lambda: ArmKernel.from_covariance(BATCHED, X)),
    *(("kernel matrix", lambda k=k: ArmKernel.from_matrix(k)) for k in (np.eye(3), [[1.0]], EYE.half(), EYE[:2])),
    *(
        ("kernel matrix", lambda k=k: ArmKernel.from_matrix(k))
        for k in (EYE[:0, :0], EYE * math.nan, EYE + X[:3], -EYE)
    ),
    ("arms", lambda: ArmKernel.from_matrix(EYE, X.float())),
    ("arms", lambda: ArmKernel.from_matrix(EYE, X[:4])),
    ("kernel", lambda: arms.init(EYE, 0.1)),
    # the start of a posterior, and its rounds
    *(
        ("noise_var", lambda v=v: noise_of_trials(ArmKernel.from_matrix(EYE), v, 2))
        for v in (0.0, math.nan, "0.1", None)
    ),
    ("noise_var", lambda: noise_of_trials(ArmKernel.from_matrix(EYE), torch.ones(3), 2)),
    ("noise_var", lambda: arms.init(ArmKernel.from_matrix(EYE), torch.tensor([0.1, math.inf]), 2)),
    ("noise_var", lambda: arms.init(ArmKernel.from_covariance(SE, X.float()), 1e-9)),
    *(("trials", lambda s=s: arms.init(ArmKernel.from_matrix(EYE), 0.1, s)) for s in (0, "2")),
    ("trials", lambda: arms.init(ArmKernel.from_matrix(torch.stack([EYE, EYE])), 0.1, 3)),
    ("block", lambda: arms.init(ArmKernel.from_matrix(EYE), 0.1, block=0)),
    *(
        ("prior_mean", lambda m=m: arms.init(ArmKernel.from_matrix(EYE), 0.1, prior_mean=m))
        for m in ([0.0] * 3, EYE[0, :2], EYE[0] * math.nan, torch.zeros(3))
    ),
    ("features", lambda: truncated.init(FeatureTable(EYE * math.nan), ONES)),
    ("arms", lambda: truncated.observe(started(), PULLS[:1], ONES[:1], 1.0)),
    ("rewards", lambda: truncated.observe(started(), PULLS, ONES.float(), 1.0)),
    ("level", lambda: truncated.observe(started(1.0), PULLS, ONES, 0.9)),
    ("oversampling", lambda: NystromDictionary(0.0)),
    *(("redraw_growth", lambda g=g: NystromDictionary(5.0, g)) for g in (0.5, "1")),
    # several candidates
    ("U", lambda: candidates.candidate_kernel([])),
    *(
        ("candidate 1", lambda k=k: candidates.candidate_kernel([K, k]))
        for k in (K - 0.5 * torch.eye(6).double(), K + torch.ones_like(K).triu(1), K[1:, 1:])
    ),
    ("candidate 0", lambda: candidates.candidate_kernel([K.expand(2, 6, 6)])),
    ("arms", lambda: candidates.candidate_kernel([SE])),
    *(("candidates", lambda u=u: candidates.candidate_kernel(u, X)) for u in (SE, "rbf", None, {"a": K})),
    *(
        ("candidate 1", lambda u=u: candidates.candidate_kernel([K, u], X))
        for u in (RBFKernel(), "rbf", None, {"kernel": "rbf"}, K.tolist(), SquaredExponential)
    ),
    *(("arms", lambda x=x: candidates.candidate_kernel([SE], x)) for x in (X[:, 0], X.tolist())),
    ("batch shape", lambda: candidates.candidate_kernel([BATCHED], X)),
    *(
        ("number", lambda o=o: candidates.init(TWO, **{"noise_var": 0.1, "trials": 2} | o))
        for o in ({"prior_mean": EYE[:, :1].expand(3, 6)}, {"noise_var": torch.tensor([0.1, 0.2, 0.3])})
    ),
    *(
        ("prior_mean", lambda k=k, m=m: candidates.init(k, 0.1, 2, prior_mean=m))
        for k, m in ((TWO, EYE[:2]), (ArmKernel.from_matrix(K), X[:, 0] * math.nan), (TWO, [0.0] * 6))
    ),
    ("U", lambda: candidates.init(ArmKernel.from_matrix(K), 0.1, 2, prior_mean=K[:0])),
    *(("noise_var", lambda v=v: candidates.init(TWO, v, 2)) for v in (-0.1, "a", None, [[0.1], [0.1, 0.2]])),
    ("trials", lambda: candidates.init(TWO, 0.1, 0)),
    ("kernel", lambda: candidates.init(K, 0.1, 2)),
    ("trial", lambda: candidates.observe(candidates.init(TWO, 0.1, 2), PULLS[:1], ONES)),
    ("rewards", lambda: candidates.observe(candidates.init(TWO, 0.1, 2), PULLS, ONES.float())),
    ("elimination", lambda: check_elimination("likely")),
    # streams
    *(("arms", lambda x=x: ArmStream.of_tensor(x)) for x in (X.numpy(), X[:0])),
    ("arms", lambda: list(ArmStream(lambda a, b: X[a:b].long(), 0, 6).blocks(1, X))),
    ("stop", lambda: ArmStream(lambda a, b: X, 3, 2)),
]


@pytest.mark.parametrize(("argument", "call"), REFUSALS, ids=[argument for argument, _ in REFUSALS])
def test_refusals_name_the_argument(argument, call):
    check_refused(call, argument)


def test_a_file_of_whole_numbers_is_refused(tmp_path):
    np.save(tmp_path / "arms.npy", np.arange(6).reshape(3, 2))
    check_refused(lambda: ArmStream.of_file(tmp_path / "arms.npy"), "array")
