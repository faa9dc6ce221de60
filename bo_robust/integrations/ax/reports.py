"""What the models of a strategy say of the trials: the recommendation, outliers, held values, slips."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from ax.api.client import Client
from ax.core.experiment import Experiment
from ax.core.trial_status import TrialStatus
from ax.core.types import ComparisonOp
from ax.generation_strategy.generation_node import GenerationNode
from torch import Tensor

from bo_robust.acquisition.input_constructors import finite_environment
from bo_robust.integrations.ax.acquisition import RobustAcquisition
from bo_robust.integrations.ax.strategy import RescaledY
from bo_robust.proposals.conditions import best_at_risk
from bo_robust.proposals.sided_model import SidedModel, recommendable
from bo_robust.utils.upstream import ax_parts


def complete_observed(client: Client, trial_index: int, conditions: Mapping[str, float], raw_data: Any) -> int:
    """Complete a value-at-risk trial under the condition that came on its own, not the proposed one (field mode).

    The design of the trial under the condition observed becomes a new, completed trial, whose index is returned. The
    proposed trial is marked failed, which is how Ax forgets a point.

    Args:
        client: Client of the experiment.
        trial_index: The trial proposed.
        conditions: Observed value of every parameter of the environment; others raise ``ValueError``.
        raw_data: As in ``Client.complete_trial``.
    """
    experiment, strategy = ax_parts(client)
    (*_, node) = strategy.nodes_by_name.values()
    options = node.generator_specs[0].generator_kwargs.get("botorch_acqf_options", {})
    if "environment" not in options:
        raise ValueError("this is for experiments whose generation strategy is generation_strategy('v-ucb', ...).")
    names = tuple(options["environment"]["points"][0])
    if set(conditions) != set(names):
        raise ValueError(f"conditions must give {', '.join(names)}, got {dict(conditions)!r}.")
    (proposed,) = experiment.trials[trial_index].arms
    parameters: dict[str, Any] = {**proposed.parameters, **conditions}
    index = client.attach_trial(parameters=parameters)
    client.complete_trial(trial_index=index, raw_data=raw_data)
    client.mark_trial_failed(trial_index, failed_reason=f"observed under other conditions: trial {index}")
    return int(index)


def recommend(client: Client) -> tuple[dict[str, Any], float]:
    """Return the parameters to use among those observed, and the model's mean there, in units of the objective.

    They are those of the best mean, and not those of the luckiest observation, nor of a design whose only observations
    are outliers or held. Where the method chooses conditions, the design comes without conditions, with
    its value at risk within the limits (the UPPER tail where the objective is minimized). Under constraints on outcomes
    the means there must keep them. Raises ``ValueError`` if the strategy is not that of :func:`generation_strategy`,
    its initial design is not completed, no mean keeps the constraints, one is relative, or there are several
    objectives.
    """
    experiment, node, adapter = _fitted(client)
    optimization: Any = experiment.optimization_config
    objective = optimization.objective
    if objective.is_multi_objective:
        raise ValueError("recommend takes one objective; client.get_pareto_frontier() predicts by these models, too.")
    if len(objective.metric_names) > 1:
        raise ValueError(f"recommend takes one metric: report {objective.expression!r} as one, and optimize that.")
    sign = -1.0 if objective.minimize else 1.0
    sided, data, unit = _outcome(adapter, experiment.metrics[objective.metric_names[0]].signature, sign > 0.0)
    options = node.generator_specs[0].generator_kwargs["botorch_acqf_options"]
    conditions: dict[str, float] = {}
    if "environment" in options:
        environment = finite_environment(options["environment"], data.X)
        rows = recommendable([sided], data.X).nonzero().flatten()
        designs = data.X[rows, : -environment.appended]
        place, found = best_at_risk(sided, designs, environment, options["functional"])
        row, value = int(rows[place]), unit * float(found.mean)
        conditions = options["environment"]["points"][0]
    else:
        mean = sided.predict(data.X).mean
        may = recommendable([sided], data.X) & _feasible(optimization.outcome_constraints, adapter, data.X)
        if not may.any():
            raise ValueError("no point observed so far is predicted to keep the constraints; go on with the loop.")
        row = int((sign * mean).where(may, -math.inf).argmax())
        value = unit * float(mean[row])
    (arm,) = experiment.trials[int(data.group_indices[row])].arms
    return {name: value for name, value in arm.parameters.items() if name not in conditions}, value


def outlier_trials(client: Client) -> list[int]:
    """Return the indices of completed trials of which the model flags a value as an outlier (or truncates it).

    Values are those of objectives and of constrained outcomes. Raises ``ValueError`` where there is no model of
    :func:`generation_strategy` yet.
    """
    experiment, _, adapter = _fitted(client)
    optimization: Any = experiment.optimization_config
    trials: set[int] = set()
    for signature in optimization.metric_signatures:
        sided, data, _ = _outcome(adapter, signature)
        trials |= {int(data.group_indices[row]) for row in sided.verdict.flagged.nonzero().flatten().tolist()}
    return sorted(trials)


def held_trials(client: Client) -> list[int]:
    """Return the indices of completed trials with a value of an objective that is held on the good side.

    It is plausible only if values vary by factors; the strategy measures it again first. Errors are those of
    :func:`outlier_trials`.
    """
    experiment, _, adapter = _fitted(client)
    optimization: Any = experiment.optimization_config
    trials: set[int] = set()
    for signature, weight in optimization.objective.metric_weights:
        sided, data, _ = _outcome(adapter, signature, weight > 0.0)
        trials |= {int(data.group_indices[row]) for row in sided.verdict.held.nonzero().flatten().tolist()}
    return sorted(trials)


def slips(client: Client) -> list[tuple[str, list[int]]]:
    """Return what may have happened to values that are flagged or held: a kind of ``Slip``, and its trials' indices.

    Values and errors are those of :func:`outlier_trials`.
    """
    experiment, _, adapter = _fitted(client)
    optimization: Any = experiment.optimization_config
    found = []
    for signature in optimization.metric_signatures:
        sided, data, _ = _outcome(adapter, signature)
        for slip in getattr(sided.model, "slips", ()):
            found.append((slip.kind, [int(data.group_indices[row]) for row in slip.rows]))
    return found


def _fitted(client: Client) -> tuple[Experiment, GenerationNode, Any]:
    """The experiment, the node of the method, and the adapter with its fitted models."""
    experiment, strategy = ax_parts(client)
    *_, node = strategy.nodes_by_name.values()
    if node.generator_specs[0].generator_kwargs.get("acquisition_class") is not RobustAcquisition:
        raise ValueError("this is for experiments whose generation strategy is generation_strategy(...) of bo_robust.")
    adapter: Any = strategy.fit(experiment)
    if strategy.current_node_name != node.name:
        done = len(experiment.trial_indices_by_status[TrialStatus.COMPLETED])
        raise ValueError(f"there is no model yet: {done} of {len(experiment.trials)} trials are completed.")
    return experiment, node, adapter


def _outcome(adapter: Any, signature: str, maximize: bool = True) -> tuple[SidedModel, Any, float]:
    """Model, data and unit of an outcome."""
    surrogate, rescaled = adapter.generator.surrogate, adapter.transforms.get(RescaledY.__name__)
    output = surrogate.outcomes.index(signature)
    model = getattr(surrogate.model, "models", [surrogate.model])[output]
    data = surrogate.training_data[output]
    return SidedModel(model, maximize, data.X), data, 1.0 if rescaled is None else rescaled.Ystd[signature]


def _feasible(constraints: list[Any], adapter: Any, X: Tensor) -> Tensor:
    """Whether the means of outcomes keep the constraints at points ``n x d`` of the models, ``n`` bool."""
    feasible = torch.ones(len(X), dtype=torch.bool)
    for constraint in constraints:
        if constraint.relative:
            raise ValueError(f"recommend knows no status quo: give {constraint.expression!r} as a number.")
        total, upper = torch.zeros(len(X), dtype=X.dtype), constraint.op == ComparisonOp.LEQ
        for signature, weight in constraint.metric_weights:
            sided, _, unit = _outcome(adapter, signature, maximize=(weight > 0.0) != upper)
            total += weight * unit * sided.predict(X).mean
            feasible &= recommendable([sided], X)
        feasible &= total <= constraint.bound if upper else total >= constraint.bound
    return feasible
