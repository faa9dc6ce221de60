import numpy as np
import pytest
import torch

from bo_robust import confidence
from bo_robust.confidence import ConstantWidth, FiniteWidth, RandomizedWidth, gp_ucb_regret_bound, propose_constants
from bo_robust.confidence import information_gain as gains
from bo_robust.confidence.candidate_widths import check_number, check_unit_scale
from bo_robust.confidence.truncation import (
    TGPTruncation,
    median_mad,
    truncate,
)
from tests.refusals import check_refused

K = torch.eye(3, dtype=torch.float64)
ONE, TWO = torch.ones(1), torch.ones(2)
RKHS = confidence.RKHSWidth(1.0, 0.1)
REWARDS = np.random.default_rng(0).standard_normal(200)

CURVES = (gains.greedy, gains.greedy_bound)
REFUSALS = [
    # widths
    *(("num_arms", lambda n=n: FiniteWidth(n, 0.1)) for n in (2.5, "ten", None)),
    ("num_arms", lambda: RandomizedWidth(1)),
    ("delta", lambda: FiniteWidth(5, np.array([0.1, 0.2]))),
    ("value", lambda: ConstantWidth("2")),
    ("norm_bound", lambda: confidence.SelfNormalizedWidth(None, 1.0, 0.1)),
    *(("t", lambda t=t: ConstantWidth(1.0)(t)) for t in (0, "1")),
    *(("uniform", lambda a=a: RandomizedWidth(5)(*a)) for a in ((1,), (1, 0.0, 1.0))),
    ("2 widths", lambda: check_number((ConstantWidth(1.0),) * 2, 3)),
    *(
        ("large", lambda w=w: check_unit_scale(w, ["small", "large"], torch.tensor([[1.0], [4.0]]).__getitem__))
        for w in (RKHS, (ConstantWidth(1.0), RKHS))
    ),
    # truncation
    *(("moment_bound", lambda v=v: TGPTruncation(v, 1.0)) for v in ("4", True, np.array([4.0, 1.0]))),
    ("t", lambda: TGPTruncation(4.0, 1.0)(0)),
    ("rule", lambda: truncate(ONE, 1.0, "drop")),
    ("y", lambda: truncate([1.0, 2.0], 1.0)),
    ("entries", lambda: median_mad(np.ones((3, 2)))),
    # information gain and regret
    *(("noise_var", lambda f=f: f(K, 0.0)) for f in (gains.exact, gains.increments)),
    *(("noise_var", lambda f=f: f(K, 0.0, 3)) for f in CURVES),
    *(("T", lambda f=f: f(K, 1.0, 0)) for f in CURVES),
    *(("kernel matrix", lambda f=f: f(-K, 1.0, 3)) for f in CURVES),
    *(("K", lambda k=k: gains.exact(k, 1.0)) for k in (np.eye(3), K[:2])),
    ("K", lambda: gains.exact(K.long(), 1.0)),
    ("kernel matrix", lambda: gains.greedy(K[None], 1.0, 3)),
    *(("widths", lambda a=a: gp_ucb_regret_bound(*a)) for a in (([1.0], ONE, 1.0), (ONE, TWO, 0.1))),
    ("noise_var", lambda: gp_ucb_regret_bound(TWO, TWO, 0.0)),
    # constants from rewards
    *(("rewards", lambda y=y: propose_constants(y)) for y in ([1.0] * 9, ["a"] * 200, None, REWARDS * np.nan)),
    ("entries", lambda: propose_constants(np.ones(200))),
    *(("arms", lambda a=a: propose_constants(REWARDS, arms=a)) for a in ([1, 2], np.arange(200))),
    ("delta", lambda: propose_constants(REWARDS, delta=0.0)),
    ("delta", lambda: propose_constants(REWARDS[:100], delta=1e-17)),
]


@pytest.mark.parametrize(("argument", "call"), REFUSALS, ids=[argument for argument, _ in REFUSALS])
def test_refusals_name_the_argument(argument, call):
    check_refused(call, argument)
