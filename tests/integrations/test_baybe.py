import numpy as np
import pandas as pd
import pytest

pytest.importorskip("baybe")

from baybe import Campaign
from baybe.objectives import DesirabilityObjective, ParetoObjective, SingleTargetObjective
from baybe.parameters import (
    CategoricalParameter,
    NumericalContinuousParameter,
    NumericalDiscreteParameter,
    TaskParameter,
)
from baybe.recommenders import BotorchRecommender
from baybe.searchspace import SearchSpace
from baybe.surrogates import GaussianProcessSurrogate
from baybe.targets import NumericalTarget
from botorch.models import SingleTaskGP

from bo_robust.integrations.baybe import (
    RobustGPSurrogate,
    held_measurements,
    outlier_measurements,
    recommend,
    replicates,
)
from bo_robust.models import RobustGP

PARAMETERS = [
    NumericalDiscreteParameter("temperature", tuple(range(40, 121, 10))),
    CategoricalParameter("solvent", ("water", "DMF", "toluene")),
]
SPACE = SearchSpace.from_product(PARAMETERS)
OPTIMUM = {"temperature": 90.0, "solvent": "DMF"}
EXACT = {"rtol": 0.0, "atol": 0.0}


def percent(experiments):
    """At most 73, at 90 degrees in DMF."""
    loss = experiments["solvent"].map({"water": 10.0, "DMF": 0.0, "toluene": 5.0})
    return 73.0 - ((experiments["temperature"] - 90.0) / 12.0) ** 2 - loss


def campaign(objective="maximize", surrogate=None, space=SPACE):
    if isinstance(objective, str):
        objective = SingleTargetObjective(NumericalTarget("y", minimize=objective == "minimize"))
    return Campaign(space, objective, BotorchRecommender(surrogate_model=surrogate or RobustGPSurrogate()))


def measured(n=18, wrong=(), sign=1.0, **kwargs):
    """A campaign with n measurements, without one at the optimum; those of the rows ``wrong`` are off."""
    experiments = SPACE.discrete.exp_rep.sample(27, random_state=1)
    experiments = experiments[(experiments[list(OPTIMUM)] != pd.Series(OPTIMUM)).any(axis=1)][:n].reset_index(drop=True)
    y = percent(experiments) + np.random.default_rng(0).normal(0.0, 0.5, n)
    y[list(wrong)] += 80.0
    result = campaign(**kwargs)
    result.add_measurements(experiments.assign(y=sign * y))
    return result


def only_model(campaign):
    (model,) = campaign.get_surrogate().to_botorch().models
    return model


@pytest.mark.parametrize(("objective", "sign"), [("maximize", 1.0), ("minimize", -1.0)])
def test_campaign_flags_the_outliers_and_finds_the_optimum(objective, sign):
    run = measured(objective=objective, wrong=(3, 8), sign=sign)
    assert list(outlier_measurements(run).index) == [3, 8]
    assert only_model(run).maximize is (sign > 0)
    for _ in range(4):
        experiment = run.recommend(1)
        run.add_measurements(experiment.assign(y=sign * percent(experiment)))
    (best,) = recommend(run)[list(OPTIMUM)].to_dict("records")
    assert best == OPTIMUM


def test_a_good_outlier_is_to_be_measured_again():
    run = measured(wrong=(3,))
    again = replicates(run)
    pd.testing.assert_frame_equal(again, run.measurements.loc[[3], list(again.columns)])
    assert replicates(run, pending_experiments=again).empty
    run.add_measurements(again.assign(y=percent(again)))
    assert replicates(run).empty


def test_a_good_reading_that_a_replicate_confirms_is_recommended():
    run = measured(wrong=(3,))
    lucky = run.measurements.loc[[3], ["temperature", "solvent"]]
    for _ in range(2):
        run.add_measurements(lucky.assign(y=142.0))
    best = recommend(run)
    assert best[list(OPTIMUM)].to_dict("records") == lucky[list(OPTIMUM)].to_dict("records")
    assert best["y_mean"].item() > 120.0


def test_a_clean_campaign_has_the_model_of_baybe():
    robust, plain = measured(), measured(surrogate=GaussianProcessSurrogate())
    assert outlier_measurements(robust).empty
    assert isinstance(only_model(robust), RobustGP)
    assert type(only_model(plain)) is SingleTaskGP
    table = SPACE.discrete.exp_rep
    pd.testing.assert_frame_equal(robust.posterior_stats(table), plain.posterior_stats(table), **EXACT)


