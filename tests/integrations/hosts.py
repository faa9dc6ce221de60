"""Ax and Optuna behind one interface: a loop that asks, tells and is asked for what was found.

A space has ``(low, high)`` of a float, ``(low, high, "log")``, ``range`` of an integer, or a list of choices.
"""

import pytest


class OptunaLoop:
    """A study. Outcomes are objectives, by name with their direction, or constraints, at most 0."""

    def __init__(self, space, objectives, constraints, method, **settings):
        optuna = pytest.importorskip("optuna")
        from bo_robust.integrations.optuna import RobustSampler

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        kinds = optuna.distributions
        self.space = {}
        for name, values in space.items():
            if isinstance(values, range):
                self.space[name] = kinds.IntDistribution(values.start, values.stop - 1)
            elif isinstance(values, list):
                self.space[name] = kinds.CategoricalDistribution(values)
            else:
                self.space[name] = kinds.FloatDistribution(*values[:2], log="log" in values)
        sampler = RobustSampler(method, seed=0, restarts=2, raw_samples=16, **settings)
        self.objectives, self.constraints = objectives, constraints
        directions = ["maximize" if good else "minimize" for good in objectives.values()]
        self.study = optuna.create_study(sampler=sampler, directions=directions)
        self.failed = optuna.trial.TrialState.FAIL

    def attach(self, x):
        self.study.enqueue_trial(x)
        return self.ask()[0]

    def ask(self):
        trial = self.study.ask(self.space)
        return trial, trial.params

    def tell(self, trial, outcomes):
        for name in self.constraints:
            trial.set_constraint(name, outcomes[name])
        self.study.tell(trial, [outcomes[name] for name in self.objectives])

    def fail(self, trial):
        self.study.tell(trial, state=self.failed)

    def recommend(self):
        return tuple(self.study.sampler.recommend(self.study))

    def outliers(self):
        return [trial.number for trial in self.study.sampler.outlier_trials(self.study)]

    def held(self):
        return [trial.number for trial in self.study.sampler.held_trials(self.study)]


class AxLoop:
    """The same of a client."""

    def __init__(self, space, objectives, constraints, method, outcome_limits=None, **settings):
        pytest.importorskip("ax")
        from ax.api.client import Client
        from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

        from bo_robust.integrations import ax

        self.ax, parameters = ax, []
        for name, values in space.items():
            if isinstance(values, list):
                kind = ChoiceParameterConfig(name=name, values=values, parameter_type="str", is_ordered=False)
            else:
                whole = isinstance(values, range)
                bounds = (values.start, values.stop - 1) if whole else values[:2]
                scaling = "log" if "log" in values else None
                number = "int" if whole else "float"
                kind = RangeParameterConfig(name=name, parameter_type=number, bounds=bounds, scaling=scaling)
            parameters.append(kind)
        limits = {} if outcome_limits is None else {"outcome_limits": {next(iter(objectives)): outcome_limits}}
        self.client = Client(random_seed=0)
        self.client.configure_experiment(parameters)
        objective = ", ".join(name if good else f"-{name}" for name, good in objectives.items())
        keep = [f"{name} <= 0" for name in constraints]
        self.client.configure_optimization(objective=objective, outcome_constraints=keep)
        search = {"num_restarts": 2, "raw_samples": 16, "seed": 0}
        if method == "he-gp-ucb":
            settings |= {"maximize": all(objectives.values())}
        strategy = ax.generation_strategy(method, initial=6, **search, **limits, **settings)
        self.client.set_generation_strategy(strategy)

    def attach(self, x):
        return self.client.attach_trial(parameters=x)

    def ask(self):
        (found,) = self.client.get_next_trials(max_trials=1).items()
        return found

    def tell(self, index, outcomes):
        self.client.complete_trial(trial_index=index, raw_data=outcomes)

    def fail(self, index):
        self.client.mark_trial_failed(index)

    def recommend(self):
        return self.ax.recommend(self.client)

    def outliers(self):
        return self.ax.outlier_trials(self.client)

    def held(self):
        return self.ax.held_trials(self.client)


LOOPS = {"optuna": OptunaLoop, "ax": AxLoop}
