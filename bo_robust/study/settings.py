"""The settings of a study's method: plain JSON, complete and checked when the study is created.

All in units the models see: coordinates in the unit cube, rewards (y - center) / scale, with the sign turned where f is
minimised. Center and scale, where they are not given, are found from the first m rewards, m the largest of
num_initial * 1.3^k that there are: in between the units stand still, with every m those of constant settings
(``noise_var``, ``moment_bound``, ...) follow the rewards.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bo_robust.models import candidate
from bo_robust.schedules import TRUNCATIONS, WIDTHS
from bo_robust.study.space import Arms, Space
from bo_robust.validation import check_delta, check_positive, check_tail_index

__all__ = ["METHODS", "complete", "schedule", "whole_number"]

GRID = 1000  # points that stand for a continuous space in widths over finitely many: a heuristic
COMMON: dict[str, Any] = {
    "minimize": False,  # f is to be minimised
    "center": None,  # null: median of the rewards of the initial design
    # null: the larger of 1.4826 times their median absolute deviation and the range of all but 15 % at either end
    # divided by 2.07, both the standard deviation of normal rewards (if both are 0: of the deviations that are not 0);
    # the largest there was at any such m
    "scale": None,
    "num_initial": None,  # trials of a Sobol design (arms: drawn at random) before the method chooses; null: 2 d + 2
    "delta": 0.1,  # failure probability of widths
    "width": {"kind": "randomised", "scale": 5.0**-0.5},  # multiplies sigma where trials are chosen
    # multiplies sigma in `recommend`: a width that holds, not one that explores. The default holds for f ~ GP with the
    # model's hyperparameters on finitely many arms (v-ucb: pairs of arm and condition); learned hyperparameters are a
    # heuristic, and so is the default on a box, which counts as GRID points. {"kind": "compact", ...} is for boxes.
    "certificate": {"kind": "finite"},
    "restarts": 8,  # of the search for the best acquisition
    "raw_samples": 128,  # it starts from
    "device": "cpu",
}
KERNEL: dict[str, Any] = {
    "kernel": "matern52",  # or rbf
    "lengthscale": None,  # a number, one per column, or null: learned, and so are the next two
    "outputscale": None,  # k(x, x)
    "noise_var": None,  # lambda
}
TAIL: dict[str, Any] = {
    "moment_bound": 100.0,  # v: E|y|^(1 + alpha) <= v, f included; generous, as the scale is of few rewards
    "alpha": 1.0,
    "rule": "zero",  # the papers'; "clip" moves a reward beyond its level to the level
}
METHODS: dict[str, dict[str, Any]] = {
    "gp-ucb": COMMON | KERNEL,
    "tgp-ucb": COMMON | KERNEL | TAIL | {"truncation": {"kind": "tgp"}},
    "ata-gp-ucb": COMMON
    | KERNEL
    | TAIL
    | {
        "features": {"kind": "nystrom", "size": 64},  # points told, evenly spaced; or {"kind": "fourier", "nodes": m}
        "noise_var": 1.0,  # a learned one may be so small that every direction is beyond its level
        "truncation": None,  # null: ata_nystrom or ata_fourier
        "horizon": 1000,  # T
        "root": "symmetric",
    },
    "v-ucb": COMMON
    | KERNEL
    | {
        "environment": None,  # {"points": [{"z": 0.0}, ...], "probabilities": [...] or left out}; to be given
        "risk_level": 0.1,  # alpha of the value at risk, the LOWER tail of the reward
        "width": {"kind": "finite", "num_arms": 1},  # the paper's experiments
    },
    "he-gp-ucb": {k: v for k, v in COMMON.items() if k != "certificate"}  # its width is one that holds
    | {
        "candidates": None,  # settings of `candidate`; null: rbf and matern52 at lengthscales 0.05, 0.1, ... 0.8
        "noise_var": 0.1,  # of the default candidates
        "noise_scale": None,  # R; null: root of noise_var
        "width": {"kind": "bayesian_finite"},
    },
    "bkb": COMMON | KERNEL | {"oversampling": 4.0, "max_size": 512, "min_size": 128},
}


def complete(method: str, given: Mapping[str, Any], space: Space) -> dict[str, Any]:
    """All settings of a method, defaults where none are given.

    Raises:
        ValueError: on an unknown method or setting (naming the nearest), a value that is out of range or no plain JSON.
    """
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"unknown method {method!r}; {_nearest(method, METHODS)}")
    defaults = METHODS[method]
    for name in given:
        if name not in defaults:
            raise ValueError(f"{method} has no setting {name!r}; {_nearest(name, defaults)}")
    try:
        chosen = json.loads(json.dumps(given, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"settings must be plain JSON (numbers, strings, lists, dicts): {error}.") from None
    settings = defaults | chosen
    d = len(space.names)
    z: tuple[str, ...] = ()
    if method == "v-ucb":
        z = _check_environment(settings["environment"], space)
    if settings["num_initial"] is None:
        settings["num_initial"] = 2 * (d + len(z)) + 2
    for name, check in CHECKS.items():
        if name in settings and not (settings[name] is None and defaults[name] is None):
            try:
                check(name, settings[name])
            except (TypeError, AttributeError, KeyError, OverflowError):
                raise ValueError(f"{name} cannot be {settings[name]!r}; the default is {defaults[name]!r}.") from None
    lengthscale = settings.get("lengthscale")
    if isinstance(lengthscale, list) and len(lengthscale) != d + len(z):
        raise ValueError(f"{len(lengthscale)} lengthscales for {d + len(z)} columns ({', '.join([*space.names, *z])}).")
    known = {"noise_var": 1.0, "num_features": 1} | ({"noise_scale": 1.0} if "noise_scale" in settings else {})
    for role in ("width", "certificate", "truncation"):
        if role in settings and not (settings[role] is None and defaults[role] is None):
            schedule(role, settings, space, known)
    if "certificate" in settings and settings["certificate"]["kind"] == "randomised":
        raise ValueError("a randomised width is no confidence bound: the certificate needs another kind.")
    return settings


def schedule(role: str, settings: Mapping[str, Any], space: Space, known: Mapping[str, Any]) -> Any:
    """The width or truncation level that ``settings[role]`` describes; what it leaves out comes from the others.

    Args:
        role: "width", "certificate" or "truncation".
        settings: All settings.
        space: Gives the number of arms.
        known: ``noise_var`` and ``num_features`` of the moment.

    Raises:
        ValueError: on an unknown kind or argument, or one that is missing or out of range.
    """
    spec, registry = settings[role], TRUNCATIONS if role == "truncation" else WIDTHS
    if not isinstance(spec, dict) or not isinstance(spec.get("kind"), str) or spec["kind"] not in registry:
        raise ValueError(f"{role} must be {{'kind': one of {', '.join(registry)}, ...}}, got {spec!r}.")
    made: Any = registry[spec["kind"]]
    fields = {f.name: f for f in dataclasses.fields(made)}
    conditions = (settings.get("environment") or {}).get("points") or [{}]  # of v-ucb: f is on pairs (x, z)
    context: dict[str, Any] = {
        "num_arms": (len(space.points) if isinstance(space, Arms) else GRID) * len(conditions),
        "dim": len(space.names) + len(conditions[0]),
    }
    context |= {k: v for k, v in settings.items() if v is not None}
    context |= known
    context["scale"] = 1.0  # of the schedule, not that of the rewards
    if "candidates" in settings and spec["kind"] != "bayesian_finite":
        context["delta"] = 0.5 * settings["delta"]  # HE-GP-UCB's half for the width
    arguments = {k: v for k, v in spec.items() if k != "kind"}
    for name in arguments:
        if name not in fields:
            raise ValueError(f"{role} {spec['kind']!r} takes no {name!r}; {_nearest(name, fields)}")
    for name in fields:
        if name not in arguments and name in context:
            arguments[name] = context[name]
        if name not in arguments and fields[name].default is dataclasses.MISSING:
            raise ValueError(f"{role} {spec['kind']!r} needs {name!r}: put it beside its kind.")
    try:
        return made(**arguments)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{role} {spec!r}: {error}.") from None


def whole_number(minimum: int, **value: Any) -> int:
    """The one value as an int; raises ``ValueError`` unless it is whole (of an integer type) and >= ``minimum``."""
    ((name, given),) = value.items()
    try:
        number = operator.index(given)
    except TypeError:
        number = minimum - 1
    if isinstance(given, bool) or number < minimum:
        raise ValueError(f"{name} must be a whole number >= {minimum}, got {given!r}.")
    return number


def _check_environment(environment: Any, space: Space) -> tuple[str, ...]:
    """Names of the conditions."""
    form = "environment must be {'points': [{'z': number}, ...]} with equal names, and 'probabilities' if not all equal"
    if not isinstance(environment, dict) or not {"points"} <= set(environment) <= {"points", "probabilities"}:
        raise ValueError(f"v-ucb needs an environment: {form}.")
    try:
        names = Arms(environment["points"]).names
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{form}: {error}") from None
    if set(names) & set(space.names):
        raise ValueError(f"{', '.join(set(names) & set(space.names))} cannot be a parameter and a condition.")
    p = environment.get("probabilities")
    if p is not None:
        numbers = isinstance(p, list) and all(isinstance(v, int | float) and v >= 0 for v in p)
        if not numbers or len(p) != len(environment["points"]) or abs(math.fsum(p) - 1.0) > 1e-6:
            raise ValueError("the environment's probabilities must be >= 0, one per point, and sum to 1.")
    return names


def _positive(name: str, value: Any) -> None:
    check_positive(**{name: value})


def _finite(name: str, value: Any) -> None:
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}.")


def _count(name: str, value: Any) -> None:
    whole_number(1, **{name: value})


def _lengthscale(name: str, value: Any) -> None:
    for one in value if isinstance(value, list) else [value]:
        check_positive(**{name: one})


def _one_of(*known: Any) -> Callable[[str, Any], None]:
    def check(name: str, value: Any) -> None:
        if not any(value is k or (isinstance(value, str) and value == k) for k in known):
            raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}.")

    return check


def _features(name: str, value: Any) -> None:
    sizes = {"nystrom": "size", "fourier": "nodes"}
    if set(value) != {"kind", sizes.get(value["kind"])}:
        raise ValueError(
            f"{name} must be {{'kind': 'nystrom', 'size': m}} or {{'kind': 'fourier', 'nodes': m}}, got {value!r}."
        )
    whole_number(1, **{sizes[value["kind"]]: value[sizes[value["kind"]]]})


def _candidates(name: str, value: Any) -> None:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name} must be a list of settings of bo_robust.models.candidate, got {value!r}.")
    for one in value:
        candidate(**one)


def _device(name: str, value: Any) -> None:
    if not isinstance(value, str) or value.split(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"{name} must be 'cpu' or 'cuda', got {value!r}.")


CHECKS: dict[str, Callable[[str, Any], None]] = {
    "minimize": _one_of(True, False),
    "center": _finite,
    "scale": _positive,
    "num_initial": _count,
    "delta": lambda name, value: check_delta(value),
    "restarts": _count,
    "raw_samples": _count,
    "device": _device,
    "kernel": _one_of("matern52", "rbf"),
    "lengthscale": _lengthscale,
    "outputscale": _positive,
    "noise_var": _positive,
    "moment_bound": _positive,
    "alpha": lambda name, value: check_tail_index(value),
    "rule": _one_of("zero", "clip"),
    "features": _features,
    "horizon": _count,
    "root": _one_of("symmetric", "cholesky"),
    "risk_level": lambda name, value: check_delta(value),
    "candidates": _candidates,
    "noise_scale": _positive,
    "oversampling": _positive,
    "max_size": _count,
    "min_size": _count,
}


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(name), list(known), 1)
    return f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(known)}."
