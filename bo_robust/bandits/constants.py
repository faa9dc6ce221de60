"""What an algorithm over arms takes from its problem where a configuration leaves it out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bo_robust.risk_measures.functionals import Functional

Box = tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Constants:
    """What a problem and a run state for widths, levels, feature maps and algorithms; None where it is unknown."""

    horizon: int
    delta: float  # failure probability of the whole algorithm
    num_arms: int
    noise_var: float
    norm_bound: float | None = None
    moment_bound: float | None = None
    alpha: float | None = None
    noise_scale: float | None = None
    lengthscale: float | None = None
    nu: float | None = None
    lengthscales: tuple[float, ...] | None = None  # of the candidates
    bounds: Box | None = None  # that holds all arms
    num_conditions: int = 1
    probabilities: tuple[float, ...] | None = None
    functional: Functional | float | None = None
    max_gain: Callable[[], tuple[float, ...]] | None = None  # bounds on the information gain of 1, 2, ... points
    features: Any = None  # the feature map of the algorithm

    def context(self) -> dict[str, Any]:
        """Values by name of parameter, for :func:`bo_robust.utils.specs.build`."""
        values = {name: value for name, value in vars(self).items() if name not in ("max_gain", "features")}
        values["norm_bound_squared"] = None if self.norm_bound is None else self.norm_bound**2
        if self.features is not None:
            # The paper's m: frequencies of Fourier features; None for m_t, the size of the present dictionary.
            values["num_features"] = getattr(self.features, "num_frequencies", None)
            values["num_directions"] = getattr(self.features, "num_features", None)
        return values

    def for_width(self, spec: Mapping[str, Any], width_class: Any, delta: float) -> dict[str, Any]:
        """The context of a width of class ``width_class``, with its own ``delta``."""
        values = self.context() | {"delta": delta}
        asks = "max_gain" in getattr(width_class, "__dataclass_fields__", ()) and "max_gain" not in spec
        return values | {"max_gain": self.max_gain()} if asks and self.max_gain is not None else values
