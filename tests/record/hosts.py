"""Rounds of Optuna, Ax, BayBE, BoFire and the command ``bo-robust suggest``."""

import contextlib
import io
import random
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bo_robust.proposals.methods import METHODS
from tests.record.problems import CANDIDATES, MIXED_START, ROUNDS, SEARCH, drawn, hill, mixed, recipes, yields
from tests.record.values import numbers

HEAVY = {"moment_bound": 4.0, "alpha": 1.0, "noise_var": 0.01}
SETTINGS: dict[str, dict[str, Any]] = {
    "robust": {},
    "gp-ucb": {"noise_var": 0.01},
    "tgp-ucb": HEAVY,
    "ata-gp-ucb": HEAVY
    | {"horizon": 50, "width": 1.0, "features": {"kind": "fourier", "nodes": 8}, "num_features": 64},
    "v-ucb": {"environment": {"points": [{"z": z} for z in (0.0, 0.25, 0.5, 0.75, 1.0)]}, "noise_var": 0.01},
    "knowledge-gradient": {"environment": {"points": [{"z": z} for z in (0.0, 0.5, 1.0)]}, "noise_var": 0.01},
    "he-gp-ucb": {"candidates": CANDIDATES, "noise_scale": 0.1, "width": 1.0},
    "bkb": {"noise_var": 0.01},
}
assert SETTINGS.keys() == METHODS.keys()
NOISE = [random.Random(i).gauss(0.0, 1.0) for i in range(30)]
RECIPES = recipes(5)  # one of which is held
FIRST = drawn(8, (0.0, 1.0), (0.0, 1.0))


def rounded(v):
    return float(f"{v:.2g}") if isinstance(v, float) else v


def reading(x, row):
    """What is written down of a recipe in this row of the table."""
    return round((yields(x) + NOISE[row]) * (10.0 if row in RECIPES["wrong"] else 1.0), 1)


def optuna_study(method="robust", directions=("maximize",), wrong=(), held=False, cut=None, **settings):  # noqa: PLR0915
    import optuna

    from bo_robust.integrations.optuna import RobustSampler

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = RobustSampler(method, seed=0, **SEARCH, **settings)
    study = optuna.create_study(sampler=sampler, directions=list(directions))
    ranges = {
        "x": optuna.distributions.FloatDistribution(0.0, 1.0),
        "z": optuna.distributions.FloatDistribution(0.0, 1.0),
    }
    start = FIRST
    if held:
        start = RECIPES["start"]
        ends = zip("xzk", (50.0, 1.0, 0.5), (110.0, 8.0, 2.5), strict=True)
        ranges = {name: optuna.distributions.FloatDistribution(low, high) for name, low, high in ends}
    signs = [1.0 if direction == "maximize" else -1.0 for direction in directions]

    def tell(trial, params):
        x = list(params.values())
        value = reading(x, trial.number) if held else hill(x) + 40.0 * (trial.number in wrong)
        if cut is not None:
            trial.set_constraint("cut", cut - x[0])
        study.tell(trial, [signs[0] * value, *(sign * x[0] for sign in signs[1:])])

    def wrong_trials():
        found = {"outliers": sampler.outlier_trials(study), "held": sampler.held_trials(study)}
        return {name: [trial.number for trial in trials] for name, trials in found.items()}

    for i, x in enumerate(start):
        study.enqueue_trial(dict(zip(ranges, x, strict=True)))
        trial = study.ask(ranges)
        if i == 4 and not held:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        elif i != 5 or held:  # which stays pending
            tell(trial, trial.params)
    found = {}
    for index in range(ROUNDS):
        trial = study.ask(ranges)
        found[str(index)] = {"proposed": numbers(trial.params)} | wrong_trials()
        tell(trial, {name: rounded(v) for name, v in trial.params.items()})
    if len(directions) == 1:
        found["recommended"] = numbers(list(sampler.recommend(study)))
    return found | wrong_trials()


