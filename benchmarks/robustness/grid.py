"""Which methods are compared, and which observations are wrong."""

from __future__ import annotations

from typing import Any

from benchmarks.loops.outliers import Cauchy, DeadSensor, Factor, Outliers, Shift, StudentT
from benchmarks.methods.designs import Known, Plain, RelevancePursuit, Robust, Winsorized
from benchmarks.methods.hosts import Ax, Optuna
from benchmarks.methods.rcgp import RCGP

METHODS: dict[str, Any] = {
    "SingleTaskGP": Plain(),
    "known": Known(),
    "RobustGP": Robust(),
    "RobustGP + replicates": Robust(replicates=True),
    "Winsorised": Winsorized(),
    "relevance pursuit": RelevancePursuit(),
    "RCGP": RCGP(),
    "TPE": Optuna("tpe"),
    "GPSampler": Optuna("gp"),
    "RobustSampler": Optuna("robust"),
    "Ax + RobustGP": Ax(robust=True),
    "Ax": Ax(),
}
OURS = ("RobustGP", "RobustGP + replicates", "RobustSampler", "Ax + RobustGP")
REGIMES: dict[str, Outliers | None] = {
    "clean": None,
    "10% 10sd either": Shift(0.1, 10.0, "either"),
    "30% 10sd either": Shift(0.3, 10.0, "either"),
    "10% 10sd good": Shift(0.1, 10.0, "good"),
    "10% 10sd bad": Shift(0.1, 10.0, "bad"),
    "10% 3sd either": Shift(0.1, 3.0, "either"),
    "student-t": StudentT(0.3),
    "20% cauchy": Cauchy(0.2, 1.0),
    "dead sensor": DeadSensor(0.15),
}
MAIN = tuple(REGIMES)[:3]  # of the whole grid
FAULTY = MAIN[1:]
FACTOR = "10% factor of 10"  # of positive functions (configs/robustness/skewed.py)
ALL = {**REGIMES, FACTOR: Factor(0.1, 10.0)}
