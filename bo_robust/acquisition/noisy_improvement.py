"""Noisy improvement of one outcome, written out for one design.

Let T be the n points of the training data, B the r designs to improve on, and L the Cholesky factor of the prior
covariance of the observations at T and of f at B. With w(x) = L^-1 k([T; B], x), whose last r entries are l(x),

    f_s(x) = mu(x) + l(x)^T e_s + sqrt(k(x, x) - |w(x)|^2) e'_s

is the sample at x beside those at B that the normal numbers e_s make. So the samples of a design take one product with
L^-1. BoTorch finds the same numbers by GPyTorch's posterior at B and x, which is made anew for every x.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.objective import GenericMCObjective, IdentityMCObjective, ScalarizedPosteriorTransform
from botorch.utils.safe_math import fatplus
from botorch.utils.transforms import t_batch_mode_transform
from linear_operator.settings import cholesky_jitter
from torch import Tensor

from bo_robust.models.exact_moments import exact_strategy, solved
from bo_robust.models.moments import marginal_moments
from bo_robust.models.robust.outcome_scale import IDENTITY, OutcomeScale
from bo_robust.models.robust.posterior import LatentModel, standardize_of
from bo_robust.utils.covariance import Shape, shape_of, squared_distances
from bo_robust.utils.upstream import Beside, prediction_strategy, sampling_beside_baseline

SURE = 6.0  # standard deviations that a sample exceeds once in 1e9
TINY = 1e-30  # smallest variance, whose square root has a gradient
Affine = tuple[Tensor, Tensor]  # unit and shift of unit f + shift; the unit is not 0


class OnePointLogNoisyExpectedImprovement(qLogNoisyExpectedImprovement):
    """BoTorch's ``qLogNoisyExpectedImprovement``, with values at one design written out.

    It does so for an exact GP of one output, such as ``SingleTaskGP`` and ``RobustGP``, with a kernel of
    :data:`bo_robust.utils.covariance.RADIALS`. A posterior transform may weigh the output. Several designs at once,
    other models, and an objective or constraints take BoTorch's own way. Pending designs are part of the baseline, as
    there. (BoTorch's ``LogNoisyExpectedImprovement`` is another function, without samples.)

    In a learnt scale the outcomes are not Gaussian, but their latent values are. So the latent values are sampled, with
    the Cholesky factor that BoTorch keeps for Gaussian ones, and untransformed by the objective.

    A value with its gradient at 8 designs takes a quarter of the CPU time of BoTorch's (n = 10 to 500, ``python -m
    benchmarks.asks``). There is a gradient in the designs, not in hyperparameters.

    Args:
        model: A fitted model.
        X_baseline: ``r x d`` designs to improve on.
        options: Other arguments of ``qLogNoisyExpectedImprovement``.
    """

    def __init__(self, model: Any, X_baseline: Tensor, **options: Any) -> None:
        plain = all(options.get(name) is None for name in ("objective", "constraints", "posterior_transform"))
        self.scale: OutcomeScale = getattr(model, "outcome_scale", IDENTITY) if plain else IDENTITY
        if not self.scale.is_identity:
            options["objective"] = GenericMCObjective(partial(_outcome, self.scale))
            model = LatentModel(model)
        super().__init__(model, X_baseline, **options)

    def _init_baseline(self, *args: Any, **options: Any) -> None:
        super()._init_baseline(*args, **options)
        with torch.no_grad():
            self.joint_samples = joint_samples(self)

    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """Values ``b`` at designs ``b x q x d``."""
        if self.joint_samples is not None and not self.joint_samples.current:
            with torch.no_grad():
                self.joint_samples = joint_samples(self)
        if self.joint_samples is None or X.shape[-2] != 1 or self.X_pending is not None:  # not incremental
            several: Tensor = super().forward(X)
            return several
        f = self.scale.untransform(self.joint_samples(X.flatten(0, -2)))
        # The fat tail does not underflow, so the mean needs no `logmeanexp`.
        value: Tensor = fatplus(f - self.joint_samples.best, tau=self.tau_relu).mean(-1).log()
        return value.reshape(X.shape[:-2])


def contenders(models: Sequence[Any], X: Tensor) -> Tensor:
    """Those of the designs ``n x d`` that may be among the best in a sample of the objectives.

    Of the others one is sure to be better in all, by :data:`SURE`. BoTorch looks for them among all designs, by joint
    samples. Among these alone that takes a fifth of the time at n = 100 and 500, the moments included.
    """
    better = torch.ones(len(X), len(X), dtype=torch.bool, device=X.device)
    for model in models:
        scale: OutcomeScale = getattr(model, "outcome_scale", IDENTITY)
        with torch.no_grad():
            mean, variance = marginal_moments(model if scale.is_identity else LatentModel(model), X)
        reach = SURE * variance.sqrt()
        better &= (mean + reach).unsqueeze(-1) < mean - reach
    return X[~better.any(-1)]


class JointSamples(torch.nn.Module):
    """Samples of unit f + shift at a design, for an exact GP f, beside those at the baseline B.

    Args:
        gp: The model.
        shape: The shape of its kernel.
        strategy: Its prediction strategy.
        B: ``r x d`` designs, as the kernel sees them.
        affine: Unit and shift.
        beside: How BoTorch samples beside those at B.
    """

    radial: Callable[[Tensor], Tensor]
    center: Tensor
    lengthscale: Tensor
    places: Tensor  # of T and B
    products: Tensor  # from k([T; B], x) / k(x, x) to w(x) and mu(x)
    prior: Tensor  # k(x, x)
    unit: Tensor
    shift: Tensor
    best: Tensor
    eps: Tensor
    eps_design: Tensor

    def __init__(self, gp: Any, shape: Shape, strategy: Any, B: Tensor, affine: Affine, beside: Beside) -> None:
        super().__init__()
        self.gp, self.radial, self.strategy = gp, shape.radial.of, strategy
        (T,), (unit, shift), size = gp.train_inputs, affine, affine[0].abs()
        center, n, r = T.mean(0), len(T), len(B)
        places = (torch.cat([T, B]) - center) / shape.lengthscale
        alpha, inverse = solved(strategy)
        last = torch.linalg.solve_triangular(beside.root, size * torch.eye(r).to(B), upper=False)
        cross = shape.outputscale * self.radial(squared_distances(places[n:], places[:n])) @ inverse.mT
        over_T = torch.cat([inverse.mT, -inverse.mT @ (last @ cross).mT, unit.sign() * alpha.unsqueeze(-1)], -1)
        over_B = torch.cat([B.new_zeros(r, n), last.mT, B.new_zeros(r, 1)], -1)
        scaled = size * shape.outputscale
        buffers = {"center": center, "lengthscale": shape.lengthscale, "places": places, "unit": unit, "shift": shift}
        buffers |= {"products": scaled * torch.cat([over_T, over_B]), "prior": size * scaled, "best": beside.best}
        buffers |= {"eps": beside.eps[:, :-1].mT.contiguous(), "eps_design": beside.eps[:, -1]}
        for name, value in buffers.items():
            self.register_buffer(name, value.detach(), persistent=False)

    @property
    def current(self) -> bool:
        """Whether data and hyperparameters of the model are those that these samples were made of."""
        return not self.gp.training and prediction_strategy(self.gp) is self.strategy

    def forward(self, X: Tensor) -> Tensor:
        """Samples ``N x S`` at designs ``N x d``, one by one."""
        x = self.gp.transform_inputs(X)
        k = self.radial(squared_distances((x - self.center) / self.lengthscale, self.places))
        w, mean = (k @ self.products).split([len(self.places), 1], -1)
        mean = mean + self.unit * self.gp.mean_module(x).unsqueeze(-1) + self.shift
        variance = self.prior - w.square().sum(-1, keepdim=True)
        # BoTorch adds to a variance that rounding made negative.
        more = (variance + cholesky_jitter.value(X.dtype)).clamp_min(TINY)
        deviation = variance.where(variance > 0.0, more).sqrt()
        return mean + w[:, -len(self.eps) :] @ self.eps + deviation * self.eps_design


def joint_samples(acqf: qLogNoisyExpectedImprovement) -> JointSamples | None:
    """The samples of noisy improvement at one design; None where they are not those of one exact GP as it is."""
    if not isinstance(acqf.model, LatentModel) and type(acqf.objective) is not IdentityMCObjective:
        return None
    X = acqf.X_baseline
    exact = exact_gp(acqf.model, X, acqf.posterior_transform) if acqf.X_pending is None and X.ndim == 2 else None
    beside = None if exact is None else sampling_beside_baseline(acqf)
    return None if exact is None or beside is None else JointSamples(*exact, beside)


def exact_gp(model: Any, X: Tensor, transform: Any = None) -> tuple[Any, Shape, Any, Tensor, Affine] | None:
    """The first arguments of :class:`JointSamples` at designs ``r x d``; None where the model is another one."""
    gp = model.latent_of if isinstance(model, LatentModel) else model
    exact = exact_strategy(gp, X)
    if exact is None:
        return None
    shape, affine = shape_of(gp.covar_module), _affine(gp, transform)
    return None if shape is None or affine is None else (gp, shape, *exact, affine)


def _affine(gp: Any, transform: Any) -> Affine | None:
    """Unit and shift of what is sampled, for f in the units of the model's targets; None if it is another function."""
    unit, shift = gp.train_targets.new_tensor([1.0, 0.0])
    if hasattr(gp, "outcome_transform"):
        standardize: Any = standardize_of(gp.outcome_transform)[1]
        if standardize is None:
            return None
        unit, shift = standardize.stdvs.squeeze(), standardize.means.squeeze()
    if transform is None:
        return unit, shift
    kind = type(transform)
    if kind is not ScalarizedPosteriorTransform or transform.weights.numel() != 1:
        return None
    weight = transform.weights.squeeze()
    if float(weight) == 0.0:
        return None
    return weight * unit, weight * shift + transform.offset


def _outcome(scale: OutcomeScale, W: Tensor, X: Tensor | None = None) -> Tensor:
    return scale.untransform(W)[..., 0]
