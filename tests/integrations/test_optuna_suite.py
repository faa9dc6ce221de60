"""Optuna's own tests of samplers, with and without an initial design."""

import pytest

pytest.importorskip("optuna")

from optuna.testing.pytest_samplers import BasicSamplerTestCase, MultiObjectiveSamplerTestCase, RelativeSamplerTestCase

from bo_robust.integrations.optuna import RobustSampler


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
class TestRobustSampler(BasicSamplerTestCase, MultiObjectiveSamplerTestCase, RelativeSamplerTestCase):
    @pytest.fixture(params=[1, 5], ids=["at once", "after a design"])
    def sampler(self, request):
        return lambda: RobustSampler(seed=0, num_initial=request.param, restarts=2, raw_samples=32)
