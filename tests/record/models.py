"""Statistics and posteriors of RobustGP, with scales, replicates, known noise and several outputs."""

from typing import Any

import torch
from botorch.models import ModelListGP

from bo_robust import OutlierPrior, RobustGP, suggest_replicates
from tests.problems import fit
from tests.record.problems import recipes, square, yields
from tests.record.values import numbers

STATISTICS = ("inlier_mask", "inlier_probability", "loo_zscore", "loo_zscore_limit", "held_mask")
STATISTICS += ("confirmed_by_replicate", "outliers_detected")


def statistics(model: RobustGP, X: torch.Tensor) -> dict[str, Any]:
    """All that a fitted model says in public, with its posterior at X."""
    posterior, predicted = model.posterior(X), model.predict(X)
    found = {name: numbers(getattr(model, name)) for name in STATISTICS}
    for maximize in (True, False):
        found[f"recommendable {maximize}"] = numbers(model.recommendable(maximize))
        found[f"reliable {maximize}"] = numbers(model.reliable_mask(maximize))
    replicates = suggest_replicates(model)
    return found | {
        "scale": numbers(list(model.outcome_scale)),
        "replicates": None if replicates is None else numbers(replicates),
        "found": {
            "hyperparameters": {name: numbers(value.detach()) for name, value in model.named_parameters()},
            "mean": numbers(posterior.mean.detach()),
            "variance": numbers(posterior.variance.detach()),
            "covariance": numbers(posterior.distribution.covariance_matrix.detach()),
            "predicted": numbers(list(predicted)),
        },
    }


def waves(n=16, noise=0.1, seed=1, wrong=(3, 9)):
    X = torch.tensor(square(n, seed), dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    Y = torch.sin(5.0 * X[:, :1]) + X[:, 1:] + noise * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    Y[list(wrong)] += 5.0
    return X, Y


def table(seed=3, digits=10.0):
    given = recipes(seed)
    X = torch.tensor(given["start"], dtype=torch.float64)
    Y = torch.tensor([[yields(x)] for x in given["start"]], dtype=torch.float64)
    Y[next(iter(given["wrong"]))] *= digits
    return X, Y


def of(X, Y, Yvar=None, **options):
    model = fit(RobustGP(X, Y, Yvar, **options))
    at = X[:4] + 0.05 * (X.amax(0) - X.amin(0))
    return statistics(model, at)


def plain():
    return of(*waves())


def without_outliers():
    return of(*waves(wrong=()))


def single_precision():
    X, Y = waves()
    return of(X.float(), Y.float())


def replicates():
    X, Y = waves()
    return of(torch.cat([X, X[3:4], X[9:10]]), torch.cat([Y, Y[3:4] + 0.05, Y[9:10] - 5.0]))


def known_noise():
    X, Y = waves()
    return of(X, Y, torch.full_like(Y, 0.01))


def other_prior():
    return of(*waves(), outlier_share=0.2, outlier_density=0.1, maximize=False)


def limits():
    return of(*waves(), outcome_limits=(None, 4.0))


def given_scale():
    return of(*table(), outcome_scale=None)


def learnt_scale():
    return of(*table(digits=1.0))


def learnt_scale_of_decades():
    X, Y = waves(20)
    return of(X, (2.0 * Y).exp())


def held():
    return of(*table())


def held_and_replicate():
    X, Y = table()
    row = Y.argmax()
    return of(torch.cat([X, X[row : row + 1]]), torch.cat([Y, Y[row : row + 1] / 10.0]))


def bump():
    """A local deviation of f, which is no set of gross errors."""
    X, Y = waves(30, noise=0.02, seed=2, wrong=())
    return of(X, Y + 3.0 * (-((X - 0.5) ** 2).sum(-1, keepdim=True) / 0.01).exp())


def several_outputs():
    X, Y = waves()
    parts = [RobustGP(X, Y), RobustGP(X, Y.flip(0), outcome_scale=None)]
    model = ModelListGP(*[fit(part) for part in parts])
    found = {str(i): statistics(part, X[:3] + 0.01) for i, part in enumerate(parts)}
    mean = model.posterior(X[:2] + 0.02).mean.detach()
    return found | {"found": numbers(mean), "replicates": numbers(suggest_replicates(model))}


def grown():
    """Observations added and data replaced after a fit, and a state loaded."""
    X, Y = waves()
    model = fit(RobustGP(X, Y))
    model.posterior(X[:1])  # which GPyTorch asks for
    more = model.condition_on_observations(X[:2] + 0.03, Y[:2])
    loaded = RobustGP(X, Y)
    loaded.load_state_dict(model.state_dict())
    found = {"loaded": statistics(loaded, X[:3] + 0.01)}
    found["found"] = numbers(more.posterior(X[:3]).mean.detach())
    model.detect_outliers()
    found["again"] = statistics(model, X[:3] + 0.01)
    model.outlier_prior = OutlierPrior(share=0.02)
    model.detect_outliers(restandardize=False)
    return found | {"another prior": statistics(model, X[:3] + 0.01)}


MODELS = {
    case.__name__.replace("_", " "): case
    for case in (
        *(plain, without_outliers, single_precision, replicates, known_noise, other_prior, limits, given_scale),
        *(learnt_scale, learnt_scale_of_decades, held, held_and_replicate, bump, several_outputs, grown),
    )
}
