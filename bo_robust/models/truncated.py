"""TGP-UCB's model: an exact GP on rewards truncated once each, with their own level b_t.

Ray Chowdhury & Gopalan 2019, Algorithm 1: y_t becomes y_t 1{|y_t| <= b_t} (zero, not clipped) and enters an ordinary GP
posterior with noise variance lambda. No ``OutcomeTransform`` can do this: it never learns the round t of an
observation, and would truncate fantasies too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, cast

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils.assorted import fantasize
from botorch.utils.datasets import SupervisedDataset
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from gpytorch.means import Mean, ZeroMean
from gpytorch.module import Module
from torch import Tensor

from bo_robust.confidence.truncation import TRUNCATIONS, Truncation, check_rule, truncate
from bo_robust.models.moments import exact_information_gain
from bo_robust.models.training_data import (
    MovableGP,
    check_added,
    check_data,
    check_learnt,
    check_no_outcome_transform,
    check_noise_var,
    from_spec,
    rewards_as_they_are,
    warn_of_truncated,
)
from bo_robust.utils.input_checks import check_finite, check_like, check_schedule, check_tensor
from bo_robust.utils.upstream import prediction_strategy

NOTABLE = 0.1  # share of truncated rewards beyond which the model warns


class TruncatedGP(MovableGP):
    """Exact GP on rewards truncated at b_t (TGP-UCB), which are not standardized: b_t is in their units.

    All else is as in ``SingleTaskGP``. Row i (from 0) of the data is round t = i + 1, with level b_{i+1}. Observations
    added by :meth:`condition_on_observations` continue with t = n + 1. Fantasies are posterior samples, not rewards,
    and are never truncated. With an infinite level this is ``SingleTaskGP`` with the same modules.

    Two defaults differ from ``SingleTaskGP``. The prior mean is zero, as the guarantee assumes and because a truncated
    reward is zero. Outcome transforms are refused: levels, B, v and the noise variance are in units of the rewards,
    which ``Standardize`` would rescale by a heavy-tailed standard deviation. Rescale the rewards yourself (by a robust
    center and spread of a first sample), and v with them. The default kernel has k(x, x) = 1, as the widths assume.

    Truncation pulls the mean to zero: where most rewards are truncated (:attr:`truncated`) it is about zero. So center
    the rewards and let v bound their raw moment, f included. A ``TruncationWarning`` says when more than a tenth of the
    rewards are truncated, and whether the largest are among them.

    The buffers ``rewards`` and ``levels`` (``batch_shape x n x 1``) keep the observed rewards and their levels. They,
    the data, the schedule and fixed noise variances are not part of ``state_dict``, so hyperparameters load into a
    model of other data. ``pickle`` keeps everything. Folds of a cross-validation are data sets of their own; to keep
    the original rounds, fold the levels like the rewards and pass them as a tensor.

    Arguments not listed are those of ``SingleTaskGP``.

    Args:
        train_X: ``batch_shape x n x d`` points, n >= 1, in the order they were observed.
        train_Y: ``batch_shape x n x 1`` rewards, finite, not truncated.
        truncation: The level b_t. Either a schedule, called with a tensor of rounds t >= 1 (it may return one number
            for all), or the levels > 0 themselves, ``n x 1`` or ``batch_shape x n x 1``. With given levels no
            observation can be added.
        outcome_transform: Must be None; an argument because Ax passes it.
        noise_var: lambda, one fixed noise variance for all observations, at least 1e-6 in float64 and 1e-4 in float32
            (``gpytorch.settings.min_fixed_noise``). With neither this nor ``train_Yvar`` it is learned, from the
            truncated rewards.
        rule: What becomes of a reward beyond its level: "zero" (the paper's) or "clip" (the level with the reward's
            sign).

    Raises:
        ValueError: if data are not finite or have more than one output, levels do not fit or are not > 0, the noise is
            given twice or ``noise_var`` is too small, there is an outcome transform, or the rule is another.
    """

    rewards: Tensor
    levels: Tensor
    rule: str
    truncation: Truncation | None

    has_exact_moments: ClassVar[bool] = True  # (:mod:`bo_robust.models.exact_moments`)

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        truncation: Truncation | Tensor,
        train_Yvar: Tensor | None = None,
        likelihood: Likelihood | None = None,
        covar_module: Module | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | None = None,
        input_transform: InputTransform | None = None,
        noise_var: float | None = None,
        rule: str = "zero",
    ) -> None:
        check_data("TruncatedGP", train_X, train_Y, batched=True, Yvar=train_Yvar)
        check_rule(rule)
        check_no_outcome_transform("TruncatedGP", outcome_transform)
        if noise_var is not None:
            if train_Yvar is not None or likelihood is not None:
                raise ValueError("give one of noise_var (one for all), train_Yvar (one by one), likelihood.")
            check_noise_var(noise_var, train_Y.dtype)
            train_Yvar = torch.full_like(train_Y, noise_var)
        levels = levels_of_rounds(truncation, train_Y, first_round=1)
        with rewards_as_they_are():
            kept, mean = truncate(train_Y, levels, rule), mean_module or ZeroMean(batch_shape=train_X.shape[:-2])
            super().__init__(train_X, kept, train_Yvar, likelihood, covar_module, mean, None, input_transform)
        self.truncation, self.rule = None if isinstance(truncation, Tensor) else truncation, rule
        self._set_rewards(train_Y, levels)

    @classmethod
    def construct_inputs(  # type: ignore[override]
        cls,
        training_data: SupervisedDataset,
        truncation: Truncation | Tensor | Mapping[str, Any],
        noise_var: float | None = None,
        rule: str = "zero",
        **search_space_options: Any,
    ) -> dict[str, Any]:
        """Keyword arguments of the constructor from a data set whose rows are in the order of the rounds.

        ``truncation`` may also be ``{"kind": name in TRUNCATIONS, ...}``, the only form that Ax can store in JSON, and
        raises ``ValueError`` if it is wrong. ``noise_var`` wins over the noise variances of the data. What Ax adds for
        categorical, fidelity or task features is ignored.
        """
        inputs: dict[str, Any] = super().construct_inputs(training_data=training_data)
        if noise_var is not None:
            inputs.pop("train_Yvar", None)
        level = from_spec(truncation, TRUNCATIONS, {}, "truncation")
        return inputs | {"truncation": level, "rule": rule, "noise_var": noise_var}

    @property
    def truncated(self) -> Tensor:
        """Whether each reward was beyond its level, ``batch_shape x n x 1``, bool."""
        return self.rewards.abs() > self.levels

    @property
    def flagged(self) -> Tensor:
        """:attr:`truncated`, ``batch_shape x n``."""
        return self.truncated.squeeze(-1)

    @property
    def information_gain(self) -> Tensor:
        """Realized 1/2 logdet(I + K / noise_var) of the observed points, in nats, ``batch_shape``."""
        return exact_information_gain(self)

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> TruncatedGP:
        """A new model with the observations of rounds n + 1, n + 2, ... added.

        Points are ``batch_shape x n' x d`` and rewards ``batch_shape' x n' x 1``, not truncated; inside
        :meth:`fantasize` they stay so. Noise variances ``batch_shape x n' x 1`` are needed only where those of the
        model are fixed and differ. ``ValueError`` if data are not finite, have not the model's dtype and device, or
        have more than one output, the levels were given as a tensor, or ``noise`` is needed.
        """
        check_added(X, Y)
        if prediction_strategy(self) is None:  # the update needs the caches that a prediction at any point makes
            self.posterior(X.reshape(-1, X.shape[-1])[:1])
        if noise is not None:
            kwargs["noise"] = noise
        return cast(TruncatedGP, super().condition_on_observations(X, Y, **kwargs))

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> TruncatedGP:
        """As :meth:`condition_on_observations`, on transformed data, rewards ``... x n'``; ``ModelListGP`` calls it."""
        rewards = targets.unsqueeze(-1)
        if fantasize.on():
            levels = torch.full_like(rewards, torch.inf)  # never truncated
        else:
            check_learnt(inputs, rewards, self.rewards)
            levels = levels_of_rounds(self.truncation, rewards, first_round=self.rewards.shape[-2] + 1)
        if "noise" not in kwargs and isinstance(self.likelihood, FixedNoiseGaussianLikelihood):
            noise = self._common_noise_var()  # in the batch shape of the points, which outcomes may exceed
            shape = torch.broadcast_shapes(noise.shape[:-1], inputs.shape[:-2])
            kwargs["noise"] = noise.expand(*shape, targets.shape[-1])
        kept = truncate(rewards, levels, self.rule).squeeze(-1)
        model = cast(TruncatedGP, super().get_fantasy_model(inputs, kept, **kwargs))
        batch_shape = model.train_targets.shape[:-1]
        both = (self.rewards, rewards), (self.levels, levels)
        model._set_rewards(*(torch.cat([x.expand(*batch_shape, *x.shape[-2:]) for x in parts], -2) for parts in both))
        return model

    def set_train_data(
        self, inputs: Tensor | Iterable[Tensor] | None = None, targets: Tensor | None = None, strict: bool = True
    ) -> None:
        """Replace the data and keep the hyperparameters, a noise variance shared by all observations included.

        Targets are the ``batch_shape x n`` rewards of rounds 1 .. n, not truncated. ``ValueError`` if they are not
        finite, or if their number changes and the levels were given as a tensor or the fixed noise variances differ.
        """
        if targets is None:
            super().set_train_data(inputs=inputs, strict=strict)
            return
        check_tensor("targets", targets)
        rewards = targets.unsqueeze(-1)
        check_finite("targets", rewards)
        same_rounds = rewards.shape == self.rewards.shape
        levels = self.levels if same_rounds else levels_of_rounds(self.truncation, rewards, first_round=1)
        fixed_noise = isinstance(self.likelihood, FixedNoiseGaussianLikelihood)
        noise = self._common_noise_var() if fixed_noise and not same_rounds else None
        super().set_train_data(inputs=inputs, targets=truncate(rewards, levels, self.rule).squeeze(-1), strict=strict)
        if noise is not None:
            self.likelihood.noise_covar.noise = noise.expand(targets.shape).clone()
        self._set_rewards(rewards, levels)

    def _set_rewards(self, rewards: Tensor, levels: Tensor) -> None:
        # Detached: a tensor with a history (a fantasy) could not be copied with the model.
        self.register_buffer("rewards", rewards.detach().clone(), persistent=False)
        self.register_buffer("levels", levels, persistent=False)
        if fantasize.off():
            warn_of_truncated(rewards[..., 0], self.truncated[..., 0], NOTABLE, float(levels[..., -1, 0].max()))

    def _common_noise_var(self) -> Tensor:
        """The noise variance that all observations share, ``batch_shape x 1``."""
        noise = self.likelihood.noise_covar.noise
        # Fantasies get the mean of the others from BoTorch, which on CUDA is off by rounding.
        if not torch.allclose(noise, noise[..., :1], rtol=1e3 * torch.finfo(noise.dtype).eps, atol=0.0):
            raise ValueError(
                "the model's noise variances differ, so that of new observations is unknown: pass `noise` to "
                "condition_on_observations, or build a new model instead of changing the size of its data."
            )
        return noise[..., :1]


