"""Scikit-learn's 8 x 8 digits (UCI, Alpaydin & Kaynak 1998), and small networks that are trained on them."""

import importlib
import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

SIDE = 8
Layers = Sequence[tuple[Tensor, Tensor]]


def rotated(images: Tensor, degrees: Tensor) -> Tensor:
    """Images (``n x 64``) turned about their centre by each of ``w`` angles, bilinear, zero outside, ``w x n x 64``."""
    angle = torch.deg2rad(degrees)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    turn = torch.stack([torch.stack([cos, -sin, zero], -1), torch.stack([sin, cos, zero], -1)], dim=1)
    places = functional.affine_grid(turn, [len(degrees), 1, SIDE, SIDE], align_corners=False)
    # The images travel as channels: one set of places serves all of them.
    pictures = images.reshape(1, -1, SIDE, SIDE).expand(len(degrees), -1, -1, -1)
    return functional.grid_sample(pictures, places, align_corners=False).flatten(2)


def load_digits() -> tuple[Tensor, Tensor]:
    """Images ``1797 x 64`` in [0, 1], labels ``1797``."""
    try:
        datasets = importlib.import_module("sklearn.datasets")
    except ImportError as error:
        raise ImportError(
            "this problem reads the images bundled in scikit-learn, which is not installed: run "
            'pip install "bo-robust[digits]" or pip install scikit-learn.'
        ) from error
    table = datasets.load_digits()
    return torch.from_numpy(table.data) / 16.0, torch.from_numpy(table.target).long()


def random_layers(sizes: Sequence[int], generator: torch.Generator, like: Tensor) -> Layers:
    """He initialisation, drawn on the CPU so that every device starts alike."""
    return [
        (
            (torch.randn(a, b, generator=generator, dtype=torch.float64) * math.sqrt(2.0 / a)).to(like),
            like.new_zeros(b),
        )
        for a, b in itertools.pairwise(sizes)
    ]


def trained(
    layers: Layers,
    data: tuple[Tensor, Tensor],
    rate: float,
    decay: float,
    schedule: tuple[int, int],
    generator: torch.Generator,
) -> Layers:
    """Copies of the layers, trained by AdamW on cross entropy; the ``schedule`` is (steps, images per step)."""
    images, labels = data
    with torch.enable_grad():
        mine = [(W.detach().clone().requires_grad_(), b.detach().clone().requires_grad_()) for W, b in layers]
        optimizer = torch.optim.AdamW([p for layer in mine for p in layer], lr=rate, weight_decay=decay)
        batches = torch.randint(len(images), schedule, generator=generator).to(images.device)
        for picked in batches:
            optimizer.zero_grad()
            functional.cross_entropy(_scores(mine, images[picked]), labels[picked]).backward()
            optimizer.step()
    return [(weight.detach(), bias.detach()) for weight, bias in mine]


def _scores(layers: Layers, images: Tensor) -> Tensor:
    """The network's scores, ``n x 64`` to ``n x classes``, with ReLU between layers."""
    x = images
    for i, (weight, bias) in enumerate(layers):
        x = torch.addmm(bias, x if i == 0 else x.relu(), weight)
    return x
