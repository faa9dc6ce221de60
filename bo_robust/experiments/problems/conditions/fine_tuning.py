"""Fine-tuning that must serve its worst users too: hyperparameters of one small pretrained network, on digits.

Users bring data that are unlike in three ways. One setting of the hyperparameters is given to all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bo_robust.environments import FiniteEnvironment
from bo_robust.experiments.problems.conditions.base import ConditionsProblem, OverConditions
from bo_robust.experiments.problems.conditions.digits import (
    SIDE,
    load_digits,
    random_layers,
    rotated,
    trained,
)
from bo_robust.linalg import on_cuda
from bo_robust.random import stream
from bo_robust.validation import check_count

# log10 learning rate, log10 pull towards the pretrained weights, label smoothing.
X_BOUNDS = [[-4.0, -4.0, 0.0], [0.0, 0.0, 0.8]]
# Class imbalance (log of how much likelier the first class is than the last), share of wrong labels, rotation.
Z_BOUNDS = [[0.0, 0.0, 0.0], [4.0, 0.4, 60.0]]
# A condition is its largest value times u^power, u uniform: most users have nearly clean data.
Z_POWERS = [1.0, 2.0, 3.0]
LAYERS, CLASSES = (SIDE * SIDE, 32, 10), 10
PRETRAINING_IMAGES, POOL_IMAGES, USER_IMAGES = 600, 600, 100
PRETRAINING: dict[str, Any] = {"rate": 3e-3, "decay": 1e-2, "schedule": (600, 64)}
STEPS, BATCH, MOMENTUM = 40, 20, 0.9
# Networks trained at once: their images stay in a CPU's cache.
CPU_RUNS, CUDA_RUNS = 128, 2**13


@dataclass(frozen=True)
class FineTuning(OverConditions):
    """How well fine-tuned networks serve users with poor data: three decisions, three conditions.

    f is the accuracy, mean over training runs. The decisions x are (log10 learning rate, log10 pull, label smoothing)
    in [-4, 0] x [-4, 0] x [0, 0.8]; the pull is half its strength times the squared distance to the pretrained
    weights, added to the loss. The conditions z are (imbalance, share of wrong labels, rotation in degrees) in [0, 4] x
    [0, 0.4] x [0, 60]. Z is uniform on ``conditions`` users drawn by :func:`users`.

    A network, 64-32-10, is pretrained on 600 upright images. A training run draws 100 of 600 others, class c with
    weight exp(-imbalance * rank(c) / 9) for random ranks, makes labels wrong, turns the images, and plays 40 steps of
    SGD with momentum 0.9 on batches of 20. The accuracy is over the other 597 images, turned alike, with right labels.
    """

    conditions: int = 64  # Number of users, w
    runs: int = 4  # Training runs that f is the mean over
    seed: int = 0  # Seed >= 0 of the split, the pretrained network, the users and the training runs

    def __post_init__(self) -> None:
        check_count(1, conditions=self.conditions, runs=self.runs)
        check_count(0, seed=self.seed)

    def make(self, device: torch.device | str, dtype: torch.dtype) -> ConditionsProblem:
        """The problem; everything is computed on ``device`` and in ``dtype``."""
        x_bounds = torch.tensor(X_BOUNDS, device=device, dtype=dtype)
        return ConditionsProblem(
            name="fine_tuning",
            f=FineTuned(self.runs, self.seed, x_bounds),
            x_bounds=x_bounds,
            z_bounds=torch.tensor(Z_BOUNDS, device=device, dtype=dtype),
            noise_var=2.8e-3,
            alpha=0.1,
            initial=20,
            environment=FiniteEnvironment(users(self.conditions, self.seed, x_bounds)),
            search_points=64,
            search_tol=0.05,
            notes=(
                "Ours, not the paper's: scikit-learn's 8 x 8 digits (UCI, Alpaydin & Kaynak 1998). noise_var is the "
                "variance of the accuracy between training runs, mean over 48 x and 16 users of seed 1000 (8 runs "
                "each). The optimum is found on 64 x and refined to 0.05 of the box."
            ),
        )


def users(n: int, seed: int, like: Tensor, purpose: str = "users") -> Tensor:
    """Draw n conditions ``n x 3``; another ``purpose``, as "held out", gives others. Kind and place are ``like``'s."""
    u = torch.from_numpy(stream(seed, purpose, 0).random((n, 3)))
    return (u.new_tensor(Z_BOUNDS[1]) * u ** u.new_tensor(Z_POWERS)).to(like)