def levels_of_rounds(truncation: Truncation | Tensor | None, rewards: Tensor, first_round: int) -> Tensor:
    """The levels of consecutive rounds in the shape ``batch_shape x n x 1`` of their rewards.

    Raises ``ValueError`` if levels do not fit the rewards or are not > 0.
    """
    n = rewards.shape[-2]
    if truncation is None:
        raise ValueError(
            "there is no schedule for these rounds (levels that are given as a tensor end with the data): pass a "
            "schedule of bo_robust.confidence.truncation."
        )
    if isinstance(truncation, Tensor):
        levels = truncation
    else:
        check_schedule("truncation", "TGPTruncation(4.0, 1.0), or a tensor of levels", truncation)
        rounds = torch.arange(first_round, first_round + n, dtype=rewards.dtype, device=rewards.device)
        level: float | Tensor = truncation(rounds)  # a number from a truncation that does not depend on t
        levels = (level if isinstance(level, Tensor) else torch.full_like(rounds, level)).unsqueeze(-1)
    check_like("truncation levels", levels, "the rewards", rewards)
    if levels.shape not in ((n, 1), rewards.shape):
        shapes = f"{n} x 1 (or of the shape {tuple(rewards.shape)} of the rewards)"
        raise ValueError(f"truncation levels must be {shapes}, got {tuple(levels.shape)}.")
    if not bool((levels > 0).all()):
        raise ValueError("truncation levels must be > 0 (infinity keeps every reward).")
    return levels.expand(rewards.shape).clone()
