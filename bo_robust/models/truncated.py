"""TGP-UCB's model: an exact GP on rewards truncated once each, with their own level b_t.

Ray Chowdhury & Gopalan 2019, Algorithm 1: y_t becomes y_t 1{|y_t| <= b_t} (zero, not clipped) and enters an
ordinary GP posterior with noise variance lambda. This cannot be an ``OutcomeTransform``: a transform never
learns the round t of an observation, and would truncate fantasies too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from botorch.exceptions.warnings import InputDataWarning
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils.assorted import fantasize
from botorch.utils.datasets import SupervisedDataset
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.likelihoods.likelihood import Likelihood
from gpytorch.means import Mean, ZeroMean
from gpytorch.module import Module
from torch import Tensor

from bo_robust.models.inputs import check_data, check_noise_var, levels_of_rounds, truncation_by_name
from bo_robust.models.moments import information_gain
from bo_robust.schedules import Truncation, truncate
from bo_robust.validation import check_finite, check_rule

__all__ = ["TruncatedGP"]


class TruncatedGP(SingleTaskGP):
    """Exact GP on rewards truncated at b_t (TGP-UCB); ``SingleTaskGP`` in everything else.

    Row i (from 0) of the data is round t = i + 1 and is truncated at b_{i+1}; observations added by
    :meth:`condition_on_observations` continue with t = n + 1. Fantasies are draws of the model, not rewards,
    and are never truncated. With an infinite level this is ``SingleTaskGP`` with the same modules.

    Two defaults differ from ``SingleTaskGP``. The prior mean is zero, as the guarantee assumes and because a
    truncated reward is zero. Outcome transforms are refused: the levels, B, v and the noise variance are in
    the units of the rewards, which ``Standardize`` would rescale by a heavy-tailed standard deviation.
    Rescale the rewards yourself (by a robust centre and spread of a first sample), and v with them. The
    default kernel has k(x, x) = 1, the normalisation of the widths.

    Truncation pulls the mean to zero: where most rewards are truncated (:attr:`truncated`) the model believes
    in zero, so centre the rewards and let v bound their raw moment, f included.

    The rewards as observed and their levels are kept in the buffers ``rewards`` and ``levels``
    (``batch_shape x n x 1``), which follow ``.to``, ``deepcopy`` and ``pickle``. Like ``train_targets`` they
    are data and not part of ``state_dict``, so that hyperparameters load into a model of other data; the
    schedule, the levels and fixed noise variances are not in it either and come from the construction.
    ``pickle`` and ``torch.save(model)`` keep everything.

    Folds of a cross-validation are data sets of their own, whose rows count as rounds 1, 2, ...; to keep the
    original rounds fold the levels like the rewards and pass them as a tensor.

    Args:
        train_X: ``batch_shape x n x d`` points, n >= 1, in the order they were observed.
        train_Y: ``batch_shape x n x 1`` rewards, finite, not truncated.
        truncation: The level b_t: a schedule called with a tensor of rounds t >= 1 (one number may serve them
            all), or the levels themselves, ``n x 1`` or ``batch_shape x n x 1``, > 0 (then no observation can be
            added).
        train_Yvar: ``batch_shape x n x 1`` noise variances, if known one by one.
        likelihood: A Gaussian likelihood in place of those chosen by the noise arguments.
        covar_module: Kernel; default an ``RBFKernel`` without output scale.
        mean_module: Prior mean; default zero.
        outcome_transform: Must be None; an argument because Ax passes it.
        input_transform: As in ``SingleTaskGP``.
        noise_var: lambda, one fixed noise variance for all observations, at least 1e-6 in float64 and 1e-4 in
            float32 (``gpytorch.settings.min_fixed_noise``). With neither ``noise_var`` nor
            ``train_Yvar`` a homoskedastic noise variance is learned by ``fit_gpytorch_mll``, from the
            truncated rewards.
        rule: What becomes of a reward beyond its level: "zero" (the paper's) or "clip" (the level with its sign). The
            third, "residual", needs the mean before every reward: arm mode has it, this model does not.

    Raises:
        ValueError: if data are not finite or have more than one output, levels do not fit or are not > 0,
            the noise is given twice or ``noise_var`` too small, an outcome transform is given, or the rule is neither.
    """

    rewards: Tensor
    levels: Tensor
    rule: str
    truncation: Truncation | None

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
        check_data(train_X, train_Y)
        check_rule(rule)
        if rule == "residual":
            raise ValueError("TruncatedGP has the rules 'zero' and 'clip'; 'residual' is for arm mode (TGPUCB).")
        if outcome_transform is not None:
            raise ValueError(
                f"TruncatedGP takes no outcome_transform (got {type(outcome_transform).__name__}): levels "
                "and widths are in the units of train_Y. Rescale train_Y and the moment bound instead."
            )
        if noise_var is not None:
            if train_Yvar is not None or likelihood is not None:
                raise ValueError("give one of noise_var (one for all), train_Yvar (one by one), likelihood.")
            check_noise_var(noise_var, train_Y.dtype)
            train_Yvar = torch.full_like(train_Y, noise_var)
        levels = levels_of_rounds(truncation, train_Y, first_round=1)
        with warnings.catch_warnings():  # not to be standardised: see the docstring
            message = r"Data \(outcome observations\) is not standardized"
            warnings.filterwarnings("ignore", message, InputDataWarning)
            super().__init__(
                train_X=train_X,
                train_Y=truncate(train_Y, levels, rule),
                train_Yvar=train_Yvar,
                likelihood=likelihood,
                covar_module=covar_module,
                mean_module=ZeroMean(batch_shape=train_X.shape[:-2]) if mean_module is None else mean_module,
                outcome_transform=None,
                input_transform=input_transform,
            )
        self.truncation = None if isinstance(truncation, Tensor) else truncation
        self.rule = rule
        self._set_rewards(train_Y, levels)

    @classmethod
    def construct_inputs(  # type: ignore[override]
        cls,
        training_data: SupervisedDataset,
        truncation: Truncation | Tensor | str,
        truncation_options: dict[str, Any] | None = None,
        noise_var: float | None = None,
        rule: str = "zero",
        **search_space_options: Any,
    ) -> dict[str, Any]:
        """Keyword arguments of the constructor from a data set whose rows are in the order of the rounds.

        Args:
            training_data: Points and rewards, and noise variances unless ``noise_var`` replaces them.
            truncation: As in the constructor, or the name of a schedule in ``TRUNCATIONS``. Ax can store only a
                name in JSON (and a model once ``ax.storage.botorch_modular_registry.register_model`` knows it).
            truncation_options: Arguments of the named schedule.
            noise_var: As in the constructor; wins over the noise variances of the data.
            rule: As in the constructor.
            search_space_options: What Ax adds for search spaces with categorical, fidelity or task features.
                Not used: such features are ordinary columns of X, for ``covar_module`` to treat.

        Returns:
            The keyword arguments.

        Raises:
            ValueError: if the name is unknown, or options come with a truncation that is not a name.
        """
        inputs: dict[str, Any] = super().construct_inputs(training_data=training_data)
        inputs["truncation"] = truncation_by_name(truncation, truncation_options)
        inputs["rule"] = rule
        if noise_var is not None:
            inputs["noise_var"] = noise_var
            inputs.pop("train_Yvar", None)
        return inputs

    @property
    def truncated(self) -> Tensor:
        """Which rewards were beyond their level, ``batch_shape x n x 1``, bool."""
        return self.rewards.abs() > self.levels

    @property
    def information_gain(self) -> Tensor:
        """Realised 1/2 logdet(I + K/noise_var) of the points observed, in nats, ``batch_shape``."""
        return information_gain(self)

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> TruncatedGP:
        """The model with the observations of rounds n + 1, n + 2, ... added.

        Args:
            X: ``batch_shape x n' x d`` points.
            Y: ``batch_shape' x n' x 1`` rewards, not truncated; inside :meth:`fantasize` they stay so.
            noise: Noise variances, ``batch_shape x n' x 1``. Needed only where those of the model are fixed
                and differ from each other.
            kwargs: Passed to ``get_fantasy_model``.

        Returns:
            A new model; this one is unchanged.

        Raises:
            ValueError: if data are not finite, not of the model's dtype and device or have more than one
                output, the levels were given as a tensor, or ``noise`` is needed.
        """
        if Y.shape[-2:] != (X.shape[-2], 1):
            raise ValueError(f"Y must be ... x n' x 1 for X ... x n' x d, got {tuple(Y.shape)} and {tuple(X.shape)}.")
        if self.prediction_strategy is None:  # the update needs the caches that a prediction leaves
            self.posterior(X.reshape(-1, X.shape[-1])[:1])
        if noise is not None:
            kwargs["noise"] = noise
        return cast(TruncatedGP, super().condition_on_observations(X, Y, **kwargs))

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> TruncatedGP:
        """:meth:`condition_on_observations` without transforms and output dimension; ``ModelListGP`` uses it.

        Args:
            inputs: ``batch_shape x n' x d`` transformed points.
            targets: ``batch_shape' x n'`` rewards, not truncated; inside :meth:`fantasize` they stay so.
            kwargs: ``noise``, ``batch_shape x n'``, and what the kernel takes.
        """
        rewards = targets.unsqueeze(-1)
        if fantasize.on():
            levels = torch.full_like(rewards, torch.inf)
        else:
            self._check_new("X", inputs)
            self._check_new("Y", rewards)
            levels = levels_of_rounds(self._schedule(), rewards, first_round=self.rewards.shape[-2] + 1)
        if "noise" not in kwargs and isinstance(self.likelihood, FixedNoiseGaussianLikelihood):
            noise = self._common_noise_var()  # in the batch shape of the points, which outcomes may exceed
            shape = torch.broadcast_shapes(noise.shape[:-1], inputs.shape[:-2])
            kwargs["noise"] = noise.expand(*shape, targets.shape[-1])
        kept = truncate(rewards, levels, self.rule).squeeze(-1)
        model = cast(TruncatedGP, super().get_fantasy_model(inputs, kept, **kwargs))
        batch_shape = model.train_targets.shape[:-1]
        both = zip((self.rewards, self.levels), (rewards, levels), strict=True)
        model._set_rewards(*(_append(old, new, batch_shape) for old, new in both))
        return model

    def set_train_data(
        self,
        inputs: Tensor | Iterable[Tensor] | None = None,
        targets: Tensor | None = None,
        strict: bool = True,
    ) -> None:
        """Replace the data, hyperparameters unchanged; a noise variance shared by all is the new data's too.

        Args:
            inputs: As in ``ExactGP``.
            targets: ``batch_shape x n`` rewards of rounds 1 .. n, not truncated.
            strict: Whether shapes, dtypes and devices must stay as they are.

        Raises:
            ValueError: if ``targets`` are not finite, or their number changes and the levels were given as a
                tensor or the fixed noise variances differ from each other.
        """
        if targets is None:
            super().set_train_data(inputs=inputs, strict=strict)
            return
        rewards = targets.unsqueeze(-1)
        check_finite("targets", rewards)
        same_rounds = rewards.shape == self.rewards.shape
        levels = self.levels if same_rounds else levels_of_rounds(self._schedule(), rewards, first_round=1)
        fixed_noise = isinstance(self.likelihood, FixedNoiseGaussianLikelihood)
        noise = self._common_noise_var() if fixed_noise and not same_rounds else None
        super().set_train_data(inputs=inputs, targets=truncate(rewards, levels, self.rule).squeeze(-1), strict=strict)
        if noise is not None:
            self.likelihood.noise_covar.noise = noise.expand(targets.shape).clone()
        self._set_rewards(rewards, levels)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> TruncatedGP:
        before = self.train_targets
        super()._apply(fn)
        if self.train_targets is not before:  # really moved: caches and original inputs are left behind
            self.prediction_strategy = None
            if self._original_train_inputs is not None:
                self._original_train_inputs = fn(self._original_train_inputs)
        return self

    def _set_rewards(self, rewards: Tensor, levels: Tensor) -> None:
        # Detached: a tensor with a history (a fantasy) could not be copied with the model.
        self.register_buffer("rewards", rewards.detach().clone(), persistent=False)
        self.register_buffer("levels", levels, persistent=False)

    def _schedule(self) -> Truncation:
        if self.truncation is None:
            raise ValueError("the levels were given as a tensor and end with the data; pass a schedule instead.")
        return self.truncation

    def _check_new(self, name: str, x: Tensor) -> None:
        check_finite(name, x)
        if (x.dtype, x.device) != (self.rewards.dtype, self.rewards.device):
            raise ValueError(
                f"{name} is {x.dtype} on {x.device}, the model {self.rewards.dtype} on "
                f"{self.rewards.device}; convert one of them."
            )

    def _common_noise_var(self) -> Tensor:
        """The noise variance all observations share, ``batch_shape x 1``."""
        noise = self.likelihood.noise_covar.noise
        if not torch.equal(noise, noise[..., :1].expand_as(noise)):
            raise ValueError(
                "the model's noise variances differ, so that of new observations is unknown: pass `noise` to "
                "condition_on_observations, or build a new model instead of changing the size of its data."
            )
        return noise[..., :1]


def _append(old: Tensor, new: Tensor, batch_shape: torch.Size) -> Tensor:
    """``... x n x 1`` and ``... x n' x 1`` as ``batch_shape x (n + n') x 1``."""
    return torch.cat([x.expand(*batch_shape, *x.shape[-2:]) for x in (old, new)], dim=-2)
