"""The models that are compared in BoTorch's loop."""

from benchmarks.methods.designs import BoTorchMethod, Known, Plain, Robust, Winsorized

METHODS: dict[str, BoTorchMethod] = {
    "RobustGP": Robust(),
    "RobustGP + replicates": Robust(replicates=True),
    "SingleTaskGP": Plain(),
    "Winsorised": Winsorized(),
    "known": Known(),
}
COMPARE = [("RobustGP", "SingleTaskGP")]