class FineTuned:
    """Mean accuracy over training runs 0, ..., ``runs`` - 1: ``... x 6`` to ``...``."""

    def __init__(self, runs: int, seed: int, like: Tensor) -> None:
        self.runs, self.seed = runs, seed
        generator = torch.Generator().manual_seed(seed)
        images, labels = load_digits()
        order = torch.randperm(len(images), generator=generator)
        sizes = [PRETRAINING_IMAGES, POOL_IMAGES, len(images) - PRETRAINING_IMAGES - POOL_IMAGES]
        parts = zip(images[order].to(like).split(sizes), labels[order].to(like.device).split(sizes), strict=True)
        pretraining, self.pool, self.test = parts
        layers = trained(random_layers(LAYERS, generator, like), pretraining, **PRETRAINING, generator=generator)
        self.pretrained = [p for weight, bias in layers for p in (weight, bias.unsqueeze(0))]
        self.draws: dict[int, tuple[Tensor, ...]] = {}

    def __call__(self, X: Tensor) -> Tensor:
        rows = X.reshape(-1, 1, X.shape[-1]).expand(-1, self.runs, -1).flatten(0, 1)
        every = torch.arange(self.runs).repeat(len(rows) // self.runs)
        return self.scores(rows, every).reshape(*X.shape[:-1], self.runs).mean(-1)

    def scores(self, X: Tensor, runs: Tensor) -> Tensor:
        """The accuracy of one training run a row, ``n x 6`` to ``n``, given the numbers >= 0 of the runs, ``n``.

        A number stands for what is random in a run: its images, wrong labels and batches. It means the same for all x
        and z.
        """
        size = CUDA_RUNS if on_cuda(X) else CPU_RUNS
        return torch.cat([self._scores(a, b) for a, b in zip(X.split(size), runs.split(size), strict=True)])

    def _scores(self, X: Tensor, runs: Tensor) -> Tensor:
        rate, pull, smoothing, imbalance, wrong, degrees = X.reshape(-1, 6, 1).unbind(1)
        drawn = [self._draw(run) for run in runs.tolist()]
        luck, rank, flip, shift, batches = (torch.stack(column).to(X.device) for column in zip(*drawn, strict=True))
        images, labels = self.pool
        # The largest of log weight + Gumbel noise are a draw without replacement, one for all weights.
        picked = (luck - imbalance * rank[:, labels] / (CLASSES - 1)).topk(USER_IMAGES).indices
        given = torch.where(flip < wrong, labels[picked] + shift, labels[picked]) % CLASSES
        targets = functional.one_hot(given, CLASSES).to(X) * (1.0 - smoothing.unsqueeze(-1))
        targets = targets + smoothing.unsqueeze(-1) / CLASSES
        # Turning is linear, so that a matrix turns all images of a user.
        turn = rotated(torch.eye(SIDE * SIDE).to(X), degrees.squeeze(-1))
        mine = images[picked] @ turn
        steps = [(_rows(mine, batch), _rows(targets, batch)) for batch in batches.unbind(1)]
        W, *rest = self._tuned(steps, 10.0 ** rate.unsqueeze(-1), 10.0 ** pull.unsqueeze(-1))
        right = _logits([turn @ W, *rest], self.test[0].expand(len(X), -1, -1)).argmax(-1) == self.test[1]
        return right.to(X).mean(-1)

    def _tuned(self, steps: Sequence[tuple[Tensor, Tensor]], rate: Tensor, pull: Tensor) -> list[Tensor]:
        """Weights after SGD on cross entropy plus the pull, given images and targets of every step."""
        start = [p.expand(len(rate), -1, -1) for p in self.pretrained]
        speeds = [torch.zeros_like(p) for p in start]
        weights = [p.clone() for p in start]
        for images, targets in steps:
            with torch.enable_grad():
                weights = [p.detach().requires_grad_() for p in weights]
                logits = _logits(weights, images)
                loss = -(targets * logits.log_softmax(-1)).sum() / BATCH
                slopes = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                for i, slope in enumerate(slopes):
                    speeds[i] = MOMENTUM * speeds[i] + slope + pull * (weights[i] - start[i])
                    weights[i] = weights[i] - rate * speeds[i]
        return [p.detach() for p in weights]

    def _draw(self, run: int) -> tuple[Tensor, ...]:
        """Gumbel noise of the pool, ranks of the classes, labels to flip and by how much, batches."""
        if run not in self.draws:
            random = stream(self.seed, "training run", run)
            parts = (
                random.gumbel(size=POOL_IMAGES),
                random.permutation(CLASSES),
                random.random(USER_IMAGES),
                random.integers(1, CLASSES, USER_IMAGES),
                random.integers(USER_IMAGES, size=(STEPS, BATCH)),
            )
            self.draws[run] = tuple(torch.from_numpy(part) for part in parts)
        return self.draws[run]


def _rows(table: Tensor, rows: Tensor) -> Tensor:
    """Rows ``n x k`` of tables ``n x m x d``."""
    return table.gather(1, rows.unsqueeze(-1).expand(-1, -1, table.shape[-1]))


def _logits(weights: Sequence[Tensor], images: Tensor) -> Tensor:
    """Logits of n networks, each on images of its own: ``n x m x 64`` to ``n x m x 10``."""
    W, b, V, c = weights
    return torch.baddbmm(c, torch.baddbmm(b, images, W).relu(), V)