def optuna_mixed():
    import optuna

    from bo_robust.integrations.optuna import RobustSampler

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=RobustSampler(seed=1, fixed={"w": 2}, **SEARCH), direction="minimize")
    seen = {}

    def objective(trial):
        x = trial.suggest_float("x", 1e-3, 1.0, log=True)
        k, c, w = (
            trial.suggest_int("k", 0, 4),
            trial.suggest_categorical("c", ["a", "b", "c"]),
            trial.suggest_int("w", 0, 2),
        )
        seen[str(trial.number)] = numbers([x, k, c, w])
        return -mixed([rounded(x), k, "abc".index(c)]) + 0.1 * w + (30.0 if trial.number == 3 else 0.0)

    study.optimize(objective, n_trials=12)
    return {"proposed": seen, "recommended": numbers(list(study.sampler.recommend(study)))}


def ax_client(method="robust", objective="y", constraints=(), wrong=(), held=False, kinds=False, **options):  # noqa: PLR0915
    from ax.api.client import Client
    from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

    from bo_robust.integrations.ax import generation_strategy, held_trials, outlier_trials, recommend

    def box(name, low, high):
        return RangeParameterConfig(name=name, parameter_type="float", bounds=(low, high))

    parameters, start = [box("x", 0.0, 1.0), box("z", 0.0, 1.0)], [dict(zip("xz", x, strict=True)) for x in FIRST]
    if held:
        start = [dict(zip("xzk", x, strict=True)) for x in RECIPES["start"]]
        ends = zip("xzk", (50.0, 1.0, 0.5), (110.0, 8.0, 2.5), strict=True)
        parameters = [box(name, low, high) for name, low, high in ends]
    if kinds:
        parameters = [box("x", 0.0, 1.0)]
        parameters += [RangeParameterConfig(name="k", parameter_type="int", bounds=(0, 4))]
        parameters += [ChoiceParameterConfig(name="c", parameter_type="str", values=["a", "b", "c"], is_ordered=False)]
        start = [{"x": x, "k": int(k), "c": "abc"[int(c)]} for x, k, c in MIXED_START]
    client = Client(random_seed=0)
    client.configure_experiment(parameters)
    client.configure_optimization(objective=objective, outcome_constraints=list(constraints))
    settings = SETTINGS[method] if method != "he-gp-ucb" else SETTINGS[method] | {"maximize": True}
    search = {"num_restarts": 2, "raw_samples": 16, "seed": 0}
    client.set_generation_strategy(generation_strategy(method, initial=5, **search, **settings, **options))
    sign, several = -1.0 if objective.startswith("-") else 1.0, "g" in objective or bool(constraints)

    def tell(index, p):
        if kinds:
            value = mixed([p["x"], p["k"], "abc".index(p["c"])])
        else:
            value = reading(list(p.values()), index) if held else hill([p["x"], p["z"]])
        value += 40.0 * (index in wrong)
        client.complete_trial(trial_index=index, raw_data={"y": sign * value} | ({"g": p["x"]} if several else {}))

    for i, p in enumerate(start):
        index = client.attach_trial(parameters=p)
        if i == 4 and not held:
            client.mark_trial_failed(index)
        elif i != 5 or held:  # which stays pending
            tell(index, p)
    found: dict[str, Any] = {}
    for round_ in range(ROUNDS):
        proposed = client.get_next_trials(max_trials=2 if round_ == 1 else 1)
        listed = {"proposed": numbers([proposed[index] for index in sorted(proposed)])}
        found[str(round_)] = listed | {"outliers": outlier_trials(client), "held": held_trials(client)}
        for index in sorted(proposed):
            tell(index, {name: rounded(v) for name, v in proposed[index].items()})
    client.get_next_trials(max_trials=1)
    if "," not in objective:
        found["recommended"] = numbers(list(recommend(client)))
    return found | {"outliers": outlier_trials(client), "held": held_trials(client)}


def command(header, rows, *arguments, candidates=None):
    from bo_robust.tables.command import main

    def text(table):
        return "".join(",".join(map(str, row)) + "\n" for row in table)

    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.csv"
        path.write_text(text([header, *rows]), encoding="utf-8")
        if candidates is not None:
            listed = Path(folder) / "candidates.csv"
            listed.write_text(text(candidates), encoding="utf-8")
            arguments = (*arguments, "--candidates", str(listed))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(path), *arguments])
    return {"code": code, "out": out.getvalue().splitlines(), "err": err.getvalue().replace(folder, "").splitlines()}


SOLVENTS = ("water", "DMF")
REACTIONS = [[40 + (i * 37) % 60 + 0.5 * (i % 2), SOLVENTS[i % 3 % 2]] for i in range(14)]


