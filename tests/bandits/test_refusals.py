"""What the constructors, the start and a round refuse; test_mistakes_of_a_round has what holds for every algorithm."""

import math

import pytest
import torch

from bo_robust import bandits
from bo_robust.bandits import ATAGPUCB, BBKB, BKB, GPUCB, TGPUCB, VUCB, HEStableOpt, MiniGPUCB, StableOpt
from bo_robust.bandits.posteriors import arms as arm_states
from bo_robust.bandits.posteriors.arms import ArmKernel
from bo_robust.bandits.posteriors.candidates import candidate_kernel
from bo_robust.bandits.posteriors.dictionary import NystromDictionary
from bo_robust.confidence import ConstantWidth, RKHSWidth, SelfNormalisedWidth
from bo_robust.confidence.truncation import ATANystromTruncation, NoTruncation, TGPTruncation
from bo_robust.features import FourierFeatures
from bo_robust.utils.covariance import Matern, SquaredExponential
from tests.refusals import check_refused

WIDTH, LEVEL, FOURIER = ConstantWidth(2.0), TGPTruncation(4.0, 1.0), FourierFeatures(0.3, 5, ((0.0, 1.0),))
OPEN = ATANystromTruncation(1.0, 1.0, 0.1, 50, num_features=None)
X = torch.linspace(0.0, 1.0, 6, dtype=torch.float64).unsqueeze(-1)
K = SquaredExponential(0.3)(X, X)
THREE = candidate_kernel([SquaredExponential(0.1 * i) for i in (1, 2, 3)], X)
PULLS, ONES = torch.zeros(2, dtype=torch.long), torch.ones(2, dtype=torch.float64)


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
    arm_states.observe(start(GPUCB(WIDTH), trials=2).posterior, PULLS, ONES, counts)


def observe_twice(algorithm):
    state = start(algorithm)
    for _ in range(2):
        algorithm.observe(state, PULLS[:1], ONES[:1])


REFUSALS = [
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
        ("Divide", lambda w=w: start(bandits.HEGPUCB(w, 0.1, 0.1), candidate_kernel([K, 4.0 * K])))
        for w in (SelfNormalisedWidth(1.0, 0.1, 0.05), (WIDTH, RKHSWidth(1.0, 0.1)))
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
]


@pytest.mark.parametrize(("argument", "call"), REFUSALS, ids=[argument for argument, _ in REFUSALS])
def test_refusals_name_the_argument(argument, call):
    check_refused(call, argument)
