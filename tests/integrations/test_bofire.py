import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("bofire")
pytest.importorskip("cvxpy")  # of BoFire's extra "optimization"

import bofire.strategies.api as strategies
import bofire.surrogates.api as surrogates
from bofire.data_models.domain.api import Domain, Inputs, Outputs
from bofire.data_models.features.api import CategoricalInput, ContinuousInput, ContinuousOutput
from bofire.data_models.objectives.api import CloseToTargetObjective, MaximizeObjective, MinimizeObjective
from bofire.data_models.strategies import api
from bofire.data_models.strategies.api import (
    ActiveLearningStrategy,
    AdditiveSoboStrategy,
    AlwaysTrueCondition,
    MoboStrategy,
    NumberOfExperimentsCondition,
    QparegoStrategy,
    RandomStrategy,
    SoboStrategy,
    Step,
    StepwiseStrategy,
)
from bofire.data_models.surrogates.api import BotorchSurrogates, SingleTaskGPSurrogate

from bo_robust.integrations.bofire import RobustGPSurrogate, held_experiments, outlier_experiments
from bo_robust.models import RobustGP

ROOT = Path(__file__).resolve().parents[2]
INPUTS = Inputs(
    features=[
        ContinuousInput(key="temperature", bounds=(40.0, 120.0)),
        CategoricalInput(key="solvent", categories=["water", "DMF", "toluene"]),
    ]
)
OBJECTIVES = {
    "maximize": MaximizeObjective(),
    "minimize": MinimizeObjective(),
    "target": CloseToTargetObjective(target_value=60.0, exponent=2),
}
EXACT = {"rtol": 0.0, "atol": 0.0}


def percent(experiments):
    """At most 73, at 90 degrees in DMF."""
    loss = experiments["solvent"].map({"water": 10.0, "DMF": 0.0, "toluene": 5.0})
    return 73.0 - ((experiments["temperature"] - 90.0) / 12.0) ** 2 - loss


def outputs(objective="maximize", *more):
    return Outputs(features=[ContinuousOutput(key=key, objective=OBJECTIVES[objective]) for key in ("y", *more)])


def measured(n=18, wrong=(), sign=1.0):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"temperature": rng.uniform(40.0, 120.0, n), "solvent": ["water", "DMF", "toluene"] * (n // 3)})
    data["y"] = percent(data) + rng.normal(0.0, 0.5, n)
    data.loc[list(wrong), "y"] += 80.0
    return data.assign(y=sign * data["y"], valid_y=1)


def fitted(data, specification=RobustGPSurrogate, objective="maximize", **options):
    surrogate = surrogates.map(specification(inputs=INPUTS, outputs=outputs(objective), **options))
    surrogate.fit(data)
    return surrogate


def test_strategy_flags_the_outliers_and_finds_the_optimum():
    domain = Domain(inputs=INPUTS, outputs=outputs("minimize"))
    surrogate = RobustGPSurrogate(inputs=domain.inputs, outputs=domain.outputs)
    specification = SoboStrategy(domain=domain, surrogate_specs=BotorchSurrogates(surrogates=[surrogate]), seed=0)
    strategy = strategies.map(specification)
    strategy.tell(measured(wrong=(3, 8), sign=-1.0))
    assert list(outlier_experiments(strategy).index) == [3, 8]
    for _ in range(2):
        candidate = strategy.ask(1)[INPUTS.get_keys()]
        strategy.tell(candidate.assign(y=-percent(candidate), valid_y=1))
    assert percent(strategy.experiments).max() > 72.5


@pytest.mark.parametrize(("objective", "side"), [("maximize", True), ("minimize", False), ("target", None)])
def test_objective_says_which_side_is_good(objective, side):
    surrogate = fitted(measured(n=6), objective=objective)
    assert isinstance(surrogate.model, RobustGP)
    assert surrogate.model.maximize is side


def test_clean_experiments_get_the_model_of_bofire():
    data = measured()
    robust, plain = fitted(data), fitted(data, SingleTaskGPSurrogate)
    assert robust.model.num_outliers == 0
    pd.testing.assert_frame_equal(robust.predict(data), plain.predict(data), rtol=1e-3)


def test_json_of_a_strategy_holds_the_surrogate_and_its_options():
    domain = Domain(inputs=INPUTS, outputs=outputs())
    surrogate = RobustGPSurrogate(inputs=INPUTS, outputs=domain.outputs, outlier_share=0.1, outlier_density=0.02)
    strategy = SoboStrategy(domain=domain, surrogate_specs=BotorchSurrogates(surrogates=[surrogate]))
    again = SoboStrategy.model_validate_json(strategy.model_dump_json())
    (loaded,) = again.surrogate_specs.surrogates
    assert isinstance(loaded, RobustGPSurrogate)
    assert (loaded.outlier_share, loaded.outlier_density, loaded.kernel) == (0.1, 0.02, surrogate.kernel)


LOAD = """
import json, sys
import bo_robust.integrations.bofire
import bofire.data_models.strategies.api as api
texts = json.load(sys.stdin)
loaded = {kind: getattr(api, kind).model_validate_json(text) for kind, text in texts.items()}
print(json.dumps({kind: strategy.model_dump_json() for kind, strategy in loaded.items()}))
"""


def held_strategies():
    """A strategy of each class that holds surrogates, and one of steps."""
    domain = Domain(inputs=INPUTS, outputs=outputs())
    several = Domain(inputs=INPUTS, outputs=outputs("maximize", "z"))

    def of(strategy, domain, **options):
        each = [RobustGPSurrogate(inputs=INPUTS, outputs=Outputs(features=[o])) for o in domain.outputs]
        return strategy(domain=domain, surrogate_specs=BotorchSurrogates(surrogates=each), **options)

    first = Step(strategy_data=RandomStrategy(domain=domain), condition=NumberOfExperimentsCondition(n_experiments=8))
    last = Step(strategy_data=of(SoboStrategy, domain), condition=AlwaysTrueCondition())
    return [
        of(SoboStrategy, domain),
        of(ActiveLearningStrategy, domain),
        of(MoboStrategy, several),
        of(QparegoStrategy, several),
        of(AdditiveSoboStrategy, several),
        StepwiseStrategy(domain=domain, steps=[first, last]),
    ]


def test_json_of_a_strategy_is_loaded_in_a_new_process():
    texts = {type(strategy).__name__: strategy.model_dump_json() for strategy in held_strategies()}
    assert all("RobustGPSurrogate" in text for text in texts.values())
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOAD],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-1000:]
    assert json.loads(done.stdout.splitlines()[-1]) == texts


