import pytest
import torch
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood

from bo_robust.models import FeatureGP, FourierMap, NystromMap
from tests.problems import points, rbf, rewards

MAPS = ["fourier", "nystrom"]

pytestmark = [
    pytest.mark.filterwarnings("ignore:Data .outcome observations. is not standardized"),
    pytest.mark.filterwarnings("ignore:Non-strict enforcement of botorch tensor conventions"),
]


def make(tkwargs, kind="fourier", n=12, nodes=16, **kwargs):
    X = points(tkwargs, n, seed=1)
    kwargs.setdefault("covar_module", rbf(tkwargs) if kind == "fourier" else ScaleKernel(MaternKernel(2.5)))
    kwargs = ({} if "likelihood" in kwargs else {"noise_var": 0.3}) | kwargs
    chosen = FourierMap(nodes) if kind == "fourier" else NystromMap(points(tkwargs, 8, seed=2))
    return FeatureGP(X, rewards(X), chosen, mean_module=ZeroMean(), outcome_transform=None, **kwargs)


def test_nystrom_against_dense_matrices(tkwargs):
    """DTC (Quinonero-Candela & Rasmussen 2005): Q for every covariance but the prior's own."""
    model, X = make(tkwargs, "nystrom"), points(tkwargs, 7)
    Z, k = model.features.inducing_points, lambda a, b: model.covar_module(a, b).to_dense().detach()
    train = model.train_inputs[0]

    def q(a, b):
        return k(a, Z) @ torch.linalg.solve(k(Z, Z), k(Z, b))

    C = q(train, train) + 0.3 * torch.eye(12, **tkwargs)
    mean = q(X, train) @ torch.linalg.solve(C, model.train_targets)
    covariance = k(X, X) - q(X, train) @ torch.linalg.solve(C, q(train, X))
    posterior = model.posterior(X)
    torch.testing.assert_close(posterior.mean.squeeze(-1), mean, atol=1e-9, rtol=0)
    torch.testing.assert_close(posterior.distribution.covariance_matrix, covariance, atol=1e-9, rtol=0)
    single = model.posterior(X.unsqueeze(-2))
    torch.testing.assert_close(single.mean.flatten(), mean, atol=1e-9, rtol=0)
    torch.testing.assert_close(single.variance.flatten(), covariance.diagonal(), atol=1e-9, rtol=0)
    far = model.posterior(torch.full((1, 2), 50.0, **tkwargs)).variance  # no variance starvation
    torch.testing.assert_close(far, k(X[:1], X[:1]), atol=1e-9, rtol=0)


@pytest.mark.parametrize("kind", MAPS)
def test_evidence_and_its_gradients_are_those_of_dense_matrices(tkwargs, kind):
    """Of more features than rewards (Fourier) and of fewer (Nystrom)."""
    model = make(tkwargs, kind, n=9, nodes=8, likelihood=GaussianLikelihood())
    model.train()
    prior = model(model.train_inputs[0])
    dense = model.likelihood(prior).covariance_matrix
    expected = torch.distributions.MultivariateNormal(torch.zeros(9, **tkwargs), dense).log_prob(model.train_targets)
    torch.testing.assert_close(model.log_evidence(), expected, atol=1e-9, rtol=0)
    mll = ExactMarginalLogLikelihood(model.likelihood, model)  # no priors here: -evidence / n, as of SingleTaskGP
    torch.testing.assert_close(model.compute_custom_loss(mll), -mll(prior, model.train_targets), atol=1e-9, rtol=0)
    gradients = []
    for loss in (model.compute_custom_loss(mll), -mll(model(model.train_inputs[0]), model.train_targets)):
        model.zero_grad()
        loss.backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(*gradients, atol=1e-7, rtol=0)


def test_construct_inputs(tkwargs):
    X, chosen = points(tkwargs, 5), FourierMap(4)

    def data(**noise):
        return SupervisedDataset(X, rewards(X), feature_names=["a", "b"], outcome_names=["y"], **noise)

    noisy = data(Yvar=torch.full((5, 1), 0.1, **tkwargs))
    assert FeatureGP.construct_inputs(data(), chosen).keys() == {"train_X", "train_Y", "features"}
    inputs = FeatureGP.construct_inputs(noisy, chosen, task_feature=0, categorical_features={0: 2})
    assert inputs["features"] is chosen
    noise = FeatureGP(**inputs).likelihood.noise.item()  # of standardized rewards
    assert noise == pytest.approx(0.1 / float(rewards(X).var()))
    assert FeatureGP.construct_inputs(noisy, {"kind": "fourier", "nodes": 4}, noise_var=0.5)["noise_var"] == 0.5
    inputs = FeatureGP.construct_inputs(data(), {"kind": "nystrom", "inducing_points": X.tolist()})
    torch.testing.assert_close(FeatureGP(**inputs).features.inducing_points, X)
    with pytest.raises(ValueError, match="one noise variance for all observations; pass noise_var"):
        FeatureGP.construct_inputs(data(Yvar=torch.rand(5, 1, **tkwargs)), chosen)
