"""The campaigns of ``benchmarks.baybe`` in BoFire: ``python -m benchmarks.bofire``.

Relevance pursuit is BoFire's own ``RobustSingleTaskGPSurrogate``, which its strategies take only after ``register``.
"""

import pandas as pd
from bofire.data_models.domain.api import Domain, Inputs, Outputs
from bofire.data_models.features.api import CategoricalInput, ContinuousOutput, DiscreteInput
from bofire.data_models.strategies.api import SoboStrategy
from bofire.data_models.surrogates import api as specifications
from bofire.strategies import api as strategies
from bofire.surrogates.api import register
from bofire.surrogates.robust_single_task_gp import RobustSingleTaskGPSurrogate

from benchmarks.baybe import INITIAL, MEASUREMENTS, VALUES, Measure, run
from bo_robust.integrations.bofire import RobustGPSurrogate, outlier_experiments

SURROGATES = {
    "SingleTaskGP": specifications.SingleTaskGPSurrogate,
    "relevance pursuit": specifications.RobustSingleTaskGPSurrogate,
    "RobustGP": RobustGPSurrogate,
}


def bofire_campaign(surrogate: str, measure: Measure, start: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return the reaction to use, no flagged one."""
    numbers = [DiscreteInput(key=name, values=VALUES[name]) for name in ("temperature", "hours")]
    categories = [CategoricalInput(key=name, categories=VALUES[name]) for name in ("base", "solvent")]
    outputs = Outputs(features=[ContinuousOutput(key="y")])
    domain = Domain(inputs=Inputs(features=[*numbers, *categories]), outputs=outputs)
    specification = SURROGATES[surrogate](inputs=domain.inputs, outputs=domain.outputs)
    specs = specifications.BotorchSurrogates(surrogates=[specification])
    strategy = strategies.map(SoboStrategy(domain=domain, surrogate_specs=specs, seed=seed))
    strategy.tell(measure(start, 0).assign(valid_y=1))
    for n in range(INITIAL, MEASUREMENTS):
        strategy.tell(measure(strategy.ask(1), n).assign(valid_y=1))
    means = strategy.predict(strategy.experiments)["y_pred"].drop(outlier_experiments(strategy).index)
    return strategy.experiments.loc[[means.idxmax()]]


if __name__ == "__main__":
    register(specifications.RobustSingleTaskGPSurrogate, RobustSingleTaskGPSurrogate)
    run(bofire_campaign, list(SURROGATES))
