"""The model of a round: its kernel, its hyperparameters, what it makes of failures.

Hyperparameters that are learned are fitted to the first m rewards, m all there are up to 50, then the largest number
that is 1.1 times the one before (beyond 200, 1.3 times): a later process finds the same from the same file, and need
not where they are kept. Failed points come after the rewards, with the worst of these.
"""

from __future__ import annotations

import copy
import hashlib
import math
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior, LogNormalPrior
from torch import Tensor

from bo_robust.environments import FiniteEnvironment
from bo_robust.models import (
    BKBModel,
    CandidateEnsemble,
    FourierMap,
    NystromMap,
    TruncatedFeatureGP,
    TruncatedGP,
    candidate_grid,
)
from bo_robust.models.feature_regression import precision_matrix
from bo_robust.random import stream
from bo_robust.schedules import NoTruncation
from bo_robust.study.posteriors import Candidates, Conditions, OneGP, Posterior
from bo_robust.study.settings import schedule
from bo_robust.study.space import Arms, Space

__all__ = ["Posteriors", "last_step", "seeded", "stream_seed"]

RULES = b"1"  # how hyperparameters are fitted: another number with every change of it
NOISE_FLOOR = 1e-6  # of a learned noise_var; BoTorch's 1e-4 blurs what an exact objective says of its optimum
# Hyperparameters are fitted anew with every reward up to FEW; then when there are so many times the rewards of the last
# fit, by how many that had: of many, fits take long and change little.
FEW, GROWTHS = 50, ((200, 1.1), (math.inf, 1.3))
TOO_MANY = 0.1  # of the rewards truncated: beyond this a method warns; of the weight of one reward: it is truncated


