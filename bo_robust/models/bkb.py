"""BKB's posterior as a BoTorch model: DTC regression whose inducing points are drawn by ridge leverage scores.

Calandriello, Carratino, Lazaric, Valko, Rosasco 2019, section 3. Each observed point enters the dictionary on its own
with probability min(1, q sigma~^2(x)). The leverage score sigma~^2 is variance / noise_var under an earlier dictionary,
so points that the others do not explain enter, about q d_eff of them, d_eff = tr K (K + noise_var I)^-1.
"""

from __future__ import annotations

import warnings
from typing import Any, cast

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils.assorted import fantasize
from botorch.settings import validate_input_scaling
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import Mean
from gpytorch.mlls import MarginalLogLikelihood
from torch import Tensor

from bo_robust.features.leverage import entry_oversampling
from bo_robust.features.maps import NystromMap
from bo_robust.features.nystrom import NystromWeights
from bo_robust.models.evidence_fit import fit_evidence, fit_rows
from bo_robust.models.feature_gp import CPU_BLOCK, CUDA_BLOCK, FeatureGP
from bo_robust.models.linear_regression import WeightPosterior, gaussian_weights
from bo_robust.utils.input_checks import check_count, check_oversampling
from bo_robust.utils.linalg import on_cuda
from bo_robust.utils.random import stream
from bo_robust.utils.upstream import DefaultType

ROUNDS = 2  # draws by leverage scores, each with the variances under the dictionary before
GROWTH = 2.0  # conditioning redraws when there are this many times the observations of the last draw, or
UNEXPLAINED = 1.0  # when the dictionary misses more than this many noise variances of k at the points added since


