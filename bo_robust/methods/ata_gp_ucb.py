"""ATA-GP-UCB (Ray Chowdhury & Gopalan 2019, Algorithm 2): truncation along the directions of a feature space."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor

from bo_robust.methods.base import NEEDED, HeavyTailMethod, Spec, completed, setting
from bo_robust.models import TruncatedFeatureGP
from bo_robust.models.feature_maps import FEATURE_MAPS
from bo_robust.posteriors.whitening import ROOTS
from bo_robust.specs import build
from bo_robust.truncation import TRUNCATIONS
from bo_robust.validation import quoted

TOO_MUCH = 0.1  # a reward counts as truncated if a larger share of its weight is beyond the level


@dataclass(frozen=True, kw_only=True)
class ATAGPUCBMethod(HeavyTailMethod):
    """ATA-GP-UCB.

    Args:
        features: ``{"kind": "nystrom", "size": m}`` (m of the points observed, evenly spaced),
            ``{"kind": "nystrom", "inducing_points": [[...], ...]}`` or ``{"kind": "fourier", "nodes": m}``.
        truncation: ``{"kind": name in TRUNCATIONS, ...}``, the level b_t; None: the paper's for these features.
        horizon: T >= 1, the rounds that the guarantee is for.
        num_features: m in the level; None: counted, the inducing points or the nodes^d frequencies.
        root: Root of the Nyström features, "symmetric" (the paper's) or "cholesky".
        noise_var: lambda > 0. None: learned, and then perhaps so small that every direction is beyond its level.
    """

    model_class = TruncatedFeatureGP

    features: Spec = setting({"kind": "nystrom", "size": 64}, reported=NEEDED)
    truncation: Spec = None
    horizon: int = setting(1000, reported=NEEDED)
    num_features: int | None = None
    root: str = "symmetric"
    noise_var: float | None = setting(1.0, reported=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.root not in ROOTS:
            raise ValueError(f"root must be one of {', '.join(ROOTS)}, got {quoted(self.root)}.")
        build(self.features, FEATURE_MAPS, {}, "features")  # raises

    def model_options(self, known: Mapping[str, Any]) -> dict[str, Any]:
        spec = self.truncation or {"kind": f"ata_{self.features['kind']}"}
        count = {"num_features": self.num_features or 1}
        level = completed(spec, TRUNCATIONS, self._context(known) | count, "truncation")
        if self.num_features is None and "num_features" not in spec:
            level.pop("num_features", None)  # the model counts them
        options = {"features": dict(self.features), "truncation": level, "root": self.root, "rule": self.rule}
        return super().model_options(known) | options

    @staticmethod
    def set_aside(model: Any) -> Tensor:
        return cast(Tensor, model.mostly_truncated(TOO_MUCH))
