"""The settings of a study: those of its method (:mod:`bo_robust.methods`) and those of the study itself.

They are checked and completed when the study is created. Its file holds them as one mapping, plain JSON.

All settings are in the units of the models. Coordinates are in the unit cube. Rewards are (y - center) / scale, with
the sign turned where f is minimised. The method ``robust`` standardises by itself: for it center and scale are 0 and 1
unless given, so that ``noise_var`` is in the rewards' own units. For other methods a center or scale that is not given
follows from the first m rewards, where m is the largest of num_initial * 1.3^k that there are. Between two such m the
units stand still. At the next m they follow the rewards. Settings such as ``noise_var`` and ``moment_bound`` then mean
another number of the rewards' own units.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bo_robust.methods import (
    GRID,
    Method,
    Spec,
    create_method,
    method_class,
    plain_json,
    refuse_unknown,
    setting,
)
from bo_robust.specs import SpecError, build
from bo_robust.study.records import WITH_CONSTRAINTS
from bo_robust.study.space import Arms, Space
from bo_robust.validation import check_positive, check_settings, quoted

KERNEL_NAMES = ("matern52", "rbf")
UNKNOWN = {"noise_var": 1.0, "num_features": 1, "seed": 0}  # stand-ins for values of a model that does not exist yet


@dataclass(frozen=True, kw_only=True)
class CommonSettings:
    """Settings that every study has beside those of its method.

    Args:
        minimize: Whether f is to be minimised.
        center: The reward that models see as 0; None: the median of the initial design.
        scale: The distance from the center that models see as 1; None: the largest
            :func:`~bo_robust.study.units.spread_of` of the rewards at any m of the module's docstring.
        num_initial: Trials of the initial design (Sobol; arms: drawn at random) before the method chooses; None:
            2 d + 2, where d counts the conditions too if the method chooses them.
        restarts: Local searches for the best acquisition.
        raw_samples: Random points from which these searches get their starts.
        device: "cpu" or "cuda".
    """

    minimize: bool = False
    center: float | None = None
    scale: float | None = None
    num_initial: int | None = None
    restarts: int = 8
    raw_samples: int = 128
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.center is not None and not math.isfinite(self.center):
            raise ValueError(f"center must be finite, got {self.center!r}.")
        check_settings(self)
        if self.device.split(":")[0] not in ("cpu", "cuda"):
            raise ValueError(f"device must be 'cpu' or 'cuda', got {quoted(self.device)}.")


@dataclass(frozen=True, kw_only=True)
class KernelSettings:
    """Settings of a study whose method models f by one GP. A hyperparameter that is None is learned.

    Args:
        kernel: "matern52" or "rbf", the default of ``robust``.
        lengthscale: A number, one per column, or None.
        outputscale: k(x, x), or None. The default of ``robust`` is 1, which is the variance of the believed rewards.
        certificate: The width that multiplies sigma in ``recommend``: one that holds, not one that explores. The
            default holds for f ~ GP with the model's hyperparameters on finitely many arms (or pairs of arm and
            condition, where the method chooses both). It is a heuristic if hyperparameters are learned, and on a box,
            which counts as 1000 points. ``{"kind": "compact", ...}`` is for boxes.
    """

    kernel: str = "matern52"
    lengthscale: float | list[float] | None = None
    outputscale: float | None = None
    certificate: Spec = setting({"kind": "finite"})

    def __post_init__(self) -> None:
        if self.kernel not in KERNEL_NAMES:
            raise ValueError(f"kernel must be one of {', '.join(map(repr, KERNEL_NAMES))}, got {quoted(self.kernel)}.")
        if self.lengthscale is not None:
            for scale in self.lengthscale if isinstance(self.lengthscale, list) else [self.lengthscale]:
                check_positive(lengthscale=scale)
        check_settings(self)


@dataclass(frozen=True)
class StudySettings:
    """All settings of a study on its space.

    ``kernel`` is None where the method has its own kernels. ``known`` has values that widths may leave out:
    ``num_arms`` (``GRID`` on a box), ``dim`` and ``num_initial``. The first two include the conditions where the method
    chooses them.
    """

    name: str
    method: Method
    common: CommonSettings
    kernel: KernelSettings | None
    known: Mapping[str, Any]

    @property
    def certified(self) -> Method:
        """The method with the width of the certificate."""
        return self.method if self.kernel is None else dataclasses.replace(self.method, width=self.kernel.certificate)

    def to_json(self) -> dict[str, Any]:
        """All settings as one mapping, plain JSON, which :func:`complete` reads."""
        kernel = {} if self.kernel is None else dataclasses.asdict(self.kernel)
        method = {name: value for name, value in self.method.to_json().items() if name in type(self.method).defaults()}
        return plain_json(dataclasses.asdict(self.common) | kernel | method)


def complete(method: str, given: Mapping[str, Any], space: Space) -> StudySettings:
    """Check the given settings of the method and the study (plain JSON) and fill in the defaults.

    Raises ``ValueError`` if a method or setting is unknown (the nearest is named), or a value is out of range, of
    another type or no plain JSON.
    """
    if "constraints" in given or "constraints_func" in given:
        raise SpecError(f"a study has no constraints: {WITH_CONSTRAINTS}.")
    made = method_class(method)
    parts: dict[type, dict[str, Any]] = {CommonSettings: {}} | ({KernelSettings: {}} if made.fits_kernel else {})
    names = {field.name: part for part in parts for field in dataclasses.fields(part)}
    refuse_unknown(method, given, [*names, *made.defaults()])
    chosen = {**made.study_defaults, **plain_json(given)}
    of_method = create_method(method, {name: value for name, value in chosen.items() if name not in names})
    for name, part in names.items():
        if name in chosen:
            parts[part][name] = chosen[name]
    conditions = _conditions(of_method, space)
    columns = [*space.columns, *conditions[0]]
    if parts[CommonSettings].get("num_initial") is None:
        parts[CommonSettings]["num_initial"] = 2 * len(columns) + 2
    common, *kernel = (
        build({**options, "kind": method}, {method: part}, {}, "settings of") for part, options in parts.items()
    )
    num_arms = (GRID if space.points is None else len(space.points)) * len(conditions)
    known = {"num_arms": num_arms, "dim": len(columns), "num_initial": common.num_initial}
    settings = StudySettings(method, of_method, common, kernel[0] if kernel else None, known)
    _check(settings, columns)
    return settings


def _conditions(method: Method, space: Space) -> list[dict[str, float]]:
    """The conditions that the method chooses among; where it chooses none, one without names."""
    if method.environment is None:
        return [{}]
    try:
        points = Arms(method.environment["points"]).points
    except ValueError as error:
        raise SpecError(f"the points of the environment: {error}") from None
    if shared := set(points[0]) & set(space.names):
        raise SpecError(f"{', '.join(shared)} cannot be a parameter and a condition; leave it out of the space.")
    return [dict(point) for point in points]


def _check(settings: StudySettings, columns: list[str]) -> None:
    """Raise ``ValueError`` on mistakes that single settings do not show."""
    lengthscale = None if settings.kernel is None else settings.kernel.lengthscale
    if isinstance(lengthscale, list) and len(lengthscale) != len(columns):
        raise SpecError(f"{len(lengthscale)} lengthscales for {len(columns)} columns ({', '.join(columns)}).")
    known = {**UNKNOWN, **settings.known}
    settings.method.model_options(known)
    settings.method.acquisition_options(known)
    if settings.kernel is not None:
        certificate = settings.certified.completed_width(known, "certificate")
        if certificate["kind"] == "randomised":
            raise SpecError("a randomised width is no confidence bound: the certificate needs another kind.")
