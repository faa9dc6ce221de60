"""A new method is one file and one line of each registry: the example of the page on contributing."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from bo_robust.algorithms import ALGORITHMS, GPUCB
from bo_robust.confidence import ConstantWidth
from bo_robust.covariance import SquaredExponential
from bo_robust.methods import METHODS
from bo_robust.posteriors.arms import ArmKernel
from bo_robust.study import Study

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "toy_method.py"
NAME = "constant-ucb"


@pytest.fixture
def toy(monkeypatch):
    """The example, registered."""
    spec = importlib.util.spec_from_file_location("toy_method", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "toy_method", module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(METHODS, NAME, module.ConstantUCBMethod)
    monkeypatch.setitem(ALGORITHMS, NAME, module.ConstantUCB)
    return module


def objective(x):
    return -((x["a"] - 0.3) ** 2) - (x["b"] - 0.6) ** 2


def test_in_a_study(toy, tmp_path):
    settings = {"value": 1.5, "restarts": 2, "raw_samples": 16}
    with Study.create(tmp_path / "s", {"a": (0.0, 1.0), "b": (0.0, 1.0)}, NAME, **settings) as study:
        best = study.optimize(objective, 14)
        assert study.settings["settings"]["value"] == 1.5
        acqf = study._policy.round_model(study._history(14, 14, [])).acquisition(None, None)
        assert float(acqf.width) == 1.5
    assert objective(best.x) > -0.05
    assert best.worst < best.value
    with pytest.raises(ValueError, match=r"has no setting 'valu'; did you mean 'value'\?"):
        Study.create(tmp_path / "t", {"a": (0.0, 1.0)}, NAME, valu=1.0)
    with pytest.raises(ValueError, match=r"value must be a finite number > 0, got -1\.0"):
        Study.create(tmp_path / "t", {"a": (0.0, 1.0)}, NAME, value=-1.0)


def test_in_optuna(toy):
    optuna = pytest.importorskip("optuna")
    from bo_robust.integrations.optuna import RobustSampler

    study = optuna.create_study(
        sampler=RobustSampler(NAME, seed=0, value=1.0, restarts=2, raw_samples=16), direction="maximize"
    )
    study.optimize(lambda t: objective({name: t.suggest_float(name, 0.0, 1.0) for name in "ab"}), n_trials=14)
    assert study.best_value > -0.05


def test_in_ax_and_its_files(toy, tmp_path):
    pytest.importorskip("ax")
    from ax.api.client import Client
    from ax.api.configs import RangeParameterConfig

    from bo_robust.integrations.ax import generation_strategy

    client = Client(random_seed=0)
    client.configure_experiment(
        [RangeParameterConfig(name=name, parameter_type="float", bounds=(0.0, 1.0)) for name in "ab"]
    )
    client.configure_optimization(objective="y")
    search = {"initial": 4, "seed": 0, "num_restarts": 2, "raw_samples": 16}
    client.set_generation_strategy(generation_strategy(NAME, value=0.7, noise_var=0.01, **search))

    def play(client, rounds):
        for _ in range(rounds):
            ((index, x),) = client.get_next_trials(max_trials=1).items()
            client.complete_trial(index, raw_data={"y": objective(x)})
        assert client._generation_strategy.current_node_name == NAME
        assert float(client._generation_strategy.adapter.generator._acquisition.acqf.width) == 0.7

    play(client, 6)
    client.save_to_json_file(str(tmp_path / "ax.json"))
    play(Client.load_from_json_file(str(tmp_path / "ax.json")), 1)


def test_over_arms_it_is_gp_ucb_with_that_width(toy):
    arms = torch.linspace(0, 1, 30, dtype=torch.float64).unsqueeze(-1)
    kernel = ArmKernel.from_covariance(SquaredExponential(0.2), arms)

    def played(algorithm):
        draws = torch.Generator().manual_seed(0)
        state = algorithm.init(kernel, noise_var=0.01, trials=2)
        for _ in range(10):
            uniform = torch.rand(2, generator=draws, dtype=torch.float64)
            picks = algorithm.select(state, uniform).arms
            algorithm.observe(state, picks, torch.sin(5 * arms[picks, 0]), uniform)
        return state.posterior.counts

    assert torch.equal(played(ALGORITHMS[NAME](1.5)), played(GPUCB(ConstantWidth(1.5))))
