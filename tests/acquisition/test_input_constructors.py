import importlib

import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.utils.datasets import SupervisedDataset

from bo_robust.acquisition import GPUCB, input_constructors
from bo_robust.confidence import ConstantWidth, FiniteWidth
from bo_robust.models import TruncatedGP
from bo_robust.truncation import TGPTruncation
from tests.worlds import ax_client


@pytest.fixture
def model(device):
    X = torch.rand(6, 2, dtype=torch.float64, device=device)
    return TruncatedGP(X, X.sum(-1, keepdim=True), TGPTruncation(4.0, 1.0), noise_var=0.1)


def build(model, **options):
    """As Ax does: everything by name, much of it not for us."""
    X = model.train_inputs[0]
    names = {"feature_names": ["a", "b"], "outcome_names": ["y"]}
    inputs = get_acqf_input_constructor(GPUCB)(
        training_data=SupervisedDataset(X, model.rewards, **names),
        bounds=[(0.0, 1.0), (0.0, 1.0)],
        model=model,
        X_baseline=X,
        objective=None,
        constraints=None,
        constraints_tuple=None,
        ref_point=None,
        **options,
    )
    return GPUCB(**inputs)


def test_constructor_is_registered_and_passes_everything_on(model):
    pending = model.train_inputs[0][:2] + 0.1
    transform = ScalarizedPosteriorTransform(torch.tensor([-1.0]).to(pending))
    acqf = build(model, width=ConstantWidth(1.5), posterior_transform=transform, X_pending=pending, t=4)
    assert float(acqf.width) == 1.5
    assert acqf.t == 4
    assert acqf.posterior_transform is transform
    assert torch.equal(acqf.X_pending, pending)
    assert build(model, width=ConstantWidth(1.5), X_pending=None).t == 7


def test_widths_from_specs(model):
    expected = GPUCB(model, FiniteWidth(num_arms=9, delta=0.1)).width
    acqf = build(model, width={"kind": "finite", "num_arms": 9})
    assert torch.equal(acqf.width, expected)
    expected = GPUCB(model, FiniteWidth(num_arms=9, delta=0.02)).width
    for options in (
        {"delta": 0.02, "width": {"kind": "finite", "num_arms": 9}},
        {"width": {"kind": "finite", "num_arms": 9, "delta": 0.02}},
    ):
        assert torch.equal(build(model, **options).width, expected)
    # Widths without a delta do not get one.
    assert float(build(model, width={"kind": "constant", "value": 2.0}).width) == 2.0
    assert build(model, width={"kind": "randomised", "num_arms": 4}).width > 0


def test_bad_options_are_refused(model):
    with pytest.raises(ValueError, match=r"unknown width 'beta'; choose one of: ata_fourier"):
        build(model, width={"kind": "beta"})
    with pytest.raises(ValueError, match="width must be a mapping with a `kind`, got 'finite'"):
        build(model, width="finite")
    with pytest.raises(TypeError, match="beta"):
        build(model, width={"kind": "constant", "value": 1.0}, beta=0.2)


def test_importing_again_does_not_register_twice():
    before = get_acqf_input_constructor(GPUCB)
    importlib.reload(input_constructors)
    assert get_acqf_input_constructor(GPUCB) is before


def tgp_ucb_client():
    """Options in plain JSON: four Sobol trials, then TGP-UCB."""
    model = {"truncation": {"kind": "tgp", "moment_bound": 4.0, "alpha": 1.0}, "noise_var": 0.01}
    width = {"width": {"kind": "constant", "value": 0.5}}
    return ax_client({"a": (-1.0, 3.0), "b": (-1.0, 3.0)}, "-y", TruncatedGP, GPUCB, 4, model, width)


def ax_reward(p):
    return 0.1 * ((p["a"] - 1.0) ** 2 + (p["b"] - 0.5) ** 2) - 0.5


def test_ax_loop_with_pending_trials(monkeypatch):
    pytest.importorskip("ax")
    client = tgp_ucb_client()
    rewards, spread, pending = [], [], []
    original = GPUCB.set_X_pending
    monkeypatch.setattr(GPUCB, "set_X_pending", lambda self, X=None: pending.append(X) or original(self, X))
    for i in range(9):
        trials = client.get_next_trials(max_trials=1)
        if i >= 4:  # a second trial while the first is pending
            trials |= client.get_next_trials(max_trials=1)
            first, second = trials.values()
            spread.append(sum((first[k] - second[k]) ** 2 for k in first) ** 0.5)
        for index, p in trials.items():
            y = ax_reward(p) - (500.0 if index == 2 else 0.0)
            rewards.append(y)
            client.complete_trial(trial_index=index, raw_data={"y": y})
    assert len(rewards) == 14
    assert min(spread) > 1e-3  # without hallucination both would be the one maximum
    assert spread[0] > 0.05
    assert sum(X is not None and X.shape == (1, 2) for X in pending) >= 5
    model = client._generation_strategy.adapter.generator.surrogate.model
    assert isinstance(model, TruncatedGP)
    # Rows are the trials in order, the rewards are not transformed, and only the outlier is truncated.
    known = len(model.rewards)
    torch.testing.assert_close(model.rewards[:, 0], torch.tensor(rewards[:known], dtype=torch.float64))
    assert model.truncated[:, 0].nonzero().tolist() == [[2]]
    assert min(rewards[4:]) < -0.45