def reaction(temperature, solvent):
    return round(50.0 - ((temperature - 70.0) / 8.0) ** 2 + 6.0 * (solvent == "DMF"), 2)


def reactions(wrong=(), pending=(), failed=()):
    rows = [[*row, reaction(*row)] for row in REACTIONS]
    for i in wrong:
        rows[i][-1] *= 10.0
    for i in pending:
        rows[i][-1] = ""
    for i in failed:
        rows[i][-1] = "failed"
    return rows


CHEMISTRY = ["temperature", "solvent", "yield"]
COMMANDS = {
    "plain": lambda: command(CHEMISTRY, reactions(), "--maximize", "yield", "-n", "2"),
    "outlier": lambda: command(CHEMISTRY, reactions(wrong=(4,)), "--maximize", "yield"),
    "pending and failed": lambda: command(
        CHEMISTRY, reactions(pending=(2,), failed=(5, 9)), "--maximize", "yield", "--seed", "3"
    ),
    "candidates": lambda: command(
        CHEMISTRY, reactions(), "--maximize", "yield", candidates=[CHEMISTRY[:2], *[[t, "DMF"] for t in (55, 66, 77)]]
    ),
    "minimize, two targets": lambda: command(
        [*CHEMISTRY, "cost"],
        [[*row, 3 + i * 7 % 11] for i, row in enumerate(reactions(wrong=(3,)))],
        *("--maximize", "yield", "--minimize", "cost"),
    ),
    "held": lambda: command(
        ["T", "t", "c", "yield"],
        [[*x, reading(x, i)] for i, x in enumerate(RECIPES["start"])],
        *("--maximize", "yield"),
    ),
    "limits": lambda: command(CHEMISTRY, reactions(wrong=(4,)), "--maximize", "yield", "--limits", "0:100"),
}


def conditions_at_a_time():
    """A column that is observed, in a table."""
    header, humidity = ["temperature", "humidity", "yield"], (0.2, 0.5, 0.8)
    rows = [[40 + 5 * (i % 12), humidity[i % 3]] for i in range(18)]
    rows = [[t, h, round(50.0 - ((t - 70.0) / 8.0) ** 2 - 20.0 * h * (t > 60), 2)] for t, h in rows]
    return command(header, rows, "--maximize", "yield", "--observe", "humidity", "--worst", "0.3")


COMMANDS["observed"] = conditions_at_a_time


