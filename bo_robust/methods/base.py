"""What every method declares: its settings, its model and its acquisition function.

A method is one frozen dataclass in one file. Its fields are its settings, plain data. A study and the Optuna sampler
call :meth:`Method.model` and :meth:`Method.acquisition`. Ax stores names and plain options instead, so it takes the
classes, :meth:`Method.model_options` and :meth:`Method.acquisition_options`; the former two are made from these.

Some defaults mean something only where rewards are standardised, (y - center) / scale, and the arms are counted. A
study and the Optuna sampler do both. Ax does neither: it passes on rewards as they are reported. :func:`setting` says
which default holds where; it is the only place where the two differ.
"""

import copy
import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, ClassVar

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.models.model import Model
from botorch.utils.datasets import SupervisedDataset
from torch import Tensor

from bo_robust.acquisition import GPUCB
from bo_robust.confidence import WIDTHS
from bo_robust.confidence.base import EXPLORING
from bo_robust.models import marginal_moments
from bo_robust.models.candidate_elimination import GRID
from bo_robust.specs import SpecError, build
from bo_robust.validation import check_rule, check_settings, quoted

Spec = Any  # {"kind": name, **options}; checked where it is built

RANDOMISED = {"kind": "randomised", "scale": EXPLORING}


class InPlaceOfDefault(Enum):
    """What a setting may have in place of a default."""

    NEEDED = "it has to be given"
    ABSENT = "there is no such setting"
    SAME = "the default of the field"


NEEDED, ABSENT, SAME = InPlaceOfDefault


