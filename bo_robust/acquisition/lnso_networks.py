"""The small networks of :mod:`bo_robust.acquisition.lnso`: one per start, all evaluated and fitted as one batch.

A network has two hidden layers of 30 sigmoid units and one output. Its parameters are one row: W1 (d x 30), b1, W2 (30
x 30), b2, w3 (30), b3. Gradients are written out, because autograd costs several times the arithmetic at this size.
"""

import math

import torch
from torch import Tensor

HIDDEN = 30
ADAM = (0.9, 0.999, 1e-8)


def first_networks(s: int, d: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """The networks before any fit, ``s x parameters``: the same for every start, with output zero."""

    def normal(count: int) -> Tensor:
        return torch.randn(count, generator=generator, dtype=like.dtype, device=like.device)

    first, biases = 2.0 * normal(d * HIDDEN), normal(HIDDEN)
    second = 2.0 / math.sqrt(HIDDEN) * normal(HIDDEN * HIDDEN)
    rest = like.new_zeros(2 * HIDDEN + 1)
    return torch.cat([first, biases, second, rest]).repeat(s, 1)


def loss_gradient(networks: Tensor, x: Tensor, values: Tensor, alpha: float) -> Tensor:
    """Gradient of each network's mean pinball loss in its parameters, ``s x parameters``.

    ``x`` holds inputs, ``s x n x d``, and ``values`` u at every input under every draw of Z, ``s x n x w``.
    """
    parameters = _unpacked(networks, x.shape[-1])
    _, _, W2, _, w3, _ = parameters
    first, second, out = _layers(parameters, x)
    # The slope of rho_alpha(u - g) in g is 1 - alpha where u < g, else -alpha; mean over draws and points.
    d_out = ((values < out).to(out).mean(-1, keepdim=True) - alpha) / x.shape[1]
    d_second = (d_out * w3.mT) * (second * (1.0 - second))
    d_first = (d_second @ W2.mT) * (first * (1.0 - first))
    pieces = []
    for inputs, errors in ((x, d_first), (first, d_second), (second, d_out)):
        pieces += [(inputs.mT @ errors).flatten(1), errors.sum(1)]
    return torch.cat(pieces, 1)


def input_gradient(networks: Tensor, x: Tensor) -> Tensor:
    """Gradient of each network in its own input: ``s x d`` to ``s x d``."""
    parameters = _unpacked(networks, x.shape[-1])
    W1, _, W2, _, w3, _ = parameters
    first, second, _ = _layers(parameters, x.unsqueeze(1))
    d_second = w3.mT * (second * (1.0 - second))
    d_first = (d_second @ W2.mT) * (first * (1.0 - first))
    return (d_first @ W1.mT).squeeze(1)


def adam_direction(moments: tuple[Tensor, Tensor], gradient: Tensor, step: int) -> Tensor:
    """Adam's step at rate 1 (Kingma & Ba 2015); ``step`` counts from 0.

    ``moments`` are the first and second one, of the shape of the gradient, zero at first; they are updated in place.
    """
    beta1, beta2, eps = ADAM
    first, second = moments
    first.lerp_(gradient, 1.0 - beta1)
    second.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
    root = (second / (1.0 - beta2 ** (step + 1))).sqrt_().add_(eps)
    return first / (root * (1.0 - beta1 ** (step + 1)))


def _unpacked(networks: Tensor, d: int) -> tuple[Tensor, ...]:
    """Views of W1, b1, W2, b2, w3, b3, each ``s x rows x columns``."""
    sizes = (d * HIDDEN, HIDDEN, HIDDEN * HIDDEN, HIDDEN, HIDDEN, 1)
    rows = (d, 1, HIDDEN, 1, HIDDEN, 1)
    return tuple(p.unflatten(1, (r, -1)) for p, r in zip(networks.split(sizes, 1), rows, strict=True))


def _layers(parameters: tuple[Tensor, ...], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Both hidden layers and the output at ``s x n x d``."""
    W1, b1, W2, b2, w3, b3 = parameters
    first = torch.baddbmm(b1, x, W1).sigmoid_()
    second = torch.baddbmm(b2, first, W2).sigmoid_()
    return first, second, torch.baddbmm(b3, second, w3)
