"""Fixtures of the tests of bandits."""

import pytest

from bo_robust.bandits.posteriors import whitening


@pytest.fixture(params=[True, False], ids=["reading", "branch-free"])
def reads(request, monkeypatch):
    """Whether ATA takes the path of a CPU, which reads numbers, or that of CUDA, whatever the device."""
    monkeypatch.setattr(whitening, "reads_data", lambda state: request.param)
    return request.param
