"""The core without extras: ``python .ci/core.py models``, and with Optuna installed ``python .ci/core.py optuna``.

``.ci/run`` calls it in an environment of its own, which holds the built wheel and torch, and then Optuna too. The first
call fits every model, and fails if a package of an extra is installed. The second runs a study with
``RobustSampler``. In both no package of an extra can be imported.
"""

import pkgutil
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec

EXTRAS = ("pandas", "pyarrow", "matplotlib", "ax", "ray")
UNUSED = ("jinja2", "joblib")  # torch and scikit-learn install them


def models() -> None:
    """Import every module that needs no extra; fit every model to the same readings and predict."""
    import torch
    from botorch.fit import fit_gpytorch_mll
    from gpytorch.mlls import ExactMarginalLogLikelihood

    import bo_robust
    from bo_robust.confidence.truncation import ATAFourierTruncation, TGPTruncation
    from bo_robust.models import candidate

    imported = 0
    for module in pkgutil.walk_packages(bo_robust.__path__, "bo_robust."):
        needs_triton = module.name.endswith(".fused") and find_spec("triton") is None  # which torch's CUDA build brings
        if not module.name.startswith("bo_robust.integrations") and not needs_triton:
            import_module(module.name)
            imported += 1
    assert imported > 50, imported
    draws = torch.Generator().manual_seed(0)
    X = torch.rand(30, 2, generator=draws, dtype=torch.float64)
    Y = torch.sin(5 * X).sum(-1, keepdim=True) + 0.05 * torch.randn(30, 1, generator=draws, dtype=torch.float64)
    Y[3] = 40.0
    features = bo_robust.FourierMap(nodes=6)
    level = ATAFourierTruncation(moment_bound=4.0, alpha=1.0, delta=0.1, horizon=30, num_features=36)
    made = [
        bo_robust.RobustGP(X, Y),
        bo_robust.TruncatedGP(X, Y, TGPTruncation(4.0, 1.0)),
        bo_robust.FeatureGP(X, Y, features),
        bo_robust.FeatureGP(X, Y, bo_robust.NystromMap(X[:10])),
        bo_robust.TruncatedFeatureGP(X, Y, features, level, noise_var=0.1),
        bo_robust.BKBModel(X, Y),
    ]
    for model in made:
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    kernels = [candidate("rbf", lengthscale, noise_var=1e-2) for lengthscale in (0.1, 0.3)]
    made.append(bo_robust.CandidateEnsemble(X, Y, kernels))
    for model in made:
        with torch.no_grad():
            mean = model.posterior(X[:4]).mean
        assert mean.shape[-2:] == (4, 1), type(model).__name__
        assert mean.isfinite().all(), type(model).__name__
        if isinstance(model, bo_robust.RobustGP):
            assert abs(float(mean[3] - torch.sin(5 * X[3]).sum())) < 0.2, "it follows the outlier"
        print("fitted", type(model).__name__)


def optuna() -> None:
    """A study of ten trials."""
    import optuna

    from bo_robust.integrations.optuna import RobustSampler

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=RobustSampler(seed=0))
    study.optimize(lambda trial: (trial.suggest_float("x", 0.0, 1.0) - 0.3) ** 2, n_trials=10)
    found = study.sampler.recommend(study)
    assert abs(found.x["x"] - 0.3) < 0.2, found
    print("RobustSampler recommends", found.x)


if __name__ == "__main__":
    part = sys.argv[1]
    if part == "models":
        installed = [name for name in EXTRAS if find_spec(name) is not None]
        assert not installed, f"the core installs {', '.join(installed)}"
    sys.modules.update(dict.fromkeys((*EXTRAS, *UNUSED)))  # an import of them fails
    warnings.simplefilter("ignore")
    {"models": models, "optuna": optuna}[part]()
