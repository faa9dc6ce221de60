"""Configuration files: YAML, by path or by name, the files they include, and settings of the command line."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

import bo_robust
from bo_robust.experiments.config import RunConfig, parse
from bo_robust.experiments.errors import RunError
from bo_robust.utils.specs import DESCRIPTIONS, nearest, quoted

OF_A_RUN = ("name", "description", "panels", "loop")  # the other keys are of panels
# The shipped configurations: inside the wheel, or beside the package in a clone.
_PACKAGE = Path(bo_robust.__file__).resolve().parent
SHIPPED = _PACKAGE / "configs" if (_PACKAGE / "configs").is_dir() else _PACKAGE.parent / "configs"


def load_config(path: Path | str, overrides: Iterable[str] = (), **forced: Any) -> RunConfig:
    """The run that a YAML file describes; ``path`` may be the name of a shipped configuration.

    ``overrides`` are ``key=value`` strings with dotted paths as keys (``trials``, ``panels.0.problem.bad_ticks``). A
    panel key at the top level is set in every panel, as are those of ``forced`` that are not None.
    """
    data = read(find_configuration(path))
    apply_overrides(data, [*overrides, *(f"{key}={value}" for key, value in forced.items() if value is not None)])
    return parse(data)


def named_configurations() -> dict[str, Path]:
    """The shipped configurations by name, such as ``quickstart`` and ``heavy_tails/pareto``."""
    paths = sorted(SHIPPED.rglob("*.yaml"))
    return {path.relative_to(SHIPPED).with_suffix("").as_posix(): path for path in paths}


def find_configuration(path: Path | str) -> Path:
    """A path as it is, or the shipped configuration of that name; ``RunError`` names the nearest one."""
    named = named_configurations()
    if Path(path).exists() or Path(path).suffix:
        return Path(path)
    if str(path) not in named:
        raise RunError(f"there is no file {path}, nor a shipped configuration of that name; {nearest(path, named)}")
    return named[str(path)]


def read(path: Path, including: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The data of one file, with the panels of the files that it includes, by paths relative to it; its own keys win.

    ``including`` are the files on the way here, to notice a circle.
    """
    if path.resolve() in including:
        raise RunError(f"{path} includes itself.")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot read the configuration {path}: {error.strerror}; see `bo-robust list`.") from None
    except UnicodeDecodeError as error:
        raise RunError(f"{path} is not valid YAML: it is no text in UTF-8 ({error.reason}).") from None
    data = _mapping(_parsed(text, str(path)), str(path))
    included = data.pop("include", None)
    if included is None:
        return data
    if not isinstance(included, list) or not all(isinstance(name, str) for name in included):
        raise RunError(f"{path}: `include:` must be a list of files, got {quoted(included)}.")
    # From weak to strong: top-level keys of an included file, its panels, top-level keys of this file.
    panels: list[dict[str, Any]] = []
    for name in included:
        inner = read(path.parent / name, (*including, path.resolve()))
        if inner.get("loop") != data.get("loop"):
            raise RunError(f"{path} includes {quoted(name)}, whose `loop:` is another; give both the same.")
        shared = {key: value for key, value in inner.items() if key not in OF_A_RUN}
        panels += [{**shared, **panel} for panel in _panels(inner, name)]
    over = {key: value for key, value in data.items() if key not in OF_A_RUN}
    own_panels = _panels(data, str(path)) if "panels" in data else []
    data["panels"] = [{**panel, **over} for panel in panels] + own_panels
    return data


def apply_overrides(data: dict[str, Any], overrides: Iterable[str]) -> None:
    """Set ``key=value`` strings in plain configuration data, in place."""
    for text in overrides:
        key, separator, value = text.partition("=")
        if not separator:
            raise RunError(f"--set takes key=value, got {quoted(text)}.")
        parsed = _parsed(value, f"the value of --set {quoted(text)}")
        *path, last = key.split(".")
        if not path and key not in OF_A_RUN and isinstance(data.get("panels"), list):
            for panel in data["panels"]:  # what a panel says itself would hide the value at the top level
                if isinstance(panel, dict):
                    panel.pop(key, None)
        target: Any = data
        for step in path:
            target = target[_step(target, step, key)]
        target[last if isinstance(target, dict) else _step(target, last, key)] = parsed


class _Loader(yaml.SafeLoader):
    """YAML in which 1e-3 is a number (YAML 1.1 asks for 1.0e-3) and no key may stand twice in a mapping."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Raise ``ConstructorError`` if a key stands twice; YAML would keep the last value."""
        node = super().compose_mapping_node(anchor)
        seen = set[str]()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                problem = f"key {quoted(key.value)} stands twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)
        return node


# PyYAML reads numbers without a dot, or without a sign in the exponent, as text.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _parsed(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2020-13-01
        problem = " ".join(str(getattr(error, "problem", None) or error)[:100].split())
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        raise RunError(f"{where} is not valid YAML{place}: {problem}.") from None


def _mapping(data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        described = "nothing" if data is None else DESCRIPTIONS.get(type(data), f"a {type(data).__name__}")
        raise RunError(f"{where} must be a mapping of keys to values, but it is {described}.")
    return data


def _panels(data: dict[str, Any], where: str) -> list[dict[str, Any]]:
    panels = data.get("panels")
    if not isinstance(panels, list):
        raise RunError(f"`panels:` of {where} must be a list of panels, got {quoted(panels)}.")
    return [_mapping(panel, f"a panel of {where}") for panel in panels]


def _step(target: Any, step: str, key: str) -> Any:
    """``step`` as a valid index or key of ``target``."""
    if not isinstance(target, list | dict):
        raise RunError(f"--set {quoted(key)}: there is no {quoted(step)}, for {quoted(target)} has no keys.")
    keys: dict[str, Any] = {str(name): name for name in (target if isinstance(target, dict) else range(len(target)))}
    if step not in keys:
        raise RunError(f"--set {quoted(key)}: there is no {quoted(step)}; {nearest(step, keys)}")
    return keys[step]
