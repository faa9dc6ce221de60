import pytest
import torch

from bo_robust.acquisition.lnso import pinball_loss
from bo_robust.acquisition.lnso_networks import adam_direction, first_networks, input_gradient, loss_gradient

ALPHA = 0.1


@pytest.fixture
def tkwargs(device):
    return {"dtype": torch.float64, "device": device}


@pytest.mark.parametrize("d", [1, 3])
def test_gradients_in_closed_form_are_those_of_autograd(tkwargs, d):
    generator = torch.Generator(tkwargs["device"]).manual_seed(0)
    x = torch.rand(4, 6, d, generator=generator, **tkwargs)
    u = torch.randn(4, 6, 5, generator=generator, **tkwargs)
    networks = first_networks(4, d, generator, x)
    networks = networks + torch.randn(networks.shape, generator=generator, **tkwargs)
    expected_parts = (d * 30, 30, 900, 30, 30, 1)
    assert networks.shape == (4, sum(expected_parts))

    def outputs(networks, x):
        W1, b1, W2, b2, w3, b3 = networks.split(expected_parts, -1)
        first = torch.sigmoid(x @ W1.view(-1, d, 30) + b1.unsqueeze(1))
        second = torch.sigmoid(first @ W2.view(-1, 30, 30) + b2.unsqueeze(1))
        return (second @ w3.unsqueeze(-1)).squeeze(-1) + b3

    theta = networks.clone().requires_grad_()
    loss = pinball_loss(u - outputs(theta, x).unsqueeze(-1), ALPHA).mean((1, 2)).sum()
    (expected,) = torch.autograd.grad(loss, theta)
    torch.testing.assert_close(loss_gradient(networks, x, u, ALPHA), expected)
    at = x[:, 0].clone().requires_grad_()
    (expected,) = torch.autograd.grad(outputs(networks, at.unsqueeze(1)).sum(), at)
    torch.testing.assert_close(input_gradient(networks, x[:, 0]), expected)


def test_adam_is_that_of_torch(tkwargs):
    theta = torch.tensor([[1.0, -2.0, 0.5]], **tkwargs)
    ours, theirs = theta.clone(), theta.clone().requires_grad_()
    adam = torch.optim.Adam([theirs], lr=0.1)
    moments = torch.zeros_like(theta), torch.zeros_like(theta)
    for step in range(5):
        ours -= 0.1 * adam_direction(moments, 2 * ours + step, step)
        theirs.grad = 2 * theirs.detach() + step
        adam.step()
    torch.testing.assert_close(ours, theirs.detach())
