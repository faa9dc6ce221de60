"""What `bo-robust list` shows: a line about everything that has a name, or the settings of one such thing."""

import dataclasses
import inspect
import itertools
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bo_robust.bandits import ALGORITHMS
from bo_robust.bandits.ata_gp_ucb import FEATURES
from bo_robust.bandits.constants import Constants
from bo_robust.confidence import WIDTHS
from bo_robust.confidence.truncation import TRUNCATIONS
from bo_robust.experiments.errors import RunError
from bo_robust.experiments.files import named_configurations, read
from bo_robust.experiments.loops import LOOPS
from bo_robust.experiments.outliers import OUTLIERS
from bo_robust.experiments.problems.data import DATA_FILES
from bo_robust.proposals.methods import METHODS
from bo_robust.utils.specs import nearest, quoted

# Fields of algorithms that come from problem and panel (:mod:`bo_robust.experiments.build`).
FILLED_IN = {"width", "truncation", *(part.name for part in dataclasses.fields(Constants))}
# Everything that a configuration, Ax and Optuna can name.
REGISTRIES: dict[str, Mapping[str, Any]] = {
    **{f"methods of runs over {loop.over}, loop: {name}": loop.methods for name, loop in LOOPS.items()},
    "methods of Ax and Optuna (the first is the default)": METHODS,
    **{f"problems over {loop.over}, loop: {name}": loop.problems for name, loop in LOOPS.items()},
    "outliers of runs over designs": OUTLIERS,
    "features": FEATURES,
    "widths": WIDTHS,
    "truncation levels": TRUNCATIONS,
}


def everything() -> dict[str, dict[str, str]]:
    """One line about everything that can be named, by title and name."""
    listed = {"configurations (bo-robust run NAME)": {n: _about(path) for n, path in named_configurations().items()}}
    listed |= {title: {name: _line(made) for name, made in of.items()} for title, of in REGISTRIES.items()}
    data = {name: f"From {file.source}." for name, file in DATA_FILES.items()}
    return listed | {"data sets (bo-robust prepare NAME DOWNLOAD)": data}


def settings_of(name: str) -> dict[str, list[str]]:
    """Lines about the entries of a name: by title, what it is and its settings with their defaults."""
    found = {title: of[name] for title, of in REGISTRIES.items() if name in of}
    if not found and name not in DATA_FILES:
        names = {n for of in (*REGISTRIES.values(), DATA_FILES) for n in of}
        raise RunError(f"nothing is called {quoted(name)}; {nearest(name, names)}")
    listed = {title: [_line(made), *_settings(made)] for title, made in found.items()}
    if name in DATA_FILES:
        listed["data sets"] = [f"{DATA_FILES[name].path}, made by `bo-robust prepare {name} DOWNLOAD` from"]
        listed["data sets"].append(DATA_FILES[name].source)
    return listed


def _settings(kind: Any) -> list[str]:
    """A line for every setting: its name, its default or where it comes from, and what the docstring says."""
    if hasattr(kind, "settings"):  # a row of METHODS
        return [f"{name}, {_default(value)}" for name, value in kind.settings.items()]
    args = inspect.cleandoc(_plain((inspect.getdoc(kind) or "").partition("Args:")[2]).split("\n\n")[0])
    about = {name: " ".join(text.split()) for name, text in re.findall(r"^(\w+): (.+(?:\n\s.+)*)", args, re.M)}
    lines = []
    for name, parameter in inspect.signature(kind).parameters.items():
        default = ... if parameter.default is parameter.empty else parameter.default
        if dataclasses.is_dataclass(kind):
            described = next(f for f in dataclasses.fields(kind) if f.name == name)
            default = default if described.default_factory is dataclasses.MISSING else described.default_factory()
        default_text = _default(default)
        if default is ... and kind in ALGORITHMS.values() and name in FILLED_IN:
            spec = f"{kind.default_width}, its constants " if name == "width" else ""
            default_text = f"by default {spec}from problem and panel"
        if name != "kind":
            lines.append(f"{name}, {default_text}" + (f": {about[name]}" if name in about else ""))
    return lines


def _default(value: Any) -> str:
    return "must be given" if value is ... else f"by default {'none' if value is None else value}"


def first_sentence(text: str) -> str:
    """The first sentence of a docstring or description, without markup."""
    plain = _plain(" ".join(text.split("\n\n")[0].split()))
    end = re.search(r"\.(?= [A-Z(]|$)", plain)
    return f"{plain[: end.start()] if end else plain}."


def _plain(text: str) -> str:
    return re.sub(r":[a-z]+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", text).replace("``", "")


def _about(path: Path) -> str:
    """The line about a configuration: from its description, or from the comment that it begins with."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    comment = " ".join(line.lstrip("# ") for line in lines)
    return first_sentence(str(read(path).get("description") or comment))


def _line(kind: Any) -> str:
    line = first_sentence(getattr(kind, "summary", inspect.getdoc(kind)) or "")
    # Where the class only repeats its name, the file says what it is.
    return line if " " in line else first_sentence(inspect.getdoc(sys.modules[kind.__module__]) or "")