def test_all_strategies_that_hold_surrogates_know_this_one():
    holders = [cls for cls in vars(api).values() if "surrogate_specs" in getattr(cls, "model_fields", {})]
    assert len(holders) > 5
    for holder in holders:
        assert "RobustGPSurrogate" in str(holder.model_json_schema()["$defs"])


def test_a_strategy_from_json_takes_skewed_values():
    data = measured(18)
    data["y"] = np.exp(data["y"] / 3.0)
    domain = Domain(inputs=INPUTS, outputs=outputs())
    surrogate = RobustGPSurrogate(inputs=INPUTS, outputs=domain.outputs)
    specification = SoboStrategy(domain=domain, surrogate_specs=BotorchSurrogates(surrogates=[surrogate]), seed=0)
    strategy = strategies.map(SoboStrategy.model_validate_json(specification.model_dump_json()))
    strategy.tell(data)
    (fitted_surrogate,) = strategy.surrogates.surrogates
    assert not fitted_surrogate.model.outcome_scale.is_identity
    assert len(strategy.ask(1)) == 1
    assert bool((strategy.predict(data)["y_sd"] > 0.0).all())
    wrong = data.copy()
    wrong.loc[int(data["y"].argmax()), "y"] *= 100.0
    strategy.tell(wrong, replace=True)
    found = [*outlier_experiments(strategy).index, *held_experiments(strategy).index]
    assert int(data["y"].argmax()) in found


def test_options_and_dump_of_the_model():
    data = measured(wrong=(3, 8))
    surrogate = fitted(data, outlier_share=0.1, outlier_density=0.02)
    assert surrogate.model.outlier_prior.share == 0.1
    again = surrogates.map(RobustGPSurrogate(inputs=INPUTS, outputs=outputs()))
    again.loads(surrogate.dumps())
    assert again.model.inlier_mask.equal(surrogate.model.inlier_mask)
    pd.testing.assert_frame_equal(again.predict(data), surrogate.predict(data), **EXACT)


def test_every_output_has_its_own_outliers():
    domain = Domain(inputs=INPUTS, outputs=outputs("maximize", "z"))
    data = measured(wrong=(2,)).assign(z=lambda d: percent(d) / 2.0, valid_z=1)
    data.loc[5, "z"] -= 80.0
    data.loc[0, "valid_z"] = 0
    each = [RobustGPSurrogate(inputs=INPUTS, outputs=Outputs(features=[output])) for output in domain.outputs]
    specification = MoboStrategy(domain=domain, surrogate_specs=BotorchSurrogates(surrogates=each), seed=0)
    strategy = strategies.map(specification)
    strategy.tell(data)
    assert list(outlier_experiments(strategy).index) == [2, 5]
