"""Laboratory recipes: what the readings say, and that the value at risk is another thing than the reading."""

import pandas as pd
import pytest
import torch

from bo_robust.experiments.problems import make_conditions_problem as make
from bo_robust.experiments.problems.conditions import over_environment, value_at_risk


@pytest.mark.parametrize(("campaign", "rows", "dim_x"), [("alkox", 208, 3), ("fullerenes", 246, 2), ("suzuki", 247, 3)])
def test_f_follows_the_readings(data_dir, device, campaign, rows, dim_x):
    problem = make("recipe", campaign=campaign, data_dir=data_dir, device=device)
    assert (problem.dim_x, problem.dim_z, problem.points.shape) == (dim_x, 1, (16, 1))
    table = pd.read_csv(data_dir / "lab" / f"{campaign}.csv")
    y = torch.from_numpy(table.iloc[:, -1].to_numpy(float)).to(device)
    inputs = table.iloc[:, :-1]
    ordered = inputs[[name for name in inputs if name != "temperature"] + ["temperature"]]
    X = torch.from_numpy(((ordered - ordered.min()) / (ordered.max() - ordered.min())).to_numpy(float)).to(device)
    assert len(X) == rows
    error = (problem.f(X) - (y - y.mean()) / y.std()).square().mean()
    # The fit explains a reading up to its noise, and more than nine tenths of all variance.
    assert float(error) < min(problem.noise_var, 0.1)


def test_value_at_risk_is_the_second_worst_of_16_levels(data_dir, device):
    problem = make("recipe", data_dir=data_dir, device=device)
    x = torch.tensor([0.9, 0.85, 0.95], dtype=torch.float64, device=device)
    values, probabilities = over_environment(problem, x)
    assert probabilities.tolist() == pytest.approx([1 / 16] * 16)
    assert float(value_at_risk(problem, x)) == pytest.approx(float(values.sort().values[1]))
    assert float(values.max() - values.min()) > 1.0  # temperature matters


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="campaign must be one of alkox, fullerenes, suzuki; got 'gold'"):
        make("recipe", campaign="gold")
