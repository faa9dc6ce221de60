import math

import pytest
import torch

from bo_robust.features import FourierFeatures
from bo_robust.features.fourier import hermite_frequencies
from bo_robust.features.leverage import theory_oversampling
from bo_robust.features.nystrom import dictionary_root
from bo_robust.utils.covariance import SquaredExponential
from tests.refusals import check_refused

UNIT = (0.0, 1.0)
BOX = FourierFeatures(0.2, 8, (UNIT,))
X = torch.linspace(0.0, 1.0, 6, dtype=torch.float64).unsqueeze(-1)
EYE, NAN = torch.eye(2), torch.tensor([[1.0, math.nan], [math.nan, 1.0]])
SE = SquaredExponential(0.3)


def fourier(**changes):
    return FourierFeatures(**{"lengthscale": 0.3, "nodes": 4, "bounds": (UNIT, UNIT), **changes})


REFUSALS = [
    *(("nodes", lambda n=n: fourier(nodes=n)) for n in (0, "8", 257)),
    ("lengthscales", lambda: fourier(lengthscale=(0.1, 0.2, 0.3))),
    ("outputscale", lambda: fourier(outputscale=-1.0)),
    *(("bounds", lambda b=b: fourier(bounds=b)) for b in ((), UNIT, "unit", (UNIT, (1.0, 1.0)), (UNIT, (0, math.inf)))),
    *(("X", lambda x=x: BOX(x)) for x in (X.numpy(), X.long(), X[:, 0], torch.cat([X, X], 1))),
    *(("bounds", lambda x=x: BOX(X + x)) for x in (-0.01, 0.01, math.nan, math.inf)),
    *(("nodes", lambda a=a: hermite_frequencies(*a)) for a in ((0, 1), (32, 4))),
    ("dim", lambda: hermite_frequencies(3, 0)),
    ("horizon", lambda: theory_oversampling(0, 0.1, 0.5)),
    ("delta", lambda: theory_oversampling(10, 1.0, 0.5)),
    ("epsilon", lambda: theory_oversampling(10, 0.1, 1.0)),
    ("K_D", lambda: dictionary_root(NAN)),
]


@pytest.mark.parametrize(("argument", "call"), REFUSALS, ids=[argument for argument, _ in REFUSALS])
def test_refusals_name_the_argument(argument, call):
    check_refused(call, argument)
