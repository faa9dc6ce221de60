"""Every private or undocumented name of other packages that this package uses.

``USED`` are read by the functions below, and by no other file. ``OVERRIDDEN`` are defined anew by our subclasses, which
upstream then would no longer call after a renaming. ``.ci/private_names.py`` counts private names elsewhere, and
``tests/utils/test_upstream.py`` says which name vanished. Nothing of an optional package is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch
from botorch.acquisition.multi_objective import logei
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.transforms.outcome import Standardize
from botorch.models.utils import gpt_posterior_settings
from botorch.posteriors import TransformedPosterior
from botorch.utils.types import _DefaultType as DefaultType
from gpytorch.models import ExactGP
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from gpytorch.utils.memoize import clear_cache_hook
from torch import Tensor

from bo_robust.utils.shared import Shared

__all__ = ["OVERRIDDEN", "USED", "DefaultPredictionStrategy", "DefaultType"]

shared_posterior_settings = Shared(gpt_posterior_settings)  # in BoTorch's own, variances are computed in another way

# module:Class.name, or module:name
USED = (
    "botorch.acquisition.input_constructors:ACQF_INPUT_CONSTRUCTOR_REGISTRY",
    "botorch.acquisition.multi_objective.logei:_load_attempted",
    "botorch.acquisition.multi_objective.logei:qLogNoisyExpectedHypervolumeImprovement._max_iep",
    "botorch.acquisition.logei:qLogNoisyExpectedImprovement._baseline_L",
    "botorch.acquisition.logei:qLogNoisyExpectedImprovement._baseline_best_f",
    "botorch.acquisition.logei:qLogNoisyExpectedImprovement._cache_root",
    "botorch.acquisition.logei:qLogNoisyExpectedImprovement._constraints",
    "botorch.acquisition.logei:qLogNoisyExpectedImprovement._fat",
    "botorch.acquisition.logei:qLogNoisyExpectedImprovement._set_sampler",
    "botorch.models.gpytorch:GPyTorchModel._validate_tensor_args",
    "botorch.models.model:Model._has_transformed_inputs",
    "botorch.models.model:Model._original_train_inputs",
    "botorch.models.transforms.outcome:Standardize._m",
    "botorch.posteriors.transformed:TransformedPosterior._mean_transform",
    "botorch.posteriors.transformed:TransformedPosterior._posterior",
    "botorch.posteriors.transformed:TransformedPosterior._variance_transform",
    "botorch.utils.types:_DefaultType",
    "gpytorch.models.exact_gp:ExactGP.prediction_strategy",
    "gpytorch.models.exact_prediction_strategies:DefaultPredictionStrategy",
    "gpytorch.models.exact_prediction_strategies:DefaultPredictionStrategy.lik_train_train_covar",
    "gpytorch.models.exact_prediction_strategies:DefaultPredictionStrategy.train_labels",
    "gpytorch.models.exact_prediction_strategies:DefaultPredictionStrategy.train_prior_dist",
    "ax.api.client:Client._experiment",
    "ax.api.client:Client._generation_strategy",
    "ax.generators.torch.botorch_modular.acquisition:Acquisition._model",
    "ax.generators.torch.botorch_modular.acquisition:Acquisition._objective_weights",
    "optuna.distributions:BaseDistribution._contains",
    "optuna.study:Study._storage",
    "optuna.trial:FrozenTrial._trial_id",
    "baybe.surrogates:GaussianProcessSurrogate._measurements",
    "baybe.surrogates:GaussianProcessSurrogate._objective",
    "baybe.surrogates:GaussianProcessSurrogate._searchspace",
    "bofire.surrogates.api:SingleTaskGPSurrogate._preprocess_experiments",
)
OVERRIDDEN = (
    "botorch.acquisition.logei:qLogNoisyExpectedImprovement._init_baseline",
    "torch.nn:Module._apply",
    "torch.nn:Module._load_from_state_dict",
    "gpytorch:Module._clear_cache",
    "gpytorch.likelihoods:GaussianLikelihood._shaped_noise_covar",
    "gpytorch.models.exact_gp:ExactGP._get_test_prior_mean_and_covariances",
    "botorch.acquisition.multi_objective.logei:qLogExpectedHypervolumeImprovement._compute_log_qehvi",
    "botorch.acquisition.multi_objective.logei:qLogNoisyExpectedHypervolumeImprovement._set_cell_bounds",
    "botorch.models.gpytorch:GPyTorchModel._num_outputs",
    "botorch.models.higher_order_gp:HigherOrderGP._supports_cache_root",
    "botorch.models.map_saas:EnsembleMapSaasSingleTaskGP._supports_batched_models",
    "botorch.models.model:Model._revert_to_original_inputs",
    "botorch.models.model:Model._set_transformed_inputs",
    "botorch.models.transforms.outcome:OutcomeTransform._is_linear",
    "botorch.posteriors.gpytorch:GPyTorchPosterior._is_mt",
    "botorch.posteriors.posterior:Posterior._extended_shape",
    "ax.adapter.transforms.standardize_y:StandardizeY.Ymean",
    "ax.adapter.transforms.standardize_y:StandardizeY.Ystd",
    "ax.generators.torch.botorch_modular.acquisition:Acquisition._construct_botorch_acquisition",
    "ax.generators.torch.botorch_modular.acquisition:Acquisition.X_observed",
    "ax.generators.torch.botorch_modular.acquisition:Acquisition.X_pending",
    "baybe.surrogates:GaussianProcessSurrogate._fit",
    "baybe.surrogates:GaussianProcessSurrogate._model",
    "bofire.surrogates.api:SingleTaskGPSurrogate._fit_botorch",
)


def register_input_constructor(acquisition: type[Any], constructor: Callable[..., dict[str, Any]]) -> None:
    """Register an input constructor with BoTorch, once: a second time, as on a reload, is an error there."""
    from botorch.acquisition.input_constructors import ACQF_INPUT_CONSTRUCTOR_REGISTRY, acqf_input_constructor

    if acquisition not in ACQF_INPUT_CONSTRUCTOR_REGISTRY:
        acqf_input_constructor(acquisition)(constructor)


@contextmanager
def _no_compilation() -> Iterator[None]:
    """Make hypervolume improvement without BoTorch's C++, which it compiles at the first."""
    attempted, logei._load_attempted = logei._load_attempted, True
    try:
        yield
    finally:
        logei._load_attempted = attempted


