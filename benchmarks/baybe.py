"""Campaigns of 28 measurements in BayBE, clean and with wrong readings: ``python -m benchmarks.baybe``.

The table of 324 reactions has its optimum, 73.0, at 90 degrees and 4 hours with K2CO3 in DMF. The noise has standard
deviation 1; contaminated readings are 80 too high with probability .15. All surrogates of a seed have the same first
eight reactions, noise and wrong readings. The score is the true value of the reaction that one would use in the end:
the measured one with the best posterior mean.
"""

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd

VALUES: dict[str, list] = {
    "temperature": [float(t) for t in range(40, 121, 10)],
    "hours": [1.0, 2.0, 4.0, 8.0],
    "base": ["KOH", "K2CO3", "Et3N"],
    "solvent": ["water", "DMF", "toluene"],
}
LOSS = {"KOH": 6.0, "K2CO3": 0.0, "Et3N": 12.0, "water": 10.0, "DMF": 0.0, "toluene": 5.0}
INITIAL, MEASUREMENTS = 8, 28
Measure = Callable[[pd.DataFrame, int], pd.DataFrame]


def true_yield(x: pd.DataFrame) -> pd.Series:
    losses = x["base"].map(LOSS).astype(float) + x["solvent"].map(LOSS).astype(float)
    return 73.0 - ((x["temperature"] - 90.0) / 12.0) ** 2 - 4.0 * (np.log2(x["hours"]) - 2.0) ** 2 - losses


def baybe_campaign(surrogate: str, measure: Measure, start: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return the reaction to use; "RobustGP + replicates" measures again what ``replicates`` says."""
    from baybe import Campaign, Settings, objectives, parameters, recommenders, surrogates, targets
    from baybe.searchspace import SearchSpace

    from bo_robust.integrations.baybe import RobustGPSurrogate, recommend, replicates

    kinds = {str: parameters.CategoricalParameter, float: parameters.NumericalDiscreteParameter}
    space = SearchSpace.from_product([kinds[type(values[0])](name, values) for name, values in VALUES.items()])
    model = surrogates.GaussianProcessSurrogate() if surrogate == "SingleTaskGP" else RobustGPSurrogate()
    objective = objectives.SingleTargetObjective(targets.NumericalTarget("y"))
    with Settings(random_seed=seed):
        campaign = Campaign(space, objective, recommenders.BotorchRecommender(surrogate_model=model))
        campaign.add_measurements(measure(start, 0))
        for n in range(INITIAL, MEASUREMENTS):
            again = replicates(campaign) if surrogate.endswith("replicates") else start[:0]
            campaign.add_measurements(measure(again if len(again) else campaign.recommend(1), n))
    if surrogate == "SingleTaskGP":
        return campaign.measurements.iloc[[campaign.posterior_stats()["y_mean"].argmax()]]
    return recommend(campaign)


def run(campaign: Callable[[str, Measure, pd.DataFrame, int], pd.DataFrame], surrogates: list[str]) -> None:
    """Print a row of scores for each surrogate, clean and contaminated."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    warnings.simplefilter("ignore")
    table = pd.MultiIndex.from_product(list(VALUES.values()), names=list(VALUES)).to_frame(index=False)
    for share in (0.0, 0.15):
        for surrogate in surrogates:
            scores, began = [], time.perf_counter()
            for seed in seeds:
                rng = np.random.default_rng(seed)
                error = rng.normal(size=MEASUREMENTS) + 80.0 * (rng.random(MEASUREMENTS) < share)

                def measure(x: pd.DataFrame, n: int, error: np.ndarray = error) -> pd.DataFrame:
                    return x[list(VALUES)].assign(y=true_yield(x) + error[n : n + len(x)])

                start = table.sample(INITIAL, random_state=seed)
                scores.append(true_yield(campaign(surrogate, measure, start, seed)).item())
            seconds = (time.perf_counter() - began) / len(seeds)
            each = ", ".join(f"{score:.1f}" for score in scores)
            print(
                f"{share:.0%} | {surrogate} | {np.mean(scores):.1f} | {each} | {seconds:.0f} s a campaign", flush=True
            )


if __name__ == "__main__":
    run(baybe_campaign, ["SingleTaskGP", "RobustGP", "RobustGP + replicates"])