def solvent_table(wrong, minimize):
    """18 yields of a temperature and a solvent, of which the rows ``wrong`` are far too large."""
    import pandas

    sign, noise = -1.0 if minimize else 1.0, random.Random(0)
    rows = [(40.0 + 10.0 * (i * 4 % 9), ("water", "DMF", "toluene")[i % 3 - i // 9]) for i in range(18)]
    y = [sign * (percent(*row) + noise.gauss(0.0, 0.5) + 80.0 * (i in wrong)) for i, row in enumerate(rows)]
    return pandas.DataFrame(rows, columns=["temperature", "solvent"]).assign(y=y)


def percent(temperature, solvent):
    """At most 73, at 90 degrees in DMF."""
    return 73.0 - ((temperature - 90.0) / 12.0) ** 2 - {"water": 10.0, "DMF": 0.0, "toluene": 5.0}[solvent]


def baybe_campaign(wrong=(), minimize=False):
    import baybe.parameters as kinds
    from baybe import Campaign
    from baybe.recommenders import BotorchRecommender
    from baybe.searchspace import SearchSpace
    from baybe.targets import NumericalTarget

    from bo_robust.integrations import baybe

    temperatures = kinds.NumericalDiscreteParameter("temperature", tuple(range(40, 121, 10)))
    solvents = kinds.CategoricalParameter("solvent", ("water", "DMF", "toluene"))
    space = SearchSpace.from_product([temperatures, solvents])
    surrogate = BotorchRecommender(surrogate_model=baybe.RobustGPSurrogate())
    run = Campaign(space, NumericalTarget("y", minimize=minimize).to_objective(), surrogate)
    run.add_measurements(solvent_table(wrong, minimize))
    found = {}
    for index in range(ROUNDS):
        proposed, again = run.recommend(1)[["temperature", "solvent"]], baybe.replicates(run)
        found[str(index)] = {
            "proposed": proposed.values.tolist(),
            "replicates": again.index.tolist(),
            "outliers": baybe.outlier_measurements(run).index.tolist(),
            "held": baybe.held_measurements(run).index.tolist(),
            "recommended": numbers(baybe.recommend(run).values),
        }
        proposed = again[["temperature", "solvent"]] if len(again) else proposed
        sign = -1.0 if minimize else 1.0
        run.add_measurements(proposed.assign(y=[sign * percent(*row) for row in proposed.values.tolist()]))
    return found


def bofire_strategy(wrong=(), minimize=False):
    import bofire.data_models.features.api as kinds
    import bofire.data_models.objectives.api as objectives
    import bofire.strategies.api as strategies
    from bofire.data_models.domain.api import Domain, Inputs, Outputs
    from bofire.data_models.strategies.api import SoboStrategy
    from bofire.data_models.surrogates.api import BotorchSurrogates
    from pandas import DataFrame

    from bo_robust.integrations import bofire

    temperature = kinds.ContinuousInput(key="temperature", bounds=(40.0, 120.0))
    solvent = kinds.CategoricalInput(key="solvent", categories=["water", "DMF", "toluene"])
    objective = objectives.MinimizeObjective() if minimize else objectives.MaximizeObjective()
    output = kinds.ContinuousOutput(key="y", objective=objective)
    domain = Domain(inputs=Inputs(features=[temperature, solvent]), outputs=Outputs(features=[output]))
    surrogate = bofire.RobustGPSurrogate(inputs=domain.inputs, outputs=domain.outputs)
    specification = SoboStrategy(domain=domain, surrogate_specs=BotorchSurrogates(surrogates=[surrogate]), seed=0)
    strategy = strategies.map(specification)
    strategy.tell(solvent_table(wrong, minimize).assign(valid_y=1))
    found = {}
    for index in range(ROUNDS):
        (row,) = strategy.ask(1)[["temperature", "solvent"]].values.tolist()
        found[str(index)] = {
            "proposed": numbers(row),
            "outliers": bofire.outlier_experiments(strategy).index.tolist(),
            "held": bofire.held_experiments(strategy).index.tolist(),
        }
        row = [rounded(row[0]), row[1]]
        y = (-1.0 if minimize else 1.0) * percent(*row)
        strategy.tell(DataFrame([[*row, y, 1]], columns=["temperature", "solvent", "y", "valid_y"]))
    return found


def hosts() -> dict[str, Any]:
    """Every round that the packages installed allow, by name."""
    found = {f"command, {name}": case for name, case in COMMANDS.items()}
    if find_spec("optuna"):
        found |= {
            "optuna": optuna_study,
            "optuna, outlier": lambda: optuna_study(wrong=(2,)),
            "optuna, minimize": lambda: optuna_study(directions=("minimize",)),
            "optuna, held": lambda: optuna_study(held=True),
            "optuna, constraint": lambda: optuna_study(cut=0.4),
            "optuna, two objectives": lambda: optuna_study(directions=("maximize", "minimize"), wrong=(2,)),
            "optuna, mixed": optuna_mixed,
            "optuna, gp-ucb": lambda: optuna_study("gp-ucb"),
            "optuna, tgp-ucb": lambda: optuna_study("tgp-ucb", wrong=(2,)),
        }
    if find_spec("ax"):
        found |= {f"ax, {method}": lambda method=method: ax_client(method) for method in METHODS}
        found |= {
            "ax, outlier": lambda: ax_client(wrong=(2,)),
            "ax, minimize": lambda: ax_client(objective="-y", wrong=(2,)),
            "ax, held": lambda: ax_client(held=True),
            "ax, constraint": lambda: ax_client(constraints=["g >= 0.4"]),
            "ax, two objectives": lambda: ax_client(objective="y, -g", wrong=(2,)),
            "ax, mixed": lambda: ax_client(kinds=True, wrong=(2,)),
            "ax, limits": lambda: ax_client(wrong=(2,), outcome_limits={"y": (None, 2.0)}),
        }
    for name, run in (("baybe", baybe_campaign), ("bofire", bofire_strategy)):
        if find_spec(name):
            found |= {name: run, f"{name}, outlier": partial(run, wrong=(3,))}
            found[f"{name}, minimize"] = partial(run, wrong=(3, 8), minimize=True)
    return found