no_compilation = Shared(_no_compilation)


class Beside(NamedTuple):
    """How noisy improvement samples at a design beside the baseline.

    Attributes:
        root: ``r x r`` Cholesky factor of the covariance of f at the baseline.
        best: The best of each sample there, ``S``.
        eps: Normal numbers of the baseline and a design, ``S x (r + 1)``.
    """

    root: Tensor
    best: Tensor
    eps: Tensor


def sampling_beside_baseline(acqf: Any) -> Beside | None:
    """How BoTorch's ``qLogNoisyExpectedImprovement`` samples at one design; None where it keeps no root, and others."""
    if not (acqf._cache_root and acqf._fat) or acqf._constraints is not None:
        return None
    X = torch.cat([acqf.X_baseline, acqf.X_baseline[:1]]).unsqueeze(0)
    acqf._set_sampler(q_in=1, posterior=acqf.model.posterior(X, posterior_transform=acqf.posterior_transform))
    best = acqf._baseline_best_f.flatten()
    return Beside(acqf._baseline_L, best, acqf.sampler.base_samples.reshape(len(best), -1))


def sampling_of_outcomes(acqf: Any) -> list[Beside]:
    """How BoTorch's ``qLogNoisyExpectedHypervolumeImprovement`` samples each outcome at one design; of others none."""
    X = acqf.X_baseline
    if not (acqf._cache_root and acqf.cache_pending and acqf.incremental_nehvi and len(X)) or acqf._max_iep:
        return []
    acqf.q_in = -1  # or a baseline of one design would keep its numbers
    acqf._set_sampler(q_in=1, posterior=acqf.model.posterior(torch.cat([X, X[:1]]).unsqueeze(0)))
    eps = acqf.sampler.base_samples.flatten(0, -3).unbind(-1)
    return [Beside(root, X[:0], e) for root, e in zip(acqf._baseline_L, eps, strict=True)]