def group_copies(X: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Group points ``n x d`` and observations ``n`` by equal points, into regression data of the distinct points.

    The c observations of one point inform the posterior as their mean does, with 1/c of the noise. Returns the row in
    which each distinct point occurs first, ascending; sqrt(c); sqrt(c) times the mean observation.
    """
    _, label, counts = torch.unique(X, dim=0, return_inverse=True, return_counts=True)
    n, num = X.shape[0], counts.shape[0]
    rows = torch.arange(n, device=X.device)
    # `unique` orders points by coordinates; from here on they are in order of first occurrence.
    first, order = rows.new_full((num,), n).scatter_reduce(0, label, rows, "amin").sort()
    counts = counts.to(y)
    mean = y.new_zeros(num).index_add(0, label, y) / counts
    root = counts.sqrt()
    return first, root[order], (root * mean)[order]


class BKBModel(FeatureGP):
    """A sparse GP for many observations: DTC on a dictionary of observed points drawn by ridge leverage scores.

    The variance does not starve far from the dictionary. With n <= ``min_size`` distinct points the dictionary holds
    all of them, and the model is the exact GP. Copies of a point are counted, not repeated. All else is as in
    :class:`FeatureGP`; with an outcome transform, leverage scores are in units of the transformed observations.

    The draw starts from ``min_size`` points chosen uniformly and takes two rounds. In each, a distinct point with c
    copies enters with probability 1 - (1 - p)^c, p = min(1, q sigma~^2), where sigma~^2 uses all data and the
    dictionary of the round before. A dictionary below ``min_size`` or above ``max_size`` is drawn with the q that gives
    this size; a posterior warns of the latter. The draw depends on the points, the hyperparameters and ``seed`` alone,
    and takes O(n m^2) for a dictionary of m. It happens at construction, and anew for the posterior after the
    hyperparameters or the data changed.

    ``fit_gpytorch_mll`` maximizes the evidence of the exact GP of at most 800 observations, chosen at random
    (:meth:`to_standard_model`), and draws the dictionary once afterwards.

    :meth:`condition_on_observations` keeps the dictionary, at O(n' m^2 + m^3), until n has doubled since the draw, or
    the sum of k(x, x) - ||phi(x)||^2 over the added points exceeds ``noise_var``. Up to there K <= Phi Phi^T +
    noise_var I on them, so ignoring the difference is no worse than doubling the noise variance there. It always
    redraws while n <= ``min_size``. Fantasies never redraw.

    Pending points of :class:`~bo_robust.acquisition.GPUCB` lower the variance as in BBKB's batches (Calandriello et al.
    2020, :meth:`with_pending`). Joint posteriors (q > 1) include what the dictionary misses. ``BKBWidth`` takes
    :attr:`effective_dimension` in place of an information gain, also in ``GPUCB``.

    Args:
        oversampling: q >= 1. The theorems ask for :func:`bo_robust.features.leverage.theory_oversampling`, which keeps
            nearly every point. On 2,000 points under Matérn-5/2 kernels (d_eff 66 and 104), 95 % of the posterior
            standard deviations were within 6 % of the exact ones at the default (worst: 29 % off), within 1 % at 8
            (worst: 7 %) and within 33 % at 2 (worst: a factor of 2.8).
        max_size: Most points in the dictionary, >= 1.
        min_size: Fewest points in the dictionary, if there are as many, >= 1 (at most ``max_size`` counts).
        seed: Seed of the draw, >= 0. Draws for different numbers of observations are independent.

    Raises:
        ValueError: as :class:`FeatureGP`, or if one of these arguments is not as described.

    Example:
        >>> model = BKBModel(X, Y, max_size=200)
        >>> fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        >>> acqf = GPUCB(model, FiniteWidth(num_arms=20_000, delta=0.1))
    """

    _stale = True  # the dictionary was drawn for other hyperparameters or data
    _unexplained = 0.0  # sum of (k - ||phi||^2) / noise_var over the points added since the draw
    _num_drawn = 0  # observations at the last draw
    _num_asked = 0  # points that the last draw would have taken without limits on the size
    _copies: tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]] | None = None
    _pending: tuple[Tensor, BKBModel] | None = None

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        oversampling: float = 4.0,
        max_size: int = 512,
        min_size: int = 128,
        seed: int = 0,
        noise_var: float | None = None,
        likelihood: GaussianLikelihood | None = None,
        covar_module: Kernel | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
    ) -> None:
        check_oversampling(oversampling)
        check_count(1, max_size=max_size, min_size=min_size)
        check_count(0, seed=seed)
        features = NystromMap(size=1)  # until the dictionary is drawn, below
        super().__init__(
            train_X,
            train_Y,
            features,
            noise_var,
            likelihood,
            covar_module,
            mean_module,
            outcome_transform,
            input_transform,
        )
        self.oversampling, self.seed = oversampling, seed
        self.max_size, self.min_size = max_size, min(min_size, max_size)
        self.eval()
        with torch.no_grad():
            self._draw()
        self.train()
        self._stale = False

    @classmethod
    def construct_inputs(  # type: ignore[override]
        cls, training_data: SupervisedDataset, noise_var: float | None = None, **options: Any
    ) -> dict[str, Any]:
        """As in :class:`FeatureGP`, without ``features``; ``options`` may hold the arguments of the draw."""
        inputs = super().construct_inputs(training_data, NystromMap(size=1), noise_var=noise_var)
        del inputs["features"]
        names = ("oversampling", "max_size", "min_size", "seed")
        return inputs | {name: options[name] for name in names if name in options}

    @property
    def dictionary(self) -> Tensor:
        """The inducing points after the input transform, ``m x d``."""
        self._posterior_weights()
        return cast(Tensor, self.features.inducing_points)

    @property
    def dictionary_size(self) -> int:
        """m, the number of inducing points."""
        return self.dictionary.shape[0]

    @property
    def effective_dimension(self) -> Tensor:
        """sum_s sigma~^2(x_s) over the observations, ``batch_shape``: the paper's estimate of d_eff."""
        with torch.no_grad():
            weights = self._posterior_weights()[1]
            points = self.train_inputs[0].movedim(-2, 0).unsqueeze(-2)
            return self._marginal(points)[1].sum(0).squeeze(-1) / weights.noise_var

    def to_standard_model(self) -> SingleTaskGP:
        """The exact GP of the observations, of 800 chosen at random if there are more, with the modules of this model.

        Observations are in the units of this model's transforms; an input transform that learns is shared.
        """
        transform = getattr(self, "input_transform", None)
        if transform is not None and any(parameter.requires_grad for parameter in transform.parameters()):
            self.train()  # train_inputs are now those before the transform
        else:
            self.eval()  # these have passed it
            transform = None
        X = self.train_inputs[0]
        rows = torch.as_tensor(fit_rows(len(X)), device=X.device)
        modules = {"likelihood": self.likelihood, "covar_module": self.covar_module, "mean_module": self.mean_module}
        Y = self.train_targets[rows].unsqueeze(-1)
        with validate_input_scaling(False):  # the scale was checked when this model was made
            return SingleTaskGP(X[rows], Y, outcome_transform=None, input_transform=transform, **modules)

    def custom_fit(self, mll: MarginalLogLikelihood, **options: Any) -> MarginalLogLikelihood:
        """Fit the hyperparameters; ``fit_gpytorch_mll`` calls this, and :class:`BKBModel` says how."""
        exact = type(mll)(self.likelihood, self.to_standard_model())
        fit_gpytorch_mll(exact, **{"optimizer": fit_evidence} | options)
        self.train()  # the dictionary was drawn for other hyperparameters
        return mll.eval()

    def with_pending(self, X_pending: Tensor) -> BKBModel:
        """The model after observing ``k x d`` points of unknown reward, cached; only its variance is valid."""
        if self._pending is None or not torch.equal(self._pending[0], X_pending):
            zeros = X_pending.new_zeros(*X_pending.shape[:-1], 1)
            model = cast(BKBModel, self.condition_on_observations(X_pending, zeros))
            self._pending = X_pending, model
        return self._pending[1]

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, **kwargs: Any) -> BKBModel:
        """As :meth:`condition_on_observations`, on transformed data; see :meth:`FeatureGP.get_fantasy_model`."""
        self._posterior_weights()
        self._copies = self._pending = None  # the model below is a deep copy and must not copy these
        model = cast(BKBModel, super().get_fantasy_model(inputs, targets, **kwargs))
        if model.batch_shape or fantasize.on():
            return model
        with torch.no_grad():
            left = self.covar_module(inputs, diag=True) - self._features(inputs).square().sum(-1)
            model._unexplained += float(left.clamp_min(0.0).sum() / self._posterior_weights()[1].noise_var)
        n = model.train_targets.shape[-1]
        if n <= self.min_size or n > GROWTH * model._num_drawn or model._unexplained > UNEXPLAINED:
            model._clear_cache()
        return model

    def eval(self) -> BKBModel:
        """As in PyTorch; it keeps the dictionary, although BoTorch then sets transformed inputs as training data."""
        stale = self._stale
        super().eval()
        self._stale = stale
        return self

    def train(self, mode: bool = True) -> BKBModel:
        """As in PyTorch; training mode drops the cached posterior, and the next posterior draws a new dictionary."""
        stale = self._stale
        super().train(mode)
        self._stale = stale or mode  # evaluation mode alone changes neither data nor hyperparameters
        return self

    def forward(self, X: Tensor) -> MultivariateNormal:
        """The prior of the approximate model at X, which has passed the input transform in evaluation mode."""
        if not self.training:
            self._posterior_weights()  # draws the dictionary for the present hyperparameters
        return super().forward(X)

    def _posterior_weights(self) -> tuple[NystromWeights | None, WeightPosterior]:
        self.eval()
        if self._cache is None and not self.batch_shape:
            with torch.no_grad():
                if self._stale:
                    self._draw()
                self._solve()
            if self._num_asked > self.max_size:
                warnings.warn(
                    f"the dictionary is cut from {self._num_asked} to max_size = {self.max_size} points: the variance "
                    "is then too large where points are missing. Raise max_size if time allows, lower oversampling "
                    f"({self.oversampling:g}), or look whether noise_var and the lengthscales are too small.",
                    UserWarning,
                    stacklevel=2,
                )
        return super()._posterior_weights()

    def _solve(self) -> None:
        """Cache the posterior under the present dictionary."""
        copies, X = self._grouped(), self.train_inputs[0]
        dictionary = self.features.prepare(self.covar_module, self._symmetric)
        noise_var = self.likelihood.noise.squeeze(-1).clone()
        assert dictionary is not None
        r = dictionary.weights.shape[0]
        precision = torch.diag_embed(noise_var.double().expand(r))
        information = torch.zeros_like(precision[0])
        # In blocks, and summed in float64: noise_var would be lost beside float32 sums over many points.
        block = CUDA_BLOCK if on_cuda(X) else CPU_BLOCK
        for first, root, targets in zip(*(x.split(block) for x in copies), strict=True):
            Phi = (self.features(X[first], self.covar_module, dictionary) * root.unsqueeze(-1)).double()
            precision += Phi.mT @ Phi
            information += Phi.mT @ (targets - root * self.mean_module(X[first])).double()
        self._cache = dictionary, gaussian_weights(precision, information, noise_var)

    def _draw(self) -> None:
        """Draw the dictionary. Needs evaluation mode and no gradient."""
        first, root, _ = self._grouped()
        points = self.train_inputs[0][first]
        num, self._num_asked = points.shape[0], 0
        if num <= self.min_size:
            members = torch.arange(num, device=points.device)
        else:
            members = self._uniform(num, 0, points).topk(self.min_size, largest=False).indices
            for number in range(1, ROUNDS + 1):
                self.features.inducing_points = points[members]
                self._solve()
                scores = self._marginal(points.unsqueeze(-2))[1].squeeze(-1) / self._posterior_weights()[1].noise_var
                members = self._choose(scores, root, number)
        self.features.inducing_points = points[members.sort().values]
        self._cache, self._stale, self._unexplained = None, False, 0.0
        self._num_drawn = self.train_targets.shape[-1]

    def _choose(self, scores: Tensor, root: Tensor, number: int) -> Tensor:
        """The distinct points that enter by these ``scores``, within the limits on the size."""
        uniform = self._uniform(scores.shape[0], number, scores)
        entry = entry_oversampling(scores.double(), uniform, root.double().square())
        self._num_asked = int((entry < self.oversampling).sum())
        size = min(max(self._num_asked, self.min_size), self.max_size, scores.shape[0])
        return entry.topk(size, largest=False).indices

    def _uniform(self, num: int, number: int, template: Tensor) -> Tensor:
        generator = stream(self.seed, "dictionary", number, self.train_targets.shape[-1])
        return torch.as_tensor(generator.random(num), device=template.device)

    def _grouped(self) -> tuple[Tensor, Tensor, Tensor]:
        X, y = self.train_inputs[0], self.train_targets
        if self._copies is None or self._copies[0] is not X or self._copies[1] is not y:
            self._copies = X, y, group_copies(X.detach(), y.detach())
        return self._copies[2]

    def _clear_cache(self) -> None:
        super()._clear_cache()
        self._stale, self._pending = True, None
