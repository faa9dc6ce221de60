"""Bayesian linear regression in features of x, as a BoTorch model whose cost does not grow with n^2.

With p features Phi (``n x p``), noise variance lambda and V = Phi^T Phi + lambda I, the mean is phi^T V^-1 Phi^T y. The
variance is lambda phi^T V^-1 phi for quadrature Fourier features (Mutny & Krause 2018), plus k(x, x) - phi^T phi for
Nyström features (deterministic training conditional, DTC). It takes O(n p^2) to build, and O(p^2) a point whatever n.

V, its factor and sums over observations are float64 whatever the dtype of the features: in float32, lambda and the
variance where there are no data are lost as soon as n eps reaches lambda.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.model import FantasizeMixin
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.models.utils import validate_input_scaling
from botorch.models.utils.assorted import fantasize
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from botorch.posteriors.posterior import Posterior
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, Mean
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.models import GP
from gpytorch.settings import min_variance
from linear_operator.operators import DiagLinearOperator, LowRankRootLinearOperator, MatmulLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from bo_robust.features.maps import FEATURE_MAPS, FourierMap, NystromMap
from bo_robust.features.nystrom import NystromWeights
from bo_robust.models.linear_regression import WeightPosterior, gaussian_weights, log_evidence, precision_matrix
from bo_robust.models.training_data import check_added, check_data, check_learnt, from_spec, one_noise_likelihood
from bo_robust.utils.input_checks import check_finite, check_like, check_positive, check_tensor, quoted
from bo_robust.utils.linalg import on_cuda
from bo_robust.utils.upstream import DefaultType, check_tensor_args, move_original_inputs

CPU_BLOCK = 1024  # features of so many points stay in the processor's cache: twice as fast as all at once (p = 512)
CUDA_BLOCK = 65_536


class FeatureGP(GPyTorchModel, GP, FantasizeMixin):
    """GP regression through finitely many features: for thousands of observations and tens of thousands of arms.

    With enough Fourier nodes it is the exact GP up to rounding. With Nyström features it is the DTC approximation,
    whose variance does not starve away from the dictionary; it is the exact GP when every observed point is in the
    dictionary. Kernel, prior mean, transforms and priors are by default those of ``SingleTaskGP``.

    ``fit_gpytorch_mll`` maximizes the evidence of the approximate model (:meth:`log_evidence`) in O(n p^2); inducing
    points are not fitted. Posteriors are cached: after setting a hyperparameter by hand call ``train()``, as with any
    GPyTorch model.

    :meth:`condition_on_observations` costs O(n' p^2 + p^3), whatever n. ``fantasize`` takes points ``b x q x d`` and
    any number of fantasies, and is differentiable in the points (qKnowledgeGradient). A fantasy model holds one p x p
    factor per t-batch, shared by its fantasies. The joint posterior of a batch includes what Nyström features miss of
    k, so pending points hallucinated from it (``X_pending``) resolve that too. Observations inform about the features
    only. BoTorch's ``loo_cv`` keeps the features of all rows, and ignores what Nyström features miss of k.

    ``state_dict`` holds the hyperparameters, with the noise variance even if fixed. Data, inducing points and the box
    come from the construction, so hyperparameters load into a model of other data.

    Arguments not listed are those of ``SingleTaskGP``.

    Args:
        train_X: ``n x d`` points, n >= 1; no batch shape.
        train_Y: ``n x 1`` observations, finite.
        features: :class:`~bo_robust.models.FourierMap` or :class:`~bo_robust.models.NystromMap`.
        noise_var: lambda, a fixed noise variance in the units of the observations. After the outcome transform it must
            be at least 1e-6 in float64 and 1e-4 in float32. With neither this nor ``likelihood`` it is learned.
        likelihood: A ``GaussianLikelihood``, in place of ``noise_var``.
        covar_module: Kernel without batch shape.

    Raises:
        ValueError: if data are not finite or not ``n x d`` and ``n x 1``, the noise is given twice or ``noise_var`` is
            too small, the likelihood or the kernel does not fit, or points are outside the box of Fourier features.

    Example:
        >>> model = FeatureGP(X, Y, FourierMap(nodes=32))
        >>> fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        >>> model.posterior(arms.unsqueeze(-2)).variance  # of 20,000 x 1 x d arms
    """

    train_inputs: tuple[Tensor]
    train_targets: Tensor
    _num_outputs = 1
    evaluates_in_blocks = True  # so that callers need not
    _half_grid = True  # the same kernel from half the Fourier features
    _symmetric = False  # any root of K_D does
    _cache: tuple[NystromWeights | None, WeightPosterior] | None = None

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        features: FourierMap | NystromMap,
        noise_var: float | None = None,
        likelihood: GaussianLikelihood | None = None,
        covar_module: Kernel | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
    ) -> None:
        name = type(self).__name__
        check_data(name, train_X, train_Y, batched=False)
        if not isinstance(features, FourierMap | NystromMap):
            raise ValueError(f"features must be a FourierMap or a NystromMap, got {quoted(features)}.")
        check_tensor_args(train_X, train_Y)
        with torch.no_grad():
            transformed_X = self.transform_inputs(train_X, input_transform)
        if isinstance(outcome_transform, DefaultType):
            outcome_transform = Standardize(m=1)
        if outcome_transform is not None:
            train_Y, noise_var = _transformed(outcome_transform, train_Y, noise_var, transformed_X)
        likelihood = one_noise_likelihood(name, noise_var, likelihood, train_Y.dtype)
        validate_input_scaling(transformed_X, train_Y, check_nans_only=covar_module is not None)
        super().__init__()
        self.train_inputs, self.train_targets = (train_X,), train_Y.squeeze(-1)
        self.covar_module, self.likelihood = _kernel(covar_module, transformed_X.shape[-1]), likelihood
        self.mean_module = ConstantMean() if mean_module is None else mean_module
        self.features = features.build(self.covar_module, transformed_X, half=self._half_grid)
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
        features: FourierMap | NystromMap | Mapping[str, Any],
        noise_var: float | None = None,
        **search_space_options: Any,
    ) -> dict[str, Any]:
        """Keyword arguments of the constructor from a data set.

        ``features`` may also be ``{"kind": "fourier" or "nystrom", ...}`` (with lists for tensors), which Ax can store.
        What Ax adds for categorical, fidelity or task features is ignored. ``ValueError`` for wrong features, or noise
        variances of the data that differ where no ``noise_var`` replaces them.
        """
        inputs: dict[str, Any] = super().construct_inputs(training_data=training_data)
        inputs["features"] = from_spec(features, FEATURE_MAPS, {}, "features")
        yvar = inputs.pop("train_Yvar", None)
        if noise_var is None and yvar is not None:
            if not torch.equal(yvar, yvar[:1].expand_as(yvar)):
                raise ValueError(f"{cls.__name__} has one noise variance for all observations; pass noise_var.")
            noise_var = float(yvar[0])
        return inputs if noise_var is None else inputs | {"noise_var": noise_var}

    @property
    def information_gain(self) -> Tensor:
        """Realized 1/2 logdet(I + Phi Phi^T / noise_var) of the points observed, in nats, ``batch_shape``."""
        weights = self._posterior_weights()[1]
        with torch.no_grad():
            root = psd_safe_cholesky(weights.precision / weights.noise_var)
            return root.diagonal(dim1=-2, dim2=-1).log().sum(-1).to(weights.noise_var).expand(self.batch_shape)

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """The posterior of f at X, ``... x q x d``; its batch shape is ``...`` broadcast with the model's.

        Points of different t-batches cost nothing beyond their own features: evaluate arms as ``b x 1 x d``.
        Covariances are linear operators, formed only for q > 1. ``observation_noise`` adds the noise variance, or is a
        tensor ``... x q x 1`` to add (in units of the transformed outcomes). ``ValueError`` if X has not the model's
        dtype, device and d, or is outside the box of Fourier features.
        """
        check_like("X", X, "the model", self.train_targets)
        return super().posterior(X, observation_noise, posterior_transform)

    def __call__(self, X: Tensor) -> MultivariateNormal:
        """In training mode the prior at X, in evaluation mode the posterior at transformed X."""
        if self.training:
            return cast(MultivariateNormal, super().__call__(X))
        self.features.check(X)
        if X.shape[-2] == 1:
            mean, variance = self._marginal(X)
            return MultivariateNormal(mean, DiagLinearOperator(variance.expand(mean.shape)))
        Phi, mean, spread = self._predict(X)
        batch_shape = mean.shape[:-1]
        spread = spread.expand(*batch_shape, *spread.shape[-2:])
        if not self.features.has_residual:
            return MultivariateNormal(mean, MatmulLinearOperator(spread, spread.mT))
        Phi, X = (x.expand(*batch_shape, *x.shape[-2:]) for x in (Phi, X))
        # One product for both terms: spread spread^T - Phi Phi^T.
        low_rank = MatmulLinearOperator(torch.cat([spread, Phi], -1), torch.cat([spread, -Phi], -1).mT)
        return MultivariateNormal(mean, self.covar_module(X) + low_rank)

    def forward(self, X: Tensor) -> MultivariateNormal:
        """The prior of the approximate model at X, which has passed the input transform in evaluation mode."""
        X = self.transform_inputs(X) if self.training else X
        Phi = self.features.for_evidence(X, self.covar_module)
        return MultivariateNormal(self.mean_module(X), LowRankRootLinearOperator(Phi))

    def log_evidence(self) -> Tensor:
        """log N(y; m, Phi Phi^T + lambda I), ``batch_shape``, differentiable in the hyperparameters; O(n p^2)."""
        X = self.transform_inputs(self.train_inputs[0]) if self.training else self.train_inputs[0]
        Phi = self.features.for_evidence(X, self.covar_module)
        return log_evidence(Phi, self._fit_targets() - self.mean_module(X), self.likelihood.noise.squeeze(-1))

    def compute_custom_loss(self, mll: MarginalLogLikelihood, **kwargs: Any) -> Tensor:
        """The loss that ``fit_gpytorch_mll`` minimizes: -(log evidence + log priors) / n."""
        value = self.log_evidence()
        for _, module, prior, closure, _ in cast(Any, self).named_priors():
            value = value + prior.log_prob(closure(module)).sum()
        return -value / self.train_targets.shape[-1]

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any) -> FeatureGP:
        """A new model with points ``batch_shape x n' x d`` and observations ``batch_shape' x n' x 1`` added.

        Leading dimensions of the observations beyond those of the points are outcomes of the same points.
        ``ValueError`` if data are not finite, have not the model's dtype and device, or have more than one output, or
        if ``noise`` is given.
        """
        check_added(X, Y)
        if fantasize.off():
            check_learnt(X, Y, self.train_targets)  # before transforms, which may hide another dtype
        self.eval()  # train_inputs are transformed now
        return cast(FeatureGP, super().condition_on_observations(X, Y, noise, **kwargs))

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> FeatureGP:
        """As :meth:`condition_on_observations`, on transformed data, rewards ``... x n'``; ``ModelListGP`` calls it."""
        if kwargs:
            raise ValueError(f"all observations have the model's noise variance; {', '.join(kwargs)} cannot be given.")
        if fantasize.off():
            check_learnt(inputs, targets, self.train_targets)
        cache = self._updated_cache(inputs, targets)
        X, y = self.train_inputs[0], self.train_targets
        # The copy shares the data and takes none of their history (a fantasy's points have one).
        shared = (self.train_inputs, y, self._cache)
        model: FeatureGP = copy.deepcopy(self, {id(x): x for x in shared})
        points_batch = torch.broadcast_shapes(X.shape[:-2], inputs.shape[:-2])
        batch = torch.broadcast_shapes(points_batch, y.shape[:-1], targets.shape[:-1])
        both = torch.cat([x.expand(*points_batch, *x.shape[-2:]) for x in (X, inputs)], dim=-2)
        model.train_inputs = (both.expand(*batch, *both.shape[-2:]),)
        model.train_targets = torch.cat([x.expand(*batch, x.shape[-1]) for x in (y, targets)], dim=-1)
        model._cache = cache
        return model

    def set_train_data(
        self, inputs: Tensor | Iterable[Tensor] | None = None, targets: Tensor | None = None, strict: bool = True
    ) -> None:
        """Replace the data (``n x d`` points, ``n`` transformed observations) and keep the hyperparameters.

        In evaluation mode points are transformed ones, as in ``ExactGP``. ``ValueError`` if targets are not finite, or
        if ``strict`` and data differ in shape, dtype or device from the old.
        """
        X = self.train_inputs[0] if inputs is None else inputs if isinstance(inputs, Tensor) else next(iter(inputs))
        y = self.train_targets if targets is None else targets
        for name, old, new in (("inputs", self.train_inputs[0], X), ("targets", self.train_targets, y)):
            check_tensor(name, new)
            if strict:
                check_like(name, new, "the model", old, "pass strict=False to change them")
                if new.shape != old.shape:
                    shapes = f"of shape {tuple(new.shape)}, the model's {tuple(old.shape)}"
                    raise ValueError(f"{name} are {shapes}; pass strict=False to change them.")
        check_finite("targets", y)
        self.train_inputs, self.train_targets = (X,), y
        self._clear_cache()

    def train(self, mode: bool = True) -> FeatureGP:
        if mode:
            self._clear_cache()
        return super().train(mode)

    def _features(self, X: Tensor) -> Tensor:
        """phi at transformed points ``... x n x d``, ``... x n x p``."""
        return self.features(X, self.covar_module, self._posterior_weights()[0])

    def _predict(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """phi, mean and S at transformed points; S S^T is the covariance without what the features miss."""
        Phi = self._features(X)
        mean, spread = self._posterior_weights()[1].predict(Phi)
        return Phi, self.mean_module(X) + mean, spread

    def _marginal(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f at each of the transformed points ``... x 1 x d``, ``... x 1`` each."""
        block = CUDA_BLOCK if on_cuda(X) else CPU_BLOCK
        if not self.batch_shape and X.shape[:-1].numel() > block:
            pieces = [self._marginal(x) for x in X.reshape(-1, *X.shape[-2:]).split(block)]
            mean, variance = (torch.cat(x).reshape(X.shape[:-1]) for x in zip(*pieces, strict=True))
            return mean, variance
        Phi, mean, spread = self._predict(X)
        variance = spread.square().sum(-1)
        if self.features.has_residual:
            prior = self.covar_module(X.reshape(-1, X.shape[-1]), diag=True).reshape(X.shape[:-1])
            variance = variance + prior - Phi.square().sum(-1)
        return mean, variance.clamp_min(min_variance.value(X.dtype))

    def _posterior_weights(self) -> tuple[NystromWeights | None, WeightPosterior]:
        """The dictionary and the weights at the current hyperparameters, cached."""
        self.eval()
        if self._cache is None:
            with torch.no_grad():
                X = self.train_inputs[0]
                dictionary = self.features.prepare(self.covar_module, self._symmetric)
                Phi = self.features(X, self.covar_module, dictionary)
                noise_var = self.likelihood.noise.squeeze(-1).clone()
                self._cache = dictionary, self._regress(Phi, self.train_targets - self.mean_module(X), noise_var)
        return self._cache

    def _regress(self, Phi: Tensor, y: Tensor, noise_var: Tensor) -> WeightPosterior:
        information = torch.einsum("...np,...n->...p", Phi.double(), y.double())
        return gaussian_weights(precision_matrix(Phi, noise_var), information, noise_var)

    def _updated_cache(self, inputs: Tensor, targets: Tensor) -> tuple[NystromWeights | None, WeightPosterior] | None:
        """The cache after further observations, or None to compute it from all data."""
        dictionary, weights = self._posterior_weights()
        # Parameters require gradients: without this, every conditioned model would have a history that nobody needs.
        needed = inputs.requires_grad or targets.requires_grad
        with torch.set_grad_enabled(torch.is_grad_enabled() and needed):
            return dictionary, weights.observe(self._features(inputs), targets - self.mean_module(inputs))

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
            move_original_inputs(self, fn)
        return self


def _transformed(
    transform: OutcomeTransform, Y: Tensor, noise_var: float | None, X: Tensor
) -> tuple[Tensor, float | None]:
    """Rewards and their noise variance in the units of an outcome transform, which is trained on them."""
    if noise_var is not None:
        check_positive(noise_var=noise_var)
    every_noise_var = None if noise_var is None else torch.full_like(Y, noise_var)
    Y, Yvar = transform.train()(Y=Y, Yvar=every_noise_var, X=X)
    return Y, None if Yvar is None else float(Yvar[0])


def _kernel(covar_module: Kernel | None, d: int) -> Kernel:
    kernel = get_covar_module_with_dim_scaled_prior(ard_num_dims=d) if covar_module is None else covar_module
    if not isinstance(kernel, Kernel) or kernel.batch_shape:
        raise ValueError(f"covar_module must be a GPyTorch kernel without batch shape, got {quoted(kernel)}.")
    return kernel
