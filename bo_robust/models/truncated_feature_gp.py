"""ATA-GP-UCB's model: feature regression on rewards truncated anew in every direction of feature space.

Ray Chowdhury & Gopalan 2019, Algorithm 2. With features Phi (``n x p``), V = Phi^T Phi + lambda I, a root R of V^-1
(R^T R = V^-1) and U = R Phi^T,

    r_i = sum_tau u_{i tau} y_tau 1{|u_{i tau} y_tau| <= b_t},    mean(x) = phi(x)^T R^T r,

where t is the number of rewards so far: all of them are truncated with the level of today, separately in each
direction i. The variance is that of :class:`~bo_robust.models.FeatureGP`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, Literal, cast

import torch
from botorch.exceptions.warnings import InputDataWarning
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils.assorted import fantasize
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from bo_robust.models.feature_gp import FeatureGP
from bo_robust.models.feature_maps import Dictionary, FourierMap, NystromMap
from bo_robust.models.feature_regression import WeightPosterior, precision_matrix
from bo_robust.models.inputs import truncation_by_name
from bo_robust.ops.truncated_sum import truncated_count, truncated_sum
from bo_robust.schedules import Truncation

__all__ = ["TruncatedFeatureGP"]

CHUNK = 512  # rewards at a time
WARN_LOST = 0.95  # of the squared weights u^2 of the rewards: beyond this the mean is that of the truncation


class TruncatedFeatureGP(FeatureGP):
    """Feature regression with ATA truncation of heavy-tailed rewards; :class:`FeatureGP` in everything else.

    With an infinite level this is ``FeatureGP`` with the same kernel. The features are the paper's, since truncation
    depends on their axes: the full Fourier grid, with the origin at the lower corner of the box, and for
    ``root="symmetric"`` the symmetric root (K_D^(1/2))^+ of Nyström features.

    Truncation pulls the mean to zero: centre the rewards and let the moment bound v cover f too. Outcome transforms
    are refused: levels, B, v and the noise variance are in the units of the rewards, which ``Standardize`` would
    rescale by a heavy-tailed standard deviation.

    ``fit_gpytorch_mll`` maximises the Gaussian evidence of the rewards winsorised at their median plus or minus 3
    robust standard deviations (1.4826 MAD): the evidence of the raw rewards would follow the outliers, and one of
    rewards truncated at b_t does not exist, as they are truncated along directions that depend on the
    hyperparameters. A learned noise variance is hence that of the winsorised rewards. The fit does not depend on the
    level, and outside of it the rewards are never winsorised.

    Observations added by :meth:`condition_on_observations` are rewards: the level of the new t applies to all, old
    and new, O(n p^2). Fantasies are draws of the model and never truncated: they are Gaussian observations of the
    current estimate, information V mean + Phi'^T y'.

    Args:
        train_X: ``n x d`` points, n >= 1.
        train_Y: ``n x 1`` rewards, finite, not truncated.
        features: :class:`~bo_robust.models.FourierMap` or :class:`~bo_robust.models.NystromMap`.
        truncation: The level b_t: a schedule called with t = n, or one number > 0 for every t.
        noise_var: As in :class:`FeatureGP`.
        likelihood: As in :class:`FeatureGP`.
        covar_module: As in :class:`FeatureGP`.
        outcome_transform: Must be None; an argument because Ax passes it.
        input_transform: As in :class:`FeatureGP`.
        root: "symmetric", the paper's V^(-1/2), or "cholesky", L^-1 with L L^T = V (and likewise for K_D), which is
            cheaper and satisfies the same proof but truncates along other directions.
        rule: "zero" sets products beyond the level to zero, the paper's rule; "clip" moves them to the level, outside
            the proof.

    Raises:
        ValueError: as :class:`FeatureGP`, or if the truncation is neither a schedule nor > 0, ``root`` or ``rule``
            is another word, or an outcome transform is given.
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
        if outcome_transform is not None:
            raise ValueError(
                f"TruncatedFeatureGP takes no outcome_transform (got {type(outcome_transform).__name__}): levels "
                "and widths are in the units of train_Y. Rescale train_Y and the moment bound instead."
            )
        if isinstance(truncation, str) or not (callable(truncation) or isinstance(truncation, float | int)):
            raise ValueError(f"truncation must be a schedule or a number > 0, got {truncation!r}.")
        for name, value, known in (("root", root, ("symmetric", "cholesky")), ("rule", rule, ("zero", "clip"))):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}.")
        with warnings.catch_warnings():  # not to be standardised: see the docstring
            warnings.filterwarnings("ignore", r"Data \(outcome observations\) is not standardized", InputDataWarning)
            super().__init__(
                train_X,
                train_Y,
                features,
                noise_var=noise_var,
                likelihood=likelihood,
                covar_module=covar_module,
                input_transform=input_transform,
            )
        self.truncation, self.root, self.rule = truncation, root, rule
        self._symmetric = root == "symmetric"
        self.register_buffer("drawn", torch.zeros_like(self.train_targets, dtype=torch.bool), persistent=False)
        _ = self.truncation_level  # raises

    @classmethod
    def construct_inputs(  # type: ignore[override]
        cls,
        training_data: SupervisedDataset,
        features: FourierMap | NystromMap | str,
        truncation: Truncation | float | str,
        truncation_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Keyword arguments of the constructor from a data set with one row per round.

        Args:
            training_data: As in :class:`FeatureGP`.
            features: As in :class:`FeatureGP`.
            truncation: As in the constructor, or the name of a schedule in ``TRUNCATIONS``. Ax can store only a
                name (or a number) in JSON.
            truncation_options: Arguments of the named schedule.
            options: ``root`` and ``rule``, and the others of :class:`FeatureGP`.

        Returns:
            The keyword arguments.

        Raises:
            ValueError: as in :class:`FeatureGP`, or for an unknown name of a truncation.
        """
        chosen = {name: options.pop(name) for name in ("root", "rule") if name in options}
        inputs = super().construct_inputs(training_data, features, **options)
        named = truncation_by_name(cast(Any, truncation), truncation_options)
        return inputs | chosen | {"truncation": named}

    @property
    def truncation_level(self) -> float:
        """b_t at t, the number of rewards so far, fantasies not counted."""
        t = int((~self.drawn).sum())
        level = float(self.truncation(t) if callable(self.truncation) else self.truncation)
        if not level > 0:
            raise ValueError(f"truncation must be a schedule of levels > 0 or a number > 0, got b_{t} = {level!r}.")
        return level

    @property
    def truncated_share(self) -> float:
        """Share of the (direction, reward) pairs beyond the level, fantasies not counted."""
        with torch.no_grad():
            dictionary, weights = self._posterior_weights()
            kept = ~self.drawn
            Phi = self.features(self.train_inputs[0][..., kept, :], self.covar_module, dictionary)
            y = self.train_targets[..., kept]
            root = self._inverse_root(precision_matrix(Phi, weights.noise_var), weights.noise_var)
            count = int(truncated_count(root, Phi.double(), y.double(), self.truncation_level).sum())
            return count / (y.numel() * root.shape[-1])

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> TruncatedFeatureGP:
        """:meth:`condition_on_observations` without transforms and output dimension; ``ModelListGP`` uses it.

        Args:
            inputs: ``batch_shape x n' x d`` transformed points.
            targets: ``batch_shape' x n'`` rewards, not truncated; inside :meth:`fantasize` they stay so.
            kwargs: None known.
        """
        model = cast(TruncatedFeatureGP, super().get_fantasy_model(inputs, targets, **kwargs))
        new = self.drawn.new_full(targets.shape[-1:], bool(fantasize.on()))
        model.drawn = torch.cat([self.drawn, new])
        return model

    def set_train_data(
        self,
        inputs: Tensor | Iterable[Tensor] | None = None,
        targets: Tensor | None = None,
        strict: bool = True,
    ) -> None:
        """Replace the data, hyperparameters unchanged; given targets are the rewards of rounds 1 .. n."""
        super().set_train_data(inputs, targets, strict)
        if targets is not None:
            self.drawn = torch.zeros_like(targets, dtype=torch.bool)

    def _inverse_root(self, V: Tensor, noise_var: Tensor) -> Tensor:
        """R with R^T R = V^-1, float64 like V; no eigenvalue of V is below noise_var but by rounding."""
        if self.root == "symmetric":
            values, vectors = torch.linalg.eigh(V)
            values = values.clamp_min(noise_var.double())
            return (vectors * values.rsqrt().unsqueeze(-2)) @ vectors.mT
        L = psd_safe_cholesky(V)
        return torch.linalg.solve_triangular(L, torch.eye(V.shape[-1], dtype=V.dtype, device=V.device), upper=False)

    def _regress(self, Phi: Tensor, y: Tensor, noise_var: Tensor) -> WeightPosterior:
        drawn, level = self.drawn, self.truncation_level
        rewards, Phi_rewards = y[..., ~drawn].double(), Phi[..., ~drawn, :].double()
        V = precision_matrix(Phi_rewards, noise_var)
        root = self._inverse_root(V, noise_var)
        if self.rule == "clip":
            r = _clipped_sum(root, Phi_rewards, rewards, level)
        else:
            r = truncated_sum(root, Phi_rewards, rewards, level)
            lost = _lost_weight(root, Phi_rewards, rewards, level)
            if lost > WARN_LOST:
                warnings.warn(
                    f"{lost:.1%} of the weight of the {rewards.shape[-1]} rewards is truncated, which pulls the "
                    f"posterior mean to zero: the level b_t is {level:.3g}, the median |reward| "
                    f"{float(rewards.abs().median()):.3g}. Raise `truncation` (its moment_bound or scale), or rescale "
                    "the rewards and the moment bound.",
                    UserWarning,
                    stacklevel=2,
                )
        mean = torch.einsum("...rp,...r->...p", root, r)
        information = torch.einsum("...pk,...k->...p", V, mean)
        weights = WeightPosterior(noise_var, V, information, root.to(noise_var), mean.to(noise_var))
        return weights.observe(Phi[..., drawn, :], y[..., drawn]) if bool(drawn.any()) else weights

    def _updated_cache(self, inputs: Tensor, targets: Tensor) -> tuple[Dictionary | None, WeightPosterior] | None:
        return super()._updated_cache(inputs, targets) if fantasize.on() else None

    def _fit_targets(self) -> Tensor:
        """The rewards, winsorised (those equal to the median in more than half of all cases are left alone)."""
        y = self.train_targets
        centre = y.median(-1, keepdim=True).values
        spread = 3.0 * 1.4826 * (y - centre).abs().median(-1, keepdim=True).values
        return torch.where(spread > 0, y.clamp(centre - spread, centre + spread), y)


def _lost_weight(root: Tensor, Phi: Tensor, y: Tensor, level: float) -> float:
    """Share of sum u_{i tau}^2 that is truncated, over at most ``CHUNK`` evenly spaced rewards.

    Not the share of pairs: directions that the data hardly inform have products too small for any level.
    """
    rows = slice(None, None, -(-y.shape[-1] // CHUNK))
    u = root @ Phi[..., rows, :].mT
    lost = (u * y[..., None, rows]).abs() > level
    return float((u.square() * lost).sum() / u.square().sum())


def _clipped_sum(root: Tensor, Phi: Tensor, y: Tensor, level: float) -> Tensor:
    """sum_tau of u_{i tau} y_tau moved into [-level, level], ``... x p``."""
    out = torch.zeros_like(root[..., 0])
    for start in range(0, y.shape[-1], CHUNK):
        rows = slice(start, start + CHUNK)
        out = out + (root @ Phi[..., rows, :].mT * y[..., None, rows]).clamp(-level, level).sum(-1)
    return out