def setting(default: Any, *, standardised: Any = SAME, reported: Any = SAME) -> Any:
    """Make a field of a method whose default is a mapping, or depends on how rewards come.

    Args:
        default: The default of the field.
        standardised: The default where rewards are standardised and the arms counted (a study, Optuna), or ``NEEDED``
            or ``ABSENT``. If not given, it is ``default``.
        reported: The same where rewards are as reported (Ax).
    """
    defaults = {"standardised": standardised, "reported": reported}
    metadata = {how: default if value is SAME else value for how, value in defaults.items()}
    return dataclasses.field(default_factory=partial(copy.deepcopy, default), metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """Settings of a method; checked at construction.

    Several functions take a mapping ``known`` of what the caller knows beside the settings: ``num_arms``, ``dim`` (of
    the points), ``num_initial`` (rewards of an initial design), ``seed``, and the model's ``noise_var`` and
    ``num_features``. Options that a width or truncation leaves out come from there, then from the settings of the same
    name.

    Args:
        width: A number, or ``{"kind": name in WIDTHS, ...}``: it multiplies sigma where points are chosen.
        delta: Failure probability of widths, in (0, 1).
        environment: Conditions, of a method that chooses them too. Other methods have no such setting; it is None
            there.
    """

    model_class: ClassVar[type[Model]]
    acquisition_class: ClassVar[type[AcquisitionFunction]]
    fits_kernel: ClassVar[bool] = False
    """Whether the model takes a ``covar_module`` and a ``likelihood``, which others may fit."""
    failures_first: ClassVar[bool] = False
    """Whether points that failed belong before the rewards, to the initial design."""
    judges_rewards: ClassVar[bool] = False
    """Whether the model standardises rewards, learns their mean and chooses which to believe, all by itself."""
    many_set_aside: ClassVar[float] = 0.1
    """Share of rewards set aside beyond which a study warns ..."""
    advice: ClassVar[str] = ""
    """... and what it then says."""
    study_defaults: ClassVar[Mapping[str, Any]] = {}
    """Defaults of a study's own settings that differ for this method."""

    width: Spec = setting(RANDOMISED, reported=RANDOMISED | {"num_arms": GRID})
    delta: float = 0.1
    environment: Spec = setting(None, standardised=ABSENT, reported=ABSENT)

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def certifies(self) -> bool:
        """Whether a study may take the bounds of this method as a certificate."""
        return True

    @property
    def any_units(self) -> bool:
        """Whether rewards may be divided: the model standardises them, and no setting is in their units."""
        return False

    @property
    def failures_apart(self) -> bool:
        """Whether a study has a model of failures of its own, else failures are rewards, the worst.

        The acquisition must then be the logarithm of an improvement: it falls where trials fail, by numbers that rule
        it out in any units of the rewards.
        """
        return False

    @abstractmethod
    def model_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Options of ``model_class.construct_inputs``, plain JSON; a missing or wrong one raises ``ValueError``."""

    @abstractmethod
    def acquisition_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Options of the acquisition's input constructor, plain JSON; raises ``ValueError`` as :meth:`model_options`.

        The width among them must be :meth:`completed_width`: a study replaces ``width`` by that of its certificate.
        """

    @abstractmethod
    def bounds(self, acquisition: Any, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, lower and upper confidence bound at designs ``n x d``, ``n`` each, by an acquisition of this method."""

    @staticmethod
    def set_aside(model: Any) -> Tensor | None:
        """Which rewards the model does not see as they are, ``n`` bool; None where it sees all."""
        return None

    def suspects(self, model: Any, maximize: bool = True) -> list[int]:
        """Rows of rewards to measure again before the acquisition is maximised, the most promising first."""
        return []

    def model(self, X: Tensor, Y: Tensor, known: Mapping[str, Any] | None = None, **modules: Any) -> Any:
        """Make the model of points ``n x d`` and rewards ``n x 1``, in the order observed.

        ``modules`` are ``covar_module`` and ``likelihood``, where the model takes them; :class:`Method` explains
        ``known``. Raises ``ValueError`` as :meth:`model_options` and the model.
        """
        names = [f"x{i}" for i in range(X.shape[-1])]
        data = SupervisedDataset(X, Y, feature_names=names, outcome_names=["y"])
        inputs = self.model_class.construct_inputs(data, **self.model_options(known or {}))
        return self.model_class(**inputs | modules)

    def acquisition(
        self,
        model: Any,
        known: Mapping[str, Any] | None = None,
        X_pending: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Any:
        """Make the acquisition that the next point maximises, for a model of this method.

        ``X_pending`` are points under evaluation, ``k x d``; a randomised width draws from ``generator``.
        :class:`Method` explains ``known``. Raises ``ValueError`` as :meth:`acquisition_options` and the acquisition.
        """
        inputs = get_acqf_input_constructor(self.acquisition_class)(
            model=model, X_pending=X_pending, **self.acquisition_options(known or {})
        )
        # BoTorch's input constructors know of no generator, so it is added here.
        if "generator" in inspect.signature(self.acquisition_class).parameters:
            inputs["generator"] = generator
        return self.acquisition_class(**inputs)

    @classmethod
    def defaults(cls, standardised: bool = True) -> dict[str, Any]:
        """Return the settings and their defaults, with ``NEEDED`` for those that must be given.

        ``standardised`` says whether rewards are standardised and the arms counted (a study, Optuna), or not (Ax).
        """
        defaults: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            default = NEEDED if field.default is dataclasses.MISSING else field.default
            defaults[field.name] = field.metadata.get("standardised" if standardised else "reported", default)
        return copy.deepcopy({name: default for name, default in defaults.items() if default is not ABSENT})

    def to_json(self) -> dict[str, Any]:
        """All settings, plain JSON."""
        return copy.deepcopy({field.name: getattr(self, field.name) for field in dataclasses.fields(self)})

    def completed_width(self, known: Mapping[str, Any], role: str = "width") -> dict[str, Any]:
        """The width with all its options, plain JSON; ``role`` names it in errors.

        Raises ``ValueError`` if the kind or an option is unknown, missing or out of range.
        """
        spec = self.width
        if isinstance(spec, int | float) and not isinstance(spec, bool):
            spec = {"kind": "constant", "value": float(spec)}
        return completed(spec, WIDTHS, self._context(known), role)

    def _context(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Values for options that a spec leaves out."""
        given = {name: value for name, value in self.to_json().items() if value is not None}
        return given | {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class GPMethod(Method):
    """A method whose model is one GP and whose acquisition is mu + w sigma.

    Args:
        noise_var: lambda > 0; None: learned.
    """

    acquisition_class: ClassVar[type[AcquisitionFunction]] = GPUCB
    fits_kernel: ClassVar[bool] = True

    noise_var: float | None = None

    def model_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {} if self.noise_var is None else {"noise_var": self.noise_var}

    def acquisition_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {"width": self.completed_width(known)}

    def bounds(self, acquisition: Any, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, variance = marginal_moments(acquisition.model, X)
        reach = acquisition.width * variance.sqrt()
        return mean, mean - reach, mean + reach


@dataclass(frozen=True, kw_only=True)
class HeavyTailMethod(GPMethod):
    """A method that truncates rewards (Ray Chowdhury & Gopalan 2019).

    Args:
        moment_bound: v > 0: E|y|^(1 + alpha) <= v, f included. The default is generous, because the scale of the
            rewards comes from few of them.
        alpha: In (0, 1].
        rule: "zero" is the papers'; "clip" moves a reward beyond its level to the level.
    """

    advice = (
        "If these are no outliers, raise `moment_bound`, or give `center` and `scale`, which the rewards so far may "
        "have shown too small"
    )

    moment_bound: float = setting(100.0, reported=NEEDED)
    alpha: float = setting(1.0, reported=NEEDED)
    rule: str = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rule(self.rule)


def completed(
    spec: Any, registry: Mapping[str, Callable[..., Any]], context: Mapping[str, Any], role: str
) -> dict[str, Any]:
    """Return the spec of a width or truncation with all its options; those it leaves out come from the context.

    Raises ``ValueError`` if it is no mapping with a kind, or as :func:`bo_robust.specs.build`.
    """
    if not isinstance(spec, Mapping) or "kind" not in spec:
        raise SpecError(f"{role} must be {{'kind': one of {', '.join(registry)}, ...}}, got {quoted(spec)}.")
    # JSON knows no difference between 3 and 3.0; `build` makes numbers of whole numbers where they are wanted.
    plain = {key: int(value) if _is_whole(value) else value for key, value in spec.items()}
    made = build(plain, registry, context, role)
    return {"kind": spec["kind"]} | dataclasses.asdict(made)


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer() and abs(value) < 2**53