class Posteriors:
    """Makes the posterior of a method from data, and remembers the hyperparameters fitted.

    Args:
        space: What is searched.
        name: Of the method.
        settings: All of them.
        seed: Of the study.
        environment: The conditions of v-ucb.
        fits: Hyperparameters known, plain JSON by a digest of the data they were fitted to.

    Attributes:
        fits: Those known and those fitted since.
    """

    def __init__(
        self,
        space: Space,
        name: str,
        settings: dict[str, Any],
        seed: int,
        environment: Arms | None,
        fits: Mapping[str, Any],
    ) -> None:
        self.space, self.name, self.settings, self.seed = space, name, settings, seed
        self.environment = environment
        self.fits = dict(fits)
        self._fitted: dict[str, tuple[Kernel, Any]] = {}

    def of(self, X: Tensor, Y: Tensor, failed: Tensor) -> Posterior:
        """The posterior at points ``n x d`` in the unit cube, rewards ``n x 1`` as models see them, and failed points.

        Args:
            X: Points with rewards, in the order told.
            Y: Their rewards.
            failed: Points that failed, ``m x d``; they enter with the worst reward that is not truncated.
        """
        settings = self.settings
        if self.name == "he-gp-ucb":
            return Candidates(self._ensemble(X, Y, failed), float(Y.abs().amax()))
        fitted = self._hyperparameters(X, Y)
        model = self._model(X, Y, *fitted)
        lost = _truncated(model)
        self._warn_of(int(lost.sum()), len(X))
        if len(failed):
            worst = Y[~lost].amin() if not lost.all() else Y.new_zeros(())
            model = self._model(torch.cat([X, failed]), torch.cat([Y, worst.expand(len(failed), 1)]), *fitted)
        width, certificate = (self._schedule(role, model) for role in ("width", "certificate"))
        largest = 0.0 if lost.all() else float(Y[~lost].abs().amax())
        if self.environment is None:
            return OneGP(model, width, certificate, float(Y[lost].amax()) if lost.any() else -math.inf, largest)
        p = settings["environment"].get("probabilities")
        environment = FiniteEnvironment(self.environment.unit_points().to(X), None if p is None else X.new_tensor(p))
        return Conditions(model, environment, settings["risk_level"], width, certificate, largest)

    def _warn_of(self, lost: int, n: int) -> None:
        if lost > max(2.0, TOO_MANY * n):
            warnings.warn(
                f"{lost} of {n} rewards are truncated: if they are no outliers, raise `moment_bound`, or give `center` "
                "and `scale`, which the rewards so far may have shown too small.",
                UserWarning,
                stacklevel=2,
            )

    def _ensemble(self, X: Tensor, Y: Tensor, failed: Tensor) -> CandidateEnsemble:
        settings = self.settings
        U = settings["candidates"] or candidate_grid((0.05, 0.8), settings["noise_var"], kernels=("rbf", "matern52"))
        scale = settings["noise_scale"] or math.sqrt(settings["noise_var"])
        width = schedule("width", settings, self.space, {"noise_scale": scale})
        # failed points first, where they test no candidate: they are no rewards
        X, Y = torch.cat([failed, X]), torch.cat([Y.amin().expand(len(failed), 1), Y])
        num_initial = settings["num_initial"] + len(failed)
        return CandidateEnsemble(X, Y, U, width, scale, settings["delta"], num_initial=num_initial)

    def _schedule(self, role: str, model: Any) -> Any:
        noise_var = float(model.likelihood.noise.detach().flatten()[0])
        return schedule(role, self.settings, self.space, {"noise_var": noise_var, "num_features": _num_features(model)})

    def _model(self, X: Tensor, Y: Tensor, covar_module: Kernel, likelihood: Any) -> Any:
        settings = self.settings
        noise: dict[str, Any] = {"likelihood": likelihood} if likelihood is not None else {}
        if settings["noise_var"] is not None:
            noise = {"noise_var": settings["noise_var"]}
        if self.name == "bkb":
            sizes = {name: settings[name] for name in ("oversampling", "max_size", "min_size")}
            seed = stream_seed(self.seed, "dictionary", 0) % 2**31
            return BKBModel(X, Y, seed=seed, covar_module=covar_module, **sizes, **noise)
        if self.name == "ata-gp-ucb":
            kind, features = settings["features"]["kind"], self._features(X)
            count = settings["features"]["nodes"] ** X.shape[-1] if kind == "fourier" else len(features.inducing_points)
            named = settings | {"truncation": settings["truncation"] or {"kind": f"ata_{kind}"}}
            level = schedule("truncation", named, self.space, {"num_features": count})
            options = {"root": settings["root"], "rule": settings["rule"]}
            return TruncatedFeatureGP(X, Y, features, level, covar_module=covar_module, **options, **noise)
        if self.name != "tgp-ucb":
            return TruncatedGP(X, Y, NoTruncation(), covar_module=covar_module, **noise)
        level = schedule("truncation", settings, self.space, {})
        return TruncatedGP(X, Y, level, covar_module=covar_module, rule=settings["rule"], **noise)

    def _features(self, X: Tensor) -> Any:
        features = self.settings["features"]
        if features["kind"] == "fourier":
            return FourierMap(features["nodes"])
        distinct = torch.unique(X, dim=0)
        kept = torch.linspace(0, len(distinct) - 1, min(features["size"], len(distinct))).round().long()
        return NystromMap(distinct[kept.to(X.device)])

    def _kernel(self, d: int) -> Kernel:
        """The prior covariance: what settings give is fixed, the rest starts from its prior."""
        settings = self.settings
        lengthscale, outputscale = settings["lengthscale"], settings["outputscale"]
        if lengthscale is None:
            base = get_covar_module_with_dim_scaled_prior(ard_num_dims=d, use_rbf_kernel=settings["kernel"] == "rbf")
        else:
            ard = {"ard_num_dims": d} if isinstance(lengthscale, list) else {}
            base = RBFKernel(**ard) if settings["kernel"] == "rbf" else MaternKernel(2.5, **ard)
            base = base.double()
            base.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
            base.requires_grad_(False)
        if outputscale == 1.0:
            return base.double()
        scaled = ScaleKernel(base, outputscale_prior=GammaPrior(2.0, 0.15) if outputscale is None else None).double()
        scaled.outputscale = torch.tensor(1.0 if outputscale is None else outputscale, dtype=torch.float64)
        scaled.raw_outputscale.requires_grad_(outputscale is None)
        return scaled

    def _hyperparameters(self, X: Tensor, Y: Tensor) -> tuple[Kernel, Any]:
        """Kernel and (where its noise is learned) likelihood, of the model's own."""
        settings = self.settings
        if all(settings[name] is not None for name in ("lengthscale", "outputscale", "noise_var")):
            return self._kernel(X.shape[-1]), None
        m = last_step(len(X), FEW, GROWTHS)
        data = _digest(X[:m], Y[:m])
        if data not in self._fitted:
            model = self._fitted_model(X[:m], Y[:m], self.fits.get(data))
            self.fits[data] = {name: p.tolist() for name, p in _learned(model).items()}
            self._fitted[data] = model.covar_module, model.likelihood
        covar_module, likelihood = copy.deepcopy(self._fitted[data])
        return covar_module, None if settings["noise_var"] is not None else likelihood

    def _fitted_model(self, X: Tensor, Y: Tensor, known: Any) -> Any:
        """A model with the hyperparameters ``known``, else fitted to the rewards.

        As they are under the prior if fitting fails, or the rewards are equal and say nothing.
        """
        model = self._prior_model(X, Y)
        learned = _learned(model)
        if isinstance(known, dict) and learned.keys() == known.keys():
            for name, parameter in learned.items():
                parameter.data.copy_(torch.tensor(known[name], dtype=parameter.dtype))
            return model
        if not bool((Y[0] != Y).any()):
            return model
        with seeded(stream_seed(self.seed, "fit", len(X)), self.settings["device"]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of single restarts; what counts is caught
            try:
                fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
                return model
            except ModelFittingError:
                return self._prior_model(X, Y)

    def _prior_model(self, X: Tensor, Y: Tensor) -> Any:
        return self._model(X, Y, self._kernel(X.shape[-1]), _likelihood().to(X))


def _likelihood() -> GaussianLikelihood:
    """That of BoTorch's models, with a lower floor."""
    prior = LogNormalPrior(-4.0, 1.0)
    return GaussianLikelihood(
        noise_prior=prior, noise_constraint=GreaterThan(NOISE_FLOOR, transform=None, initial_value=prior.mode)
    )


def _digest(*data: Tensor) -> str:
    """Of what hyperparameters are fitted to, and under which rules."""
    return hashlib.sha256(b"".join([RULES, *(of.cpu().numpy().tobytes() for of in data)])).hexdigest()


def _learned(model: Any) -> dict[str, torch.nn.Parameter]:
    """The hyperparameters that are fitted, by name."""
    of = {"covar_module": model.covar_module, "likelihood": model.likelihood}
    return {f"{k}.{name}": p for k, module in of.items() for name, p in module.named_parameters()}


def last_step(n: int, first: int, growths: Sequence[tuple[float, float]]) -> int:
    """How many of n things, n >= 1, there were when they were last looked at: at ``first``, then ever more seldom.

    Args:
        n: How many there are.
        first: The first look; before it they are looked at each time.
        growths: ``(many, growth)``: below ``many``, the next look is at ``growth`` times as many, rounded up.
    """
    m = min(n, first)
    while (later := math.ceil(next(growth for many, growth in growths if m < many) * m)) <= n:
        m = later
    return m


def _truncated(model: Any) -> Tensor:
    """Which rewards were truncated (ATA: more than a tenth of their weight), ``n``, bool."""
    if isinstance(model, TruncatedGP):
        return model.truncated.squeeze(-1)
    X, y = model.train_inputs[0], model.train_targets
    if not isinstance(model, TruncatedFeatureGP):
        return torch.zeros_like(y, dtype=torch.bool)
    with torch.no_grad():
        dictionary, weights = model._posterior_weights()
        Phi = model.features(X, model.covar_module, dictionary).double()
        u = model._inverse_root(precision_matrix(Phi, weights.noise_var), weights.noise_var) @ Phi.mT  # directions x n
        beyond = (u * y).abs() > model.truncation_level
        return (u.square() * beyond).sum(0) > TOO_MANY * u.square().sum(0)


def _num_features(model: Any) -> int:
    return model.num_features if isinstance(model, TruncatedFeatureGP | BKBModel) else 1


def stream_seed(seed: int, purpose: str, index: int) -> int:
    """A seed for PyTorch of one purpose, such as the trial of this number."""
    return int(stream(seed, f"study.{purpose}", index).integers(2**62))


class seeded:
    """The global random numbers of a block, and as they were afterwards; one thread at a time has them."""

    _one = threading.RLock()

    def __init__(self, seed: int, device: str) -> None:
        self.seed, self.fork = seed, torch.random.fork_rng(devices=[] if device == "cpu" else [torch.device(device)])

    def __enter__(self) -> None:
        self._one.acquire()
        self.fork.__enter__()
        torch.manual_seed(self.seed)

    def __exit__(self, *error: Any) -> None:
        self.fork.__exit__(*error)
        self._one.release()
