"""The generation strategy of a method."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ax.adapter.registry import Generators, MBM_X_trans
from ax.adapter.transforms.derelativize import Derelativize
from ax.adapter.transforms.standardize_y import StandardizeY
from ax.core.trial_status import TrialStatus
from ax.exceptions.generation_strategy import GenerationStrategyRepeatedPoints
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generation_strategy.transition_criterion import MinTrials
from ax.generators.torch.botorch_modular.surrogate import ModelConfig, SurrogateSpec
from ax.storage.botorch_modular_registry import register_acquisition, register_acquisition_function, register_model
from ax.storage.transform_registry import register_transform
from botorch.models.transforms.outcome import Standardize

from bo_robust.acquisition.input_constructors import CONSTRUCTORS
from bo_robust.integrations.ax.acquisition import RobustAcquisition
from bo_robust.models.reward_units import rescaling_unit
from bo_robust.proposals.frames import SUMS
from bo_robust.proposals.methods import DEFAULT, METHODS, choose
from bo_robust.utils.input_checks import check_count, quoted
from bo_robust.utils.linalg import device_named


class RescaledY(StandardizeY):
    """Rewards divided by a power of 1024 (:func:`bo_robust.models.reward_units.rescaling_unit`), without a center."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super(StandardizeY, self).__init__(*args, **options)  # which would warn of small deviations
        means = options["experiment_data"].observation_data["mean"]
        self.Ymean = dict.fromkeys(means, 0.0)
        self.Ystd = {name: rescaling_unit(values.dropna().to_numpy()) for name, values in means.items()}


def generation_strategy(
    method: str = DEFAULT,
    *,
    initial: int = 5,
    seed: int | None = None,
    num_restarts: int = 8,
    raw_samples: int = 128,
    outcome_limits: Mapping[str, Sequence[float | None]] = MappingProxyType({}),
    device: str = "cpu",
    **settings: Any,
) -> GenerationStrategy:
    """Make a strategy for ``Client.set_generation_strategy``: a quasi-random (Sobol) start, then a method.

    The method takes over after ``initial`` trials that did not fail, attached ones included, as soon as one of them is
    completed. The strategy can be stored as JSON.

    Args:
        method: A name in :data:`bo_robust.proposals.methods.METHODS`; the default detects outliers without any setting.
        initial: Trials of the initial design, >= 1.
        seed: Seed of the initial design, >= 0; None: drawn from Ax' random numbers (``Client(random_seed=...)``).
        num_restarts: Restarts of the search for the best acquisition.
        raw_samples: Points from which this search gets its starts, >= ``num_restarts``.
        outcome_limits: Smallest and largest possible value of a metric, by its name, such as ``{"yield": (0, 100)}``;
            either may be None. A value beyond them is flagged, and :func:`recommend` expects none. For "robust" alone.
        device: "cpu", "cuda" or "cuda:1", of models and searches.
        settings: Settings of the method, plain JSON, with the defaults of ``METHODS[method].settings``; those in the
            units of the rewards have none here. Lengthscales are in the unit box.

    Raises:
        ValueError: if the method or a setting is unknown, missing, out of range or no plain JSON.

    Example:
        >>> client.set_generation_strategy(generation_strategy())
    """
    for name in (name for name in ("conditions", *SUMS) if name in settings):
        hint = "parameter_constraints of configure_experiment (no equalities: leave out the part that is the rest)"
        raise ValueError(f"{name} is not for Ax, which has {hint}, and v-ucb with an environment for conditions.")
    check_count(1, initial=initial, num_restarts=num_restarts)
    check_count(num_restarts, raw_samples=raw_samples)
    check_count(0, seed=0 if seed is None else seed)
    initial, num_restarts, raw_samples = int(initial), int(num_restarts), int(raw_samples)  # 8.0 is a whole number
    chosen = choose(method, settings, {"num_initial": initial}, standardized=False)
    limits = list(outcome_limits.values()) if isinstance(outcome_limits, Mapping) else [None]
    if not all(isinstance(ends, Sequence) and len(ends) == 2 for ends in limits):
        hint = f'such as {{"yield": (0, 100)}}, got {quoted(outcome_limits)}'
        raise ValueError(f"outcome_limits must give the ends of each metric by its name, {hint}.")
    # Models that standardize take rewards in any units, unless one of the settings has a unit.
    standardizes = chosen.standardizes
    any_units = standardizes and "noise_var" not in chosen.model_options and not outcome_limits
    if outcome_limits and not chosen.takes("outcome_limits"):
        raise ValueError(f"{method} has no outcome_limits; only {DEFAULT} has them.")
    options = chosen.model_options | ({"maximize": None} if chosen.takes("maximize") else {})

    def config(**more: Any) -> ModelConfig:
        return ModelConfig(
            botorch_model_class=chosen.model,
            model_options=options | more,
            outcome_transform_classes=[Standardize] if standardizes else None,  # Ax takes the models' own default away
        )

    surrogate = SurrogateSpec(
        model_configs=[config()],
        metric_to_model_configs={name: [config(outcome_limits=list(ends))] for name, ends in outcome_limits.items()},
        allow_batched_models=False,
    )
    spec = GeneratorSpec(
        generator_enum=Generators.BOTORCH_MODULAR,
        generator_kwargs={
            "surrogate_spec": surrogate,
            "acquisition_class": RobustAcquisition,
            # Ax' own choice: expected improvement, with constraints, or of hypervolume
            "botorch_acqf_class": chosen.acquisition,
            "botorch_acqf_options": chosen.acquisition_options,
            "transforms": [*MBM_X_trans, Derelativize, *([RescaledY] if any_units else [])],
            "torch_device": device_named(device),
        },
        generator_gen_kwargs={
            "model_gen_options": {"optimizer_kwargs": {"num_restarts": num_restarts, "raw_samples": raw_samples}}
        },
    )
    start = {"seed": None if seed is None else int(seed), "deduplicate": False}
    sobol = GeneratorSpec(generator_enum=Generators.SOBOL, generator_kwargs=start)
    lost = [TrialStatus.FAILED, TrialStatus.ABANDONED]
    counted: dict[str, Any] = {"transition_to": method, "use_all_trials_in_exp": True}
    enough = [
        MinTrials(threshold=initial, not_in_statuses=lost, **counted),
        MinTrials(threshold=1, only_in_statuses=[TrialStatus.COMPLETED], **counted),
    ]
    nodes = [
        GenerationNode(
            name="initial",
            generator_specs=[sobol],
            transition_criteria=enough,
            should_deduplicate=True,
            # There may be fewer arms than the initial design has trials.
            fallback_specs={GenerationStrategyRepeatedPoints: sobol},
        ),
        GenerationNode(name=method, generator_specs=[spec]),
    ]
    return GenerationStrategy(name=method, nodes=nodes)


register_acquisition(RobustAcquisition)
register_transform(RescaledY)
for _method in METHODS.values():
    register_model(_method.model)
for _acquisition in {*CONSTRUCTORS, *(method.acquisition for method in METHODS.values() if method.acquisition)}:
    register_acquisition_function(_acquisition)
