"""Where Ax searches for points: a random one, and a space of choices in one column for each parameter."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from ax.adapter.transforms.one_hot import OH_PARAM_INFIX
from ax.generators.random.sobol import SobolGenerator
from torch import Tensor


def random_point(
    digest: Any,
    seed: int,
    inequality_constraints: Any = None,
    equality_constraints: Any = None,
    fixed_features: Any = None,
    rounding_func: Any = None,
    **_: Any,
) -> Tensor:
    """A point ``1 x d`` of scrambled Sobol; options are those of Ax' ``Acquisition.optimize``."""
    d = len(digest.feature_names)
    limits = _matrices(inequality_constraints, d, -1.0), _matrices(equality_constraints, d, 1.0)
    # Where rejection finds nothing, Ax samples the polytope.
    sobol = SobolGenerator(seed=seed, deduplicate=False, fallback_to_sample_polytope=True)
    points, _weights = sobol.gen(1, digest, *limits, fixed_features=dict(fixed_features or {}))
    x = torch.from_numpy(points)
    return x if rounding_func is None else rounding_func(x[0]).unsqueeze(0)


def _matrices(constraints: Any, d: int, sign: float) -> tuple[np.ndarray, np.ndarray] | None:
    """BoTorch's rows (columns, weights, bound), whose sums are at least the bound, as Ax' A x <= b for sign -1."""
    if not constraints:
        return None
    A, b = np.zeros((len(constraints), d)), np.zeros((len(constraints), 1))
    for i, (columns, weights, bound) in enumerate(constraints):
        A[i, columns.cpu().numpy()], b[i] = sign * weights.cpu().numpy(), sign * bound
    return A, b


class Columns(NamedTuple):
    """The columns of Ax' search by parameter; ``groups`` has the one-hot columns of an unordered choice together."""

    groups: list[list[int]]
    finite: bool  # every parameter has values of its own, as the user gave it

    @classmethod
    def of(cls, digest: Any) -> "Columns":
        names, discrete = digest.feature_names, digest.discrete_choices

        def parameter(i: int) -> str:
            return str(names[i] if i in discrete else names[i].rpartition(OH_PARAM_INFIX)[0] or names[i])

        groups = [list(group) for _, group in groupby(range(len(names)), parameter)]
        return cls(groups, all(group[0] in discrete or len(group) > 1 for group in groups))

    @property
    def counts(self) -> dict[int, int]:
        """The number of values of each unordered choice, by its place among the parameters."""
        return {j: len(group) for j, group in enumerate(self.groups) if len(group) > 1}

    def coded(self, X: Tensor | None) -> Tensor | None:
        """Points with one column per parameter, where an unordered choice is the number of its value."""
        if X is None:
            return None
        parts = [X[..., group].argmax(-1).to(X) if len(group) > 1 else X[..., group[0]] for group in self.groups]
        return torch.stack(parts, -1)

    def coded_digest(self, digest: Any) -> Any:
        """The description of the search space in these columns."""
        choices: dict[int, Any] = {j: list(range(count)) for j, count in self.counts.items()}
        place = {group[0]: j for j, group in enumerate(self.groups) if len(group) == 1}
        choices |= {place[i]: values for i, values in digest.discrete_choices.items()}
        return replace(
            digest,
            feature_names=[digest.feature_names[group[0]] for group in self.groups],
            bounds=[(min(values), max(values)) for _, values in sorted(choices.items())],
            discrete_choices=dict(sorted(choices.items())),
            ordinal_features=[place[i] for i in digest.ordinal_features],
            categorical_features=sorted([*self.counts, *(place[i] for i in digest.categorical_features)]),
            task_features=[place[i] for i in digest.task_features],
            fidelity_features=[place[i] for i in digest.fidelity_features],
            target_values={place[i]: value for i, value in digest.target_values.items()},
        )

    def coded_options(self, options: Mapping[str, Any], encode: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        """Constraints, fixed columns and rounding of a search in these columns; ``encode`` leads back from them."""
        place = {i: j for j, group in enumerate(self.groups) for i in group}
        fixed: dict[int, float] = {}
        for i, value in (options.get("fixed_features") or {}).items():
            group = self.groups[place[i]]
            if len(group) == 1:
                fixed[place[i]] = value
            elif value > 0.5:
                fixed[place[i]] = group.index(i)
        limits = [
            (columns.new_tensor([place[i] for i in columns.tolist()]), coefficients, bound)
            for columns, coefficients, bound in options.get("inequality_constraints") or []
        ]
        rounding = options.get("rounding_func")
        rounded = None if rounding is None else lambda X: self.coded(rounding(encode(X)))
        return {"fixed_features": fixed, "inequality_constraints": limits or None, "rounding_func": rounded}
