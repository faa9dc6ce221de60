"""ATA-GP-UCB's model: feature regression on rewards truncated anew in every direction of feature space.

Ray Chowdhury & Gopalan 2019, Algorithm 2. With features Phi (``n x p``), V = Phi^T Phi + lambda I, a root R of V^-1
(R^T R = V^-1) and U = R Phi^T,

    r_i = sum_tau u_{i tau} y_tau 1{|u_{i tau} y_tau| <= b_t},    mean(x) = phi(x)^T R^T r,

where t is the number of rewards so far. All rewards are truncated with the level of today, separately in each direction
i. The variance is that of :class:`~bo_robust.models.FeatureGP`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

import torch
from botorch.exceptions import UnsupportedError
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils.assorted import fantasize
from botorch.utils.datasets import SupervisedDataset
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from torch import Tensor

from bo_robust.confidence.truncation import TRUNCATIONS, Truncation, check_rule, mostly_beyond, truncate
from bo_robust.features.maps import FourierMap, NystromMap
from bo_robust.features.nystrom import NystromWeights
from bo_robust.models.feature_gp import FeatureGP
from bo_robust.models.linear_regression import WeightPosterior, cholesky_root, precision_matrix
from bo_robust.models.reward_units import NORMAL
from bo_robust.models.training_data import check_no_outcome_transform, from_spec, rewards_as_they_are, warn_of_truncated
from bo_robust.utils.input_checks import is_number, quoted
from bo_robust.utils.linalg import median_and_mad

# Share of the rewards with more than half of their weight truncated beyond which the model warns, as a run does. More
# than for TruncatedGP: a truncated reward may come back as data inform its directions.
NOTABLE = 0.5
MOSTLY = 0.1  # a reward counts as flagged if a larger share of its weight is beyond the level
CHUNK = 512  # rewards at a time: a chunk of the products u y stays in the cache


@torch.no_grad()
def truncated_sum(root: Tensor, Phi: Tensor, y: Tensor, level: float, rule: str = "zero") -> Tensor:
    """r_i = sum_tau of u_{i tau} y_tau truncated at the level, ``... x p``, from R ``... x p x p``.

    Features are ``... x t x p`` and rewards ``... x t``. A product that overflows is truncated at every finite level.
    NaN rewards give NaN sums. ``rule`` is one of :func:`bo_robust.confidence.truncation.truncate`.
    """
    total = torch.zeros_like(root[..., 0])
    for start in range(0, y.shape[-1], CHUNK):
        rows = slice(start, start + CHUNK)
        products = root @ Phi[..., rows, :].mT
        products *= y[..., None, rows]
        total += truncate(products, level, rule).sum(-1)
    return total


class TruncatedFeatureGP(FeatureGP):
    """Feature regression with ATA truncation of rewards, which are not standardized: b_t is in their units.

    All else is as in :class:`FeatureGP`. With an infinite level this is ``FeatureGP`` with the same kernel and a zero
    prior mean. Truncation depends on the axes of the features, so they are the paper's: the full Fourier grid, with the
    origin at the lower corner of the box, and for ``root="symmetric"`` the symmetric root (K_D^(1/2))^+ of Nyström
    features.

    The prior mean is zero, and truncation pulls the mean to zero too: center the rewards and let the moment bound v
    cover f. A warning (``TruncationWarning``) says when more than half of the rewards lost more than half of their
    weight. Outcome transforms are refused, as by :class:`TruncatedGP`.

    ``fit_gpytorch_mll`` maximizes the Gaussian evidence of the rewards winsorized at their median plus or minus 3
    robust standard deviations (1.4826 MAD), whatever the level. The evidence of the raw rewards would follow the
    outliers, and one of the rewards truncated at b_t does not exist: they are truncated along directions that depend on
    the hyperparameters. A learned noise variance is that of the winsorized rewards.

    Observations added by :meth:`condition_on_observations` are rewards: the level of the new t applies to all, old and
    new, at O(n p^2). Fantasies are posterior samples and never truncated. They are Gaussian observations of the
    current estimate, with information V mean + Phi'^T y'. BoTorch's ``loo_cv`` is refused where a product is truncated.

    Arguments not listed are those of :class:`FeatureGP`.

    Args:
        truncation: The level b_t: a schedule called with t = n, or one number > 0 for every t.
        outcome_transform: Must be None; an argument because Ax passes it.
        root: "symmetric", the paper's V^(-1/2), or "cholesky", L^-1 with L L^T = V (and likewise for K_D). The latter
            is cheaper and satisfies the same proof, but truncates along other directions.
        rule: "zero" sets products beyond the level to zero, the paper's rule; "clip" moves them to the level, outside
            the proof.

    Raises:
        ValueError: as :class:`FeatureGP`, or if the truncation is neither a schedule nor > 0, ``root`` or ``rule`` is
            another word, or there is an outcome transform.
    """

    drawn: Tensor  # which observations are fantasies, n bool
    _half_grid = False  # halving would turn the directions

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        features: FourierMap | NystromMap,
        truncation: Truncation | float,
        noise_var: float | None = None,
        likelihood: GaussianLikelihood | None = None,
        covar_module: Kernel | None = None,
        outcome_transform: OutcomeTransform | None = None,
        input_transform: InputTransform | None = None,
        root: Literal["symmetric", "cholesky"] = "symmetric",
        rule: Literal["zero", "clip"] = "zero",
    ) -> None:
        check_no_outcome_transform("TruncatedFeatureGP", outcome_transform)
        infinite = isinstance(truncation, float) and truncation == math.inf
        if isinstance(truncation, type) or not (callable(truncation) or is_number(truncation) or infinite):
            raise ValueError(f"truncation must be a schedule or a number > 0, got {quoted(truncation)}.")
        check_rule(rule)
        if root not in ("symmetric", "cholesky"):
            raise ValueError(f"root must be one of symmetric, cholesky, got {quoted(root)}.")
        with rewards_as_they_are():
            super().__init__(
                train_X, train_Y, features, noise_var, likelihood, covar_module, ZeroMean(), None, input_transform
            )
        self.truncation, self.root, self.rule = truncation, root, rule
        self._symmetric = root == "symmetric"
        self.register_buffer("drawn", torch.zeros_like(self.train_targets, dtype=torch.bool), persistent=False)
        _ = self.truncation_level  # raises for a level that is not > 0

    @classmethod
    def construct_inputs(  # type: ignore[override]
        cls,
        training_data: SupervisedDataset,
        features: FourierMap | NystromMap | Mapping[str, Any],
        truncation: Truncation | float | Mapping[str, Any],
        **options: Any,
    ) -> dict[str, Any]:
        """As in :class:`FeatureGP`; ``options`` may also hold ``root`` and ``rule``. One row of the data is one round.

        ``truncation`` may also be ``{"kind": name in TRUNCATIONS, ...}``, which Ax can store; its ``num_features`` are
        counted where they are left out. A wrong one raises ``ValueError``.
        """
        inputs = super().construct_inputs(training_data, features, **options)
        count = {"num_features": inputs["features"].count(inputs["train_X"])}
        inputs["truncation"] = from_spec(truncation, TRUNCATIONS, count, "truncation")
        return inputs | {name: options[name] for name in ("root", "rule") if name in options}

    @property
    def truncation_level(self) -> float:
        """b_t at the number t of rewards so far, fantasies not counted."""
        t = int((~self.drawn).sum())
        level = float(self.truncation(t) if callable(self.truncation) else self.truncation)
        if not level > 0:
            raise ValueError(f"truncation must be a schedule of levels > 0 or a number > 0, got b_{t} = {level!r}.")
        return level

    @property
    def truncated_share(self) -> float:
        """Share of the pairs (direction, reward) beyond the level, fantasies not counted."""
        U, y = self._directions()
        return float(((U * y.unsqueeze(-2)).abs() > self.truncation_level)[..., ~self.drawn].double().mean())

    def mostly_truncated(self, share: float) -> Tensor:
        """Whether each reward has more than this share of its weight u^2 beyond the level, ``n`` bool."""
        return mostly_beyond(*self._directions(), self.truncation_level, share)

    @property
    def flagged(self) -> Tensor:
        """Which rewards have more than a tenth of their weight u^2 beyond the level, ``n`` bool."""
        return self.mostly_truncated(MOSTLY)

    def forward(self, X: Tensor) -> MultivariateNormal:
        """The prior; :class:`UnsupportedError` in evaluation mode where no conjugate posterior belongs to it."""
        if not self.training and self.truncated_share > 0.0:
            raise UnsupportedError("a TruncatedFeatureGP that truncates has no leave-one-out in closed form.")
        return super().forward(X)

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> TruncatedFeatureGP:
        """As in :class:`FeatureGP`; rewards are not truncated, and inside :meth:`fantasize` they stay so."""
        model = cast(TruncatedFeatureGP, super().get_fantasy_model(inputs, targets, **kwargs))
        new = self.drawn.new_full(targets.shape[-1:], bool(fantasize.on()))
        model.drawn = torch.cat([self.drawn, new])
        return model

    def set_train_data(
        self, inputs: Tensor | Iterable[Tensor] | None = None, targets: Tensor | None = None, strict: bool = True
    ) -> None:
        """As in :class:`FeatureGP`; given targets are the rewards of rounds 1 .. n."""
        super().set_train_data(inputs, targets, strict)
        if targets is not None:
            self.drawn = torch.zeros_like(targets, dtype=torch.bool)

    @torch.no_grad()
    def _directions(self) -> tuple[Tensor, Tensor]:
        """U = R Phi^T of all observations, ``p x n``, and their rewards ``n``, in float64. Fantasies do not enter R."""
        noise_var, Phi = self._posterior_weights()[1].noise_var, self._features(self.train_inputs[0]).double()
        root = self._inverse_root(precision_matrix(Phi[..., ~self.drawn, :], noise_var), noise_var)
        return root @ Phi.mT, self.train_targets.double()

    def _inverse_root(self, V: Tensor, noise_var: Tensor) -> Tensor:
        """R with R^T R = V^-1, float64 like V."""
        if self.root == "cholesky":
            return cholesky_root(V)
        values, vectors = torch.linalg.eigh(V)
        values = values.clamp_min(noise_var.double())  # smaller by rounding only
        return (vectors * values.rsqrt().unsqueeze(-2)) @ vectors.mT

    def _regress(self, Phi: Tensor, y: Tensor, noise_var: Tensor) -> WeightPosterior:
        drawn, level = self.drawn, self.truncation_level
        rewards, Phi_rewards = y[..., ~drawn].double(), Phi[..., ~drawn, :].double()
        V = precision_matrix(Phi_rewards, noise_var)
        root = self._inverse_root(V, noise_var)
        r = truncated_sum(root, Phi_rewards, rewards, level, self.rule)
        rows = slice(None, None, -(-rewards.shape[-1] // CHUNK))  # some are enough to tell
        beyond = mostly_beyond(root @ Phi_rewards[..., rows, :].mT, rewards[..., rows], level, 0.5)
        warn_of_truncated(rewards[..., rows], beyond, NOTABLE, level)
        mean = torch.einsum("...rp,...r->...p", root, r)
        information = torch.einsum("...pk,...k->...p", V, mean)
        weights = WeightPosterior(noise_var, V, information, root.to(noise_var), mean.to(noise_var))
        return weights.observe(Phi[..., drawn, :], y[..., drawn]) if bool(drawn.any()) else weights

    def _updated_cache(self, inputs: Tensor, targets: Tensor) -> tuple[NystromWeights | None, WeightPosterior] | None:
        return super()._updated_cache(inputs, targets) if fantasize.on() else None

    def _fit_targets(self) -> Tensor:
        """The rewards, winsorized."""
        y = self.train_targets
        center, deviation = median_and_mad(y)
        spread = 3.0 * NORMAL * deviation
        # The spread is zero where more than half of the rewards equal the median: these are left alone.
        return torch.where(spread > 0, y.clamp(center - spread, center + spread), y)