def check_tensor_args(X: Tensor, Y: Tensor) -> None:
    """Raise or warn as BoTorch's models do for data of another dtype than float64."""
    GPyTorchModel._validate_tensor_args(X=X, Y=Y)


def standardizes_one_output(transform: Any) -> bool:
    """Whether an outcome transform is BoTorch's ``Standardize`` of one output."""
    return type(transform) is Standardize and transform._m == 1


def move_original_inputs(model: Any, fn: Callable[[Tensor], Tensor]) -> None:
    """Apply ``fn`` to the inputs before their transform, which BoTorch keeps outside of the module's buffers."""
    if model._original_train_inputs is not None:
        model._original_train_inputs = fn(model._original_train_inputs)


def points_given(model: Any) -> Tensor:
    """The training points before the input transform, whether the model is in training or not."""
    points: Tensor = model._original_train_inputs if model._has_transformed_inputs else model.train_inputs[0]
    return points.to(model.train_inputs[0])  # a model that moves leaves them behind


def latent_posterior(posterior: Any) -> Any:
    """The posterior in the scale of the targets, where an outcome transform changed it."""
    return posterior._posterior if isinstance(posterior, TransformedPosterior) else posterior


def moment_transforms(posterior: TransformedPosterior) -> tuple[Any, Any]:
    """The functions by which mean and variance are transformed, each of both moments; None where there is none."""
    return posterior._mean_transform, posterior._variance_transform


def prediction_strategy(model: Any) -> Any:
    """What an exact GP keeps between predictions; None before the first."""
    return model.prediction_strategy


def drop_prediction_strategy(model: Any) -> None:
    model.prediction_strategy = None


def forget(module: Any) -> None:
    """Drop what GPyTorch has computed and keeps, without leaving the mode of evaluation."""
    for part in module.modules():
        if isinstance(part, ExactGP):
            drop_prediction_strategy(part)
        clear_cache_hook(part)


def training_residuals(strategy: DefaultPredictionStrategy) -> tuple[Tensor, Tensor]:
    """The Cholesky factor of K + noise that a strategy keeps, ``n x n``, and y - mean, ``n``."""
    factor = strategy.lik_train_train_covar.cholesky().to_dense()
    return factor, strategy.train_labels - strategy.train_prior_dist.mean


def ax_parts(client: Any) -> tuple[Any, Any]:
    """The experiment and the generation strategy of Ax' ``Client``."""
    return client._experiment, client._generation_strategy


def ax_objectives(acquisition: Any) -> tuple[Any, Tensor]:
    """The model and the weights of the objectives of Ax' ``Acquisition``."""
    return acquisition._model, acquisition._objective_weights


def optuna_contains(distribution: Any, value: Any) -> bool:
    """Whether an Optuna distribution contains the value of a trial; ``ValueError`` where it has no such choice."""
    return bool(distribution._contains(distribution.to_internal_repr(value)))


def keep_in_optuna_trial(study: Any, trial: Any, key: str, value: Any) -> None:
    """Write an attribute of a trial to the storage of its study, if it is there."""
    with suppress(KeyError):
        study._storage.set_trial_system_attr(trial._trial_id, key, value)


def baybe_context(surrogate: Any) -> tuple[Any, Any, Any]:
    """Search space, objective and measurements that BayBE fits a surrogate to."""
    return surrogate._searchspace, surrogate._objective, surrogate._measurements


def bofire_experiments(surrogate: Any, experiments: Any) -> Any:
    """The experiments to which a BoFire surrogate is fitted, out of all."""
    return surrogate._preprocess_experiments(experiments)
