"""The search for the point of the largest acquisition in a space."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.monte_carlo import SampleReducingMCAcquisitionFunction
from botorch.exceptions.errors import OptimizationGradientError
from botorch.optim import optimize_acqf
from botorch.optim.optimize_mixed import optimize_acqf_mixed_alternating
from botorch.utils.sampling import draw_sobol_samples
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor
from torch.nn.functional import one_hot

from bo_robust.study.failures import WhereTrialsSucceed
from bo_robust.study.settings import CommonSettings
from bo_robust.study.space import Box, Categorical, Point
from bo_robust.study.steps import seeded

CHUNK = 4096  # points evaluated at once


@contextmanager
def expected_ignored() -> Iterator[None]:
    """Ignore two warnings of good searches, about which a user can do nothing.

    Where points were played, or lie close, the covariance of f there is singular to rounding: linear_operator adds the
    jitter that it takes. And line searches end at good points, where rounding or a kink ends them: BoTorch's mixed
    search tries once more, or goes on from there, and has no option to do so in silence.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A not p.d., added jitter", NumericalWarning)
        warnings.filterwarnings("ignore", "Optimization failed (in|on)", RuntimeWarning)
        yield


def maximise_among(acqf: AcquisitionFunction, points: Sequence[Mapping[str, Any]], X: Tensor) -> tuple[Point, float]:
    """Return the best of finitely many points, with coordinates ``n x d`` in the unit cube, and its value.

    Among 50,000 arms (15 rewards, d = 5, one core) that takes 2 s for the default's expected improvement, whose time
    goes into its 512 draws at each arm, and .1 s for GP-UCB.
    """
    inner = acqf.acqf if isinstance(acqf, WhereTrialsSucceed) else acqf
    if isinstance(inner, SampleReducingMCAcquisitionFunction):
        # Its smooth maximum over q = 1 points is the value of the one, to the bit, and takes half of the time.
        inner._q_reduction = partial(torch.squeeze, dim=-1)
    with torch.no_grad(), expected_ignored():
        values = torch.cat([acqf(chunk) for chunk in X.unsqueeze(-2).split(CHUNK)])
    row = int(values.argmax())
    return dict(points[row]), float(values[row])


def maximise(
    acqf: AcquisitionFunction, space: Box, settings: CommonSettings, seed: int, best: Tensor | None
) -> tuple[Point, float]:
    """Return the best point found in a box of more than finitely many points, and its value.

    A box without discrete parameters is searched from random starts and, where ``best`` has any, from about its points
    ``n x d`` in the unit cube. Discrete parameters take their own values only: between these the variance stays largest
    for ever at the points farthest from all of them, and rounding brings every such point back to a value that was
    played.
    """
    search: dict[str, Any] = {"num_restarts": settings.restarts, "raw_samples": settings.raw_samples}
    with seeded(seed, settings.device), expected_ignored():
        if any(p.values() is not None for p in space.parameters.values()):
            return _maximise_mixed(acqf, space, settings.device, search)
        bounds = torch.zeros(2, len(space.columns), dtype=torch.float64, device=settings.device)
        bounds[1] = 1.0
        options: dict[str, Any] = {"seed": seed % 2**31}
        if best is not None:
            if getattr(acqf, "X_baseline", None) is None:
                acqf.X_baseline = best  # where BoTorch looks for them
            options |= {"sample_around_best": True, "sample_around_best_sigma": 0.05}
        # The kinks of a value at risk end line searches, at good points: so there is no second try.
        try:
            x, value = optimize_acqf(acqf, bounds, q=1, options=options, retry_on_optimization_warning=False, **search)
        except OptimizationGradientError:  # beside believed rewards of 1e30 the slopes overflow, the values do not
            starts = draw_sobol_samples(bounds, settings.raw_samples, 1, seed=options["seed"])
            with torch.no_grad():
                value, row = acqf(starts).max(0)
            x = starts[row]
    return space.decode(x[0].tolist()), float(cast(Tensor, value))


def _maximise_mixed(acqf: AcquisitionFunction, box: Box, device: str, search: dict[str, Any]) -> tuple[Point, float]:
    ends: list[tuple[float, float]] = []
    choices: dict[int, list[float]] = {}
    grids: dict[int, list[float]] = {}
    for i, p in enumerate(box.parameters.values()):
        values = p.values()
        if isinstance(p, Categorical):
            choices[i] = [float(k) for k in range(len(p.choices))]
        elif values is not None:
            grids[i] = [p.encode(value)[0] for value in values]
        numbers = choices.get(i) or grids.get(i) or [0.0, 1.0]
        ends.append((numbers[0], numbers[-1]))
    bounds = torch.tensor(ends, dtype=torch.float64, device=device).T
    encoded = _Encoded(acqf, {i: len(numbers) for i, numbers in choices.items()})
    x, value = optimize_acqf_mixed_alternating(encoded, bounds, grids, choices, **search)
    return box.decode(encoded.columns(x)[0].tolist()), float(cast(Tensor, value))


class _Encoded(AcquisitionFunction):
    """An acquisition on one column per parameter, where a choice is its number; ``choices`` says of how many."""

    def __init__(self, acqf: AcquisitionFunction, choices: dict[int, int]) -> None:
        super().__init__(model=acqf.model)
        self.set_X_pending(None)  # the wrapped acquisition knows them
        self.acqf, self._choices = acqf, choices

    def columns(self, X: Tensor) -> Tensor:
        """The columns that the model knows, one per choice of a categorical parameter."""
        parts = [
            one_hot(x.round().long(), self._choices[i]).to(X) if i in self._choices else x.unsqueeze(-1)
            for i, x in enumerate(X.unbind(-1))
        ]
        return torch.cat(parts, -1)

    def forward(self, X: Tensor) -> Tensor:
        return self.acqf(self.columns(X))
