"""Bayesian linear regression in features of x, as a BoTorch model whose cost does not grow with n^2.

With p features Phi (``n x p``), noise variance lambda and V = Phi^T Phi + lambda I: mean phi^T V^-1 Phi^T y and
variance lambda phi^T V^-1 phi for quadrature Fourier features (Mutny & Krause 2018), plus k(x, x) - phi^T phi for
Nyström features (deterministic training conditional, DTC). O(n p^2) to build and O(p^2) a point, whatever n.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.model import FantasizeMixin
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils import validate_input_scaling
from botorch.models.utils.assorted import fantasize
from botorch.models.utils.gpytorch_modules import (
    get_covar_module_with_dim_scaled_prior,
    get_gaussian_likelihood_with_lognormal_prior,
)
from botorch.posteriors import GPyTorchPosterior
from botorch.posteriors.posterior import Posterior
from botorch.utils.datasets import SupervisedDataset
from gpytorch.constraints import Positive
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.models import GP
from gpytorch.settings import min_variance
from linear_operator.operators import DiagLinearOperator, LowRankRootLinearOperator, MatmulLinearOperator
from torch import Tensor

from bo_robust.models.feature_maps import Dictionary, FourierMap, NystromMap, feature_map_by_name
from bo_robust.models.feature_regression import (
    WeightPosterior,
    gaussian_weights,
    information_gain,
    log_evidence,
    precision_matrix,
)
from bo_robust.models.inputs import check_noise_var
from bo_robust.validation import check_finite

__all__ = ["FeatureGP"]

CPU_BLOCK = 1024  # points whose features stay in the cache: twice as fast as all at once (p = 512)
CUDA_BLOCK = 65_536


class FeatureGP(GPyTorchModel, GP, FantasizeMixin):
    """GP regression through finitely many features: thousands of observations, arms by the ten thousand.

    With Fourier features and nodes enough it is the exact GP to rounding; with Nyström features it is the DTC
    approximation, whose variance does not starve away from the dictionary and which is the exact GP when every
    observed point is in the dictionary. The prior mean is zero: centre the rewards, or pass
    ``outcome_transform=Standardize(m=1)`` (``noise_var`` and widths are then in standardised units).

    ``fit_gpytorch_mll`` maximises the evidence of the approximate model (:meth:`log_evidence`) in O(n p^2); the
    inducing points are not fitted. Posteriors are cached: after setting a hyperparameter by hand call ``train()``,
    as with any GPyTorch model.

    :meth:`condition_on_observations` costs O(n' p^2 + p^3), whatever n; ``fantasize`` takes points ``b x q x d`` and
    any number of fantasies and is differentiable in the points (qKnowledgeGradient). The fantasy model holds one
    p x p factor per t-batch, shared by its fantasies. Batched training data are refused. The joint posterior of a
    batch holds what Nyström features miss of k, so that pending points hallucinated from it (``X_pending``) resolve
    that too; observing them teaches about the features only.

    ``state_dict`` has the hyperparameters, noise variance included even if fixed; data, inducing points and the box
    are not in it and come from the construction, so that hyperparameters load into a model of other data.

    Args:
        train_X: ``n x d`` points, n >= 1.
        train_Y: ``n x 1`` rewards, finite.
        features: :class:`~bo_robust.models.FourierMap` or :class:`~bo_robust.models.NystromMap`.
        noise_var: lambda, a fixed noise variance, at least 1e-6 in float64 and 1e-4 in float32. With neither this
            nor ``likelihood`` it is learned, under BoTorch's default prior.
        likelihood: A ``GaussianLikelihood``, in place of the one chosen by ``noise_var``.
        covar_module: Kernel without batch shape; default BoTorch's ``RBFKernel`` without output scale.
        outcome_transform: As in ``SingleTaskGP``, but None by default.
        input_transform: As in ``SingleTaskGP``.

    Raises:
        ValueError: if data are not finite or not ``n x d`` and ``n x 1``, the noise is given twice or
            ``noise_var`` too small, the likelihood or the kernel does not fit, or points are outside the box of
            Fourier features.

    Example:
        >>> model = FeatureGP(X, Y, FourierMap(nodes=32))
        >>> fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        >>> model.posterior(arms.unsqueeze(-2)).variance  # of 20,000 x 1 x d arms
    """

    train_inputs: tuple[Tensor]
    train_targets: Tensor
    _num_outputs = 1
    _half_grid = True  # the same kernel from half the Fourier features
    _symmetric = False  # any root of K_D does
    _cache: tuple[Dictionary | None, WeightPosterior] | None = None

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        features: FourierMap | NystromMap,
        noise_var: float | None = None,
        likelihood: GaussianLikelihood | None = None,
        covar_module: Kernel | None = None,
        outcome_transform: OutcomeTransform | None = None,
        input_transform: InputTransform | None = None,
    ) -> None:
        name = type(self).__name__
        if train_X.ndim != 2 or train_Y.shape != (train_X.shape[0], 1) or train_X.shape[0] == 0:
            raise ValueError(
                f"{name} needs train_X n x d and train_Y n x 1 with n >= 1, got {tuple(train_X.shape)} and "
                f"{tuple(train_Y.shape)}; model several outputs with a ModelListGP."
            )
        for label, x in (("train_X", train_X), ("train_Y", train_Y)):
            if not x.is_floating_point():
                raise ValueError(f"{label} must be floating point, got {x.dtype}; convert it with .double().")
            check_finite(label, x)
        if not isinstance(features, FourierMap | NystromMap):
            raise ValueError(f"features must be FourierMap(nodes) or NystromMap(inducing_points), got {features!r}.")
        if noise_var is not None:
            if likelihood is not None:
                raise ValueError("give one of noise_var and likelihood.")
            check_noise_var(noise_var, train_Y.dtype)
        elif likelihood is not None and not _is_homoskedastic(likelihood):
            raise ValueError(
                f"{name} has one noise variance for all observations: pass noise_var or a GaussianLikelihood "
                f"without batch shape, got {type(likelihood).__name__}."
            )
        self._validate_tensor_args(X=train_X, Y=train_Y)
        with torch.no_grad():
            transformed_X = self.transform_inputs(train_X, input_transform)
        if outcome_transform is not None:
            outcome_transform.train()
            train_Y, _ = outcome_transform(Y=train_Y, Yvar=None, X=transformed_X)
        validate_input_scaling(transformed_X, train_Y, check_nans_only=covar_module is not None)
        super().__init__()
        self.train_inputs, self.train_targets = (train_X,), train_Y.squeeze(-1)
        if covar_module is None:
            covar_module = get_covar_module_with_dim_scaled_prior(ard_num_dims=transformed_X.shape[-1])
        if covar_module.batch_shape:
            raise ValueError(f"covar_module must have no batch shape, got {tuple(covar_module.batch_shape)}.")
        self.covar_module = covar_module
        if likelihood is None:
            likelihood = get_gaussian_likelihood_with_lognormal_prior()
            if noise_var is not None:
                likelihood = GaussianLikelihood(noise_constraint=Positive(transform=None, initial_value=noise_var))
        self.likelihood = likelihood
        self.features = features.build(covar_module, transformed_X, half=self._half_grid)
        if outcome_transform is not None:
            self.outcome_transform = outcome_transform
        if input_transform is not None:
            self.input_transform = input_transform
        self.to(train_X)
        if noise_var is not None:  # after the move: a parameter starts as float32
            likelihood.noise = train_Y.new_tensor(noise_var)
            likelihood.raw_noise.requires_grad_(False)
        self.features.check(transformed_X)

    @classmethod
    def construct_inputs(  # type: ignore[override]
        cls,
        training_data: SupervisedDataset,
        features: FourierMap | NystromMap | str,
        features_options: dict[str, Any] | None = None,
        noise_var: float | None = None,
        **search_space_options: Any,
    ) -> dict[str, Any]:
        """Keyword arguments of the constructor from a data set.

        Args:
            training_data: Points and rewards. Their noise variances, if any, must be equal, unless ``noise_var``
                replaces them.
            features: As in the constructor, or a name: "fourier" or "nystrom". Ax can store only a name in JSON.
            features_options: Arguments of the named map (lists will do for tensors).
            noise_var: As in the constructor.
            search_space_options: What Ax adds for search spaces with categorical, fidelity or task features.
                Not used: such features are ordinary columns of X, for ``covar_module`` to treat.

        Returns:
            The keyword arguments.

        Raises:
            ValueError: if the name is unknown, options come with a map that is not a name, or noise variances
                differ.
        """
        inputs: dict[str, Any] = super().construct_inputs(training_data=training_data)
        inputs["features"] = feature_map_by_name(features, features_options)
        yvar = inputs.pop("train_Yvar", None)
        if noise_var is None and yvar is not None:
            if not torch.equal(yvar, yvar[:1].expand_as(yvar)):
                raise ValueError(f"{cls.__name__} has one noise variance for all observations; pass noise_var.")
            noise_var = float(yvar[0])
        if noise_var is not None:
            inputs["noise_var"] = noise_var
        return inputs

    @property
    def num_features(self) -> int:
        """p, the length of phi(x)."""
        return self._posterior_weights()[1].mean.shape[-1]

    @property
    def information_gain(self) -> Tensor:
        """Realised 1/2 logdet(I + Phi Phi^T / noise_var) of the points observed, in nats, ``batch_shape``."""
        weights = self._posterior_weights()[1]
        with torch.no_grad():
            return information_gain(weights.precision, weights.noise_var).expand(self.batch_shape)

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """The posterior of f.

        Points of different t-batches cost nothing beyond their own features: evaluate arms as ``b x 1 x d``.
        Covariances are linear operators, formed only for q > 1.

        Args:
            X: ``... x q x d``.
            output_indices: There is one output; ignored.
            observation_noise: Add the noise variance, or this tensor ``... x q x 1`` (in the units of the
                transformed outcomes).
            posterior_transform: As in BoTorch.

        Returns:
            The posterior, of batch shape ``...`` broadcast with that of the model.

        Raises:
            ValueError: if X is not of the model's dtype and device or d, or outside the box of Fourier features.
        """
        self.eval()
        self._check("X", X)
        X = self.transform_inputs(X)
        self.features.check(X)
        distribution = self(X)
        if isinstance(observation_noise, Tensor):
            noise = DiagLinearOperator(observation_noise.squeeze(-1).expand(distribution.mean.shape))
            distribution = MultivariateNormal(distribution.mean, distribution.lazy_covariance_matrix + noise)
        elif observation_noise:
            distribution = self.likelihood(distribution, X)
        posterior: Posterior = GPyTorchPosterior(distribution)
        if hasattr(self, "outcome_transform"):
            posterior = self.outcome_transform.untransform_posterior(posterior, X=X)
        return posterior if posterior_transform is None else posterior_transform(posterior=posterior, X=X)

    def forward(self, X: Tensor) -> MultivariateNormal:
        """In training mode the prior of the approximate model at X, otherwise the posterior at transformed X."""
        if self.training:
            X = self.transform_inputs(X)
            Phi = self.features.for_evidence(X, self.covar_module)
            return MultivariateNormal(X.new_zeros(X.shape[:-1]), LowRankRootLinearOperator(Phi))
        if X.shape[-2] == 1:
            mean, variance = self._marginal(X)
            return MultivariateNormal(mean, DiagLinearOperator(variance.expand(mean.shape)))
        dictionary, weights = self._posterior_weights()
        Phi = self.features(X, self.covar_module, dictionary)
        mean, spread = weights.predict(Phi)
        batch_shape = mean.shape[:-1]
        spread = spread.expand(*batch_shape, *spread.shape[-2:])
        if not self.features.has_residual:
            return MultivariateNormal(mean, MatmulLinearOperator(spread, spread.mT))
        Phi, X = Phi.expand(*batch_shape, *Phi.shape[-2:]), X.expand(*batch_shape, *X.shape[-2:])
        low_rank = MatmulLinearOperator(torch.cat([spread, Phi], -1), torch.cat([spread, -Phi], -1).mT)
        return MultivariateNormal(mean, self.covar_module(X) + low_rank)

    def log_evidence(self) -> Tensor:
        """log N(y; 0, Phi Phi^T + lambda I) of the approximate model, ``batch_shape``; O(n p^2).

        For Nyström features this is the DTC (projected process) evidence. Differentiable in the hyperparameters.
        """
        X = self.train_inputs[0] if self._has_transformed_inputs else self.transform_inputs(self.train_inputs[0])
        Phi = self.features.for_evidence(X, self.covar_module)
        return log_evidence(Phi, self._fit_targets(), self.likelihood.noise.squeeze(-1))

    def compute_custom_loss(self, mll: MarginalLogLikelihood, **kwargs: Any) -> Tensor:
        """The loss ``fit_gpytorch_mll`` minimises: -(log evidence + log priors) / n."""
        value = self.log_evidence()
        for _, module, prior, closure, _ in cast(Any, self).named_priors():
            value = value + prior.log_prob(closure(module)).sum()
        return -value / self.train_targets.shape[-1]

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any) -> FeatureGP:
        """The model with observations added.

        Args:
            X: ``batch_shape x n' x d`` points.
            Y: ``batch_shape' x n' x 1`` rewards; further leading dimensions are outcomes of the same points.
            noise: Must be None: all observations have the model's noise variance.
            kwargs: None known.

        Returns:
            A new model; this one is unchanged.

        Raises:
            ValueError: if data are not finite, not of the model's dtype and device or have more than one
                output, or ``noise`` is given.
        """
        if Y.shape[-2:] != (X.shape[-2], 1):
            raise ValueError(f"Y must be ... x n' x 1 for X ... x n' x d, got {tuple(Y.shape)} and {tuple(X.shape)}.")
        self.eval()  # train_inputs are transformed now
        if noise is not None:
            kwargs["noise"] = noise
        return cast(FeatureGP, super().condition_on_observations(X, Y, **kwargs))

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> FeatureGP:
        """:meth:`condition_on_observations` without transforms and output dimension; ``ModelListGP`` uses it.

        Args:
            inputs: ``batch_shape x n' x d`` transformed points.
            targets: ``batch_shape' x n'`` rewards.
            kwargs: None known.
        """
        if kwargs:
            raise ValueError(f"all observations have the model's noise variance; {', '.join(kwargs)} cannot be given.")
        if fantasize.off():
            self._check("X", inputs, finite=True)
            self._check("Y", targets, finite=True)
        cache = self._updated_cache(inputs, targets)
        X, y = self.train_inputs[0], self.train_targets
        # The copy shares the data and takes none of their history (a fantasy's points have one).
        shared = (self.train_inputs, y, self._cache, self._original_train_inputs)
        model: FeatureGP = copy.deepcopy(self, {id(x): x for x in shared})
        points_batch = torch.broadcast_shapes(X.shape[:-2], inputs.shape[:-2])
        batch = torch.broadcast_shapes(points_batch, y.shape[:-1], targets.shape[:-1])
        both = torch.cat([x.expand(*points_batch, *x.shape[-2:]) for x in (X, inputs)], dim=-2)
        model.train_inputs = (both.expand(*batch, *both.shape[-2:]),)
        model.train_targets = torch.cat([x.expand(*batch, x.shape[-1]) for x in (y, targets)], dim=-1)
        model._cache = cache
        return model

    def set_train_data(
        self,
        inputs: Tensor | Iterable[Tensor] | None = None,
        targets: Tensor | None = None,
        strict: bool = True,
    ) -> None:
        """Replace the data, hyperparameters unchanged.

        Args:
            inputs: ``n x d`` points, as in ``ExactGP`` (transformed in evaluation mode).
            targets: ``n`` rewards, transformed.
            strict: Whether shapes, dtypes and devices must stay as they are.

        Raises:
            ValueError: if the targets are not finite, or ``strict`` and they or the points differ in shape, dtype or
                device.
        """
        X = self.train_inputs[0] if inputs is None else inputs if isinstance(inputs, Tensor) else next(iter(inputs))
        y = self.train_targets if targets is None else targets
        check_finite("targets", y)
        for name, old, new in (("inputs", self.train_inputs[0], X), ("targets", self.train_targets, y)):
            if strict and (old.shape, old.dtype, old.device) != (new.shape, new.dtype, new.device):
                raise ValueError(
                    f"{name} are {new.dtype} of shape {tuple(new.shape)} on {new.device}, the model's {old.dtype} of "
                    f"shape {tuple(old.shape)} on {old.device}; pass strict=False to change them."
                )
        self.train_inputs, self.train_targets = (X,), y
        self._clear_cache()

    def subset_output(self, idcs: list[int]) -> FeatureGP:
        """The model itself: it has one output."""
        if list(idcs) not in ([0], [-1]):
            raise ValueError(f"the model has one output, got indices {idcs}.")
        return self

    def train(self, mode: bool = True) -> FeatureGP:
        """As in PyTorch; training mode drops the cached posterior."""
        if mode:
            self._clear_cache()
        return super().train(mode)

    def _marginal(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance at transformed points ``... x 1 x d``, a block at a time unless the model is batched."""
        block = CPU_BLOCK if X.device.type == "cpu" else CUDA_BLOCK
        if not self.batch_shape and X.shape[:-1].numel() > block:
            parts = [self._marginal(x) for x in X.reshape(-1, *X.shape[-2:]).split(block)]
            mean, variance = (torch.cat(x).reshape(X.shape[:-1]) for x in zip(*parts, strict=True))
            return mean, variance
        dictionary, weights = self._posterior_weights()
        Phi = self.features(X, self.covar_module, dictionary)
        mean, spread = weights.predict(Phi)
        variance = spread.square().sum(-1)
        if self.features.has_residual:
            prior = self.covar_module(X.reshape(-1, X.shape[-1]), diag=True).reshape(X.shape[:-1])
            variance = variance + prior - Phi.square().sum(-1)
        return mean, variance.clamp_min(min_variance.value(X.dtype))

    def _posterior_weights(self) -> tuple[Dictionary | None, WeightPosterior]:
        """The dictionary and the weights at the current hyperparameters, from the cache if it is there."""
        self.eval()
        if self._cache is None:
            with torch.no_grad():
                dictionary = self.features.prepare(self.covar_module, self._symmetric)
                Phi = self.features(self.train_inputs[0], self.covar_module, dictionary)
                noise_var = self.likelihood.noise.squeeze(-1).clone()
                self._cache = dictionary, self._regress(Phi, self.train_targets, noise_var)
        return self._cache

    def _regress(self, Phi: Tensor, y: Tensor, noise_var: Tensor) -> WeightPosterior:
        information = torch.einsum("...np,...n->...p", Phi.double(), y.double())
        return gaussian_weights(precision_matrix(Phi, noise_var), information, noise_var)

    def _updated_cache(self, inputs: Tensor, targets: Tensor) -> tuple[Dictionary | None, WeightPosterior] | None:
        """The cache after further observations, or None to compute it from all data."""
        dictionary, weights = self._posterior_weights()
        needed = inputs.requires_grad or targets.requires_grad  # no history of hyperparameters alone
        with torch.set_grad_enabled(torch.is_grad_enabled() and needed):
            return dictionary, weights.observe(self.features(inputs, self.covar_module, dictionary), targets)

    def _fit_targets(self) -> Tensor:
        return self.train_targets

    def _clear_cache(self) -> None:  # GPyTorch calls it when parameters are loaded
        self._cache = None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FeatureGP:
        before = self.train_targets
        super()._apply(fn)
        self.train_inputs, self.train_targets = (fn(self.train_inputs[0]),), fn(before)
        if self.train_targets is not before:  # really moved
            self._clear_cache()
            if self._original_train_inputs is not None:
                self._original_train_inputs = fn(self._original_train_inputs)
        return self

    def _check(self, name: str, x: Tensor, finite: bool = False) -> None:
        if finite:
            check_finite(name, x)
        like = self.train_targets
        if (x.dtype, x.device) != (like.dtype, like.device):
            raise ValueError(
                f"{name} is {x.dtype} on {x.device}, the model {like.dtype} on {like.device}; convert one of them."
            )


def _is_homoskedastic(likelihood: Any) -> bool:
    return isinstance(likelihood, GaussianLikelihood) and likelihood.noise.numel() == 1
