"""What ``.ci/run`` runs with CUDA simulated."""

TESTS = [
    "tests/bandits/posteriors",
    "tests/bandits",
    "tests/contract",
    "tests/features",
    "tests/models/test_feature_gp.py",
    "tests/benchmarks/problems/conditions",
    "tests/ops/test_checked.py",
    "tests/ops/test_inverse_root.py",
    "tests/risk_measures/test_weighted_quantile.py",
    "tests/test_devices.py",
]
