"""The methods that a study, Ax and Optuna offer; each declares its settings, model and acquisition once.

A new method is one file in this folder and one line in ``METHODS``.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from bo_robust.methods.ata_gp_ucb import ATAGPUCBMethod
from bo_robust.methods.base import ABSENT, GRID, NEEDED, GPMethod, HeavyTailMethod, Method, Spec, completed, setting
from bo_robust.methods.bkb import BKBMethod
from bo_robust.methods.gp_ucb import GPUCBMethod
from bo_robust.methods.he_gp_ucb import HEGPUCBMethod
from bo_robust.methods.robust import RobustMethod
from bo_robust.methods.tgp_ucb import TGPUCBMethod
from bo_robust.methods.v_ucb import VUCBMethod
from bo_robust.specs import SpecError, build, nearest, quoted

__all__ = [
    "ABSENT",
    "DEFAULT",
    "GRID",
    "METHODS",
    "NEEDED",
    "ATAGPUCBMethod",
    "BKBMethod",
    "GPMethod",
    "GPUCBMethod",
    "HEGPUCBMethod",
    "HeavyTailMethod",
    "Method",
    "RobustMethod",
    "Spec",
    "TGPUCBMethod",
    "VUCBMethod",
    "completed",
    "create_method",
    "method_class",
    "plain_json",
    "refuse_unknown",
    "setting",
]

METHODS: dict[str, type[Method]] = {
    "robust": RobustMethod,
    "gp-ucb": GPUCBMethod,
    "tgp-ucb": TGPUCBMethod,
    "ata-gp-ucb": ATAGPUCBMethod,
    "v-ucb": VUCBMethod,
    "he-gp-ucb": HEGPUCBMethod,
    "bkb": BKBMethod,
}
DEFAULT = "robust"


def create_method(name: str, given: Mapping[str, Any], standardised: bool = True) -> Method:
    """Make the method ``name`` from the settings given (plain JSON), with defaults for the others.

    ``standardised`` says whether rewards are standardised and the arms counted (a study, Optuna), or not (Ax). Raises
    ``ValueError`` if the method or a setting is unknown (the nearest is named), or a setting is missing, of another
    type, out of range or no plain JSON.
    """
    defaults = method_class(name).defaults(standardised)
    refuse_unknown(name, given, defaults)
    if missing := [key for key, default in defaults.items() if default is NEEDED and given.get(key) is None]:
        raise SpecError(f"{name} needs {', '.join(missing)}: see bo_robust.methods.{METHODS[name].__name__}.")
    made: Method = build({**defaults, **plain_json(given), "kind": name}, METHODS, {}, "method")
    return made


def method_class(name: Any) -> type[Method]:
    """Return the class of a method; raise ``ValueError`` naming the nearest if there is none."""
    if not isinstance(name, str) or name not in METHODS:
        raise SpecError(f"unknown method {quoted(name)}; {nearest(name, METHODS)}")
    return METHODS[name]


def refuse_unknown(name: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ``ValueError``, naming the nearest, if a given setting is not among the known ones."""
    for setting_given in given:
        if setting_given not in known:
            raise SpecError(f"{name} has no setting {quoted(setting_given)}; {nearest(setting_given, known)}")


def plain_json(given: Mapping[str, Any]) -> dict[str, Any]:
    """Copy numbers, texts, lists and dicts; raise ``ValueError`` if there is anything else."""
    try:
        copied: dict[str, Any] = json.loads(json.dumps(given, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SpecError(f"settings must be plain JSON (numbers, strings, lists, dicts): {error}.") from None
    return copied