def test_json_of_a_campaign_holds_the_surrogate_and_its_options():
    run = measured(wrong=(3, 8), surrogate=RobustGPSurrogate(outlier_share=0.1, outlier_density=0.02))
    again = Campaign.from_json(run.to_json())
    assert again == run
    assert only_model(again).outlier_prior == only_model(run).outlier_prior
    assert only_model(again).outlier_prior.share == 0.1
    pd.testing.assert_frame_equal(again.posterior_stats(), run.posterior_stats(), **EXACT)


def test_a_target_to_match_has_no_good_side():
    target = NumericalTarget.match_bell("y", match_value=60.0, sigma=5.0)
    run = measured(objective=SingleTargetObjective(target), wrong=(3,))
    assert only_model(run).maximize is None
    assert replicates(run).empty
    best = recommend(run)
    assert abs(percent(best).item() - 60.0) <= (percent(run.measurements) - 60.0).abs().min() + 1.0


def test_every_target_has_its_own_outliers():
    targets = [NumericalTarget.normalized_ramp(name, cutoffs=(0.0, 200.0)) for name in ("y", "z")]
    run, clean = campaign(DesirabilityObjective(targets)), measured().measurements
    both = clean[["temperature", "solvent", "y"]].assign(z=clean["y"] / 2.0)
    both.loc[2, "y"] += 80.0
    both.loc[5, "z"] -= 80.0
    run.add_measurements(both)
    assert list(outlier_measurements(run).index) == [2, 5]
    assert set(recommend(run).columns) == {"temperature", "solvent", "y_mean", "z_mean"}


def test_mixed_search_space():
    space = SearchSpace.from_product([*PARAMETERS[1:], NumericalContinuousParameter("temperature", (40.0, 120.0))])
    run = campaign(space=space)
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"solvent": ["water", "DMF", "toluene"] * 5, "temperature": rng.uniform(40.0, 120.0, 15)})
    data["y"] = percent(data)
    data.loc[4, "y"] += 80.0
    run.add_measurements(data)
    assert list(outlier_measurements(run).index) == [4]
    assert percent(run.recommend(1)).item() > 70.0


def skewed(factor=None):
    """A campaign of 16 recipes with a yield over factors, and the row of one of the best, off by a factor."""
    rng = np.random.default_rng(1)
    data = pd.DataFrame(rng.random((16, 2)), columns=["a", "b"])
    data["y"] = np.exp(5.0 - 14.0 * (data.a - 0.4) ** 2 - 12.0 * (data.b - 0.5) ** 2 + 0.02 * rng.normal(size=16))
    row = data["y"].nlargest(3).index[-1]
    data.loc[row, "y"] *= factor or 1.0
    run = campaign(space=SearchSpace.from_product([NumericalContinuousParameter(k, (0, 1)) for k in "ab"]))
    run.add_measurements(data)
    return run, data, row


def test_statistics_of_a_skewed_target():
    run, data, _ = skewed()
    assert not only_model(run).outcome_scale.is_identity
    low, mode, high = run.posterior_stats(data.head(4), stats=[0.05, "mode", 0.95]).to_numpy().T
    assert ((low > 0.0) & (low < mode) & (mode < high)).all()


def test_a_value_ten_times_too_large_is_not_recommended():
    run, data, row = skewed(10.0)
    assert row in [*outlier_measurements(run).index, *held_measurements(run).index]
    best = recommend(run)
    assert best.index[0] != row
    assert float(best["y_mean"].iloc[0]) < 1.5 * data.drop(index=row)["y"].max()


def test_refusals():
    with pytest.raises(ValueError, match="surrogate_model"):
        outlier_measurements(measured(surrogate=GaussianProcessSurrogate()))
    with pytest.raises(ValueError, match="add measurements"):
        outlier_measurements(campaign())
    two = ParetoObjective([NumericalTarget("y"), NumericalTarget("z")])
    run = campaign(two)
    run.add_measurements(measured().measurements[["temperature", "solvent", "y"]].assign(z=1.0))
    with pytest.raises(ValueError, match="DesirabilityObjective"):
        recommend(run)
    tasks = SearchSpace.from_product([*PARAMETERS, TaskParameter("site", ("here", "there"))])
    run = campaign(space=tasks)
    run.add_measurements(measured().measurements[["temperature", "solvent", "y"]].assign(site="here"))
    with pytest.raises(ValueError, match="transfer learning"):
        run.get_surrogate()
