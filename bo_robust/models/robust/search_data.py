"""The data of a ``RobustGP`` as the search for outliers takes them."""

from __future__ import annotations

import copy
from functools import reduce
from typing import Any, cast

import numpy as np
import torch
from botorch.models import SingleTaskGP
from torch import Tensor

from bo_robust.models.marginal_likelihood import as_array, evidence_of
from bo_robust.models.robust.posterior import standardize_of
from bo_robust.models.robust.search import SearchData
from bo_robust.models.training_data import nearly_equal
from bo_robust.utils.linalg import gpu_for


def points_seen(model: Any) -> Tensor:
    """All points of a ``RobustGP`` as its kernel sees training points; an input transform learns nothing."""
    transform: Any = getattr(model, "input_transform", None)
    if transform is None:
        return cast(Tensor, model.train_X_all)
    training = transform.training
    with torch.no_grad():
        seen: Tensor = transform.eval().preprocess_transform(model.train_X_all)
    transform.train(training)
    return seen


def replicates_among(X: Tensor, seen: Tensor) -> Tensor:
    """Which other rows are of the same point, ``n x n`` bool, as given or as the kernel sees it, up to rounding."""
    columns = (nearly_equal(x.unsqueeze(1), x) for x in X.unbind(-1))
    kernel = (nearly_equal(z.unsqueeze(1), z, z.abs().amax()) for z in seen.unbind(-1))
    if X.shape == seen.shape:
        same = reduce(torch.logical_and, map(torch.logical_or, columns, kernel))
    else:  # an input transform drops or adds columns, so that they do not correspond
        same = reduce(torch.logical_and, columns) | reduce(torch.logical_and, kernel)
    return same & ~torch.eye(len(X), dtype=torch.bool, device=X.device)


def search_data(model: Any) -> SearchData:
    """All observations of a ``RobustGP`` as arrays, in the units of an outcome transform that is not ours.

    Raises ``ValueError`` if observations were added to the model.
    """
    model.train()
    model.check_nothing_added()
    standardized = standardize_of(getattr(model, "outcome_transform", None))[1] is not None
    X, Y, Yvar = model.train_X_all, model.train_Y_all, model.train_Yvar_all
    if not standardized and hasattr(model, "outcome_transform"):
        Y, Yvar = model.outcome_transform.eval()(Y=Y, Yvar=Yvar, X=model.transform_inputs(X))
    every = copy.deepcopy(model).double()
    SingleTaskGP.set_train_data(every, X.double(), Y.squeeze(-1).double(), strict=False)
    if model.batch_all is not None:
        every.likelihood.batch = model.batch_all
    if Yvar is not None:
        every.likelihood.noise_covar.noise = Yvar.double().flatten()
    places = as_array(points_seen(model))
    places = places[:, np.ptp(places, axis=0) > 0.0]  # a constant column does not count
    return SearchData(
        evidence=evidence_of(every),
        y=as_array(Y.squeeze(-1)),
        places=(places - places.min(0)) / np.ptp(places, axis=0),
        replicates=model.replicate_mask().cpu().numpy(),
        prior=model.outlier_prior,
        standardized=standardized,
        batched=model.batch_all is not None,
        device=gpu_for(X, len(X)),
        **model.known(),
    )
