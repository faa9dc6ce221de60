"""What `bo-robust list` shows: one line about every configuration and about every entry of a registry."""

import inspect
import itertools
import re
import sys
from pathlib import Path
from typing import Any

from bo_robust.bandits import ALGORITHMS
from bo_robust.confidence import WIDTHS
from bo_robust.confidence.truncation import TRUNCATIONS
from bo_robust.experiments.build import FEATURES
from bo_robust.experiments.conditions.methods import CONDITIONS_METHODS
from bo_robust.experiments.files import named_configurations, read
from bo_robust.experiments.problems import of_loop
from bo_robust.methods import METHODS

# Everything that a configuration, Ax and Optuna can name.
REGISTRIES: dict[str, dict[str, Any]] = {
    "methods of runs over arms": {**ALGORITHMS},
    "problems over arms": of_loop("arms"),
    "problems over (x, z), loop: conditions": of_loop("conditions"),
    "features": {**FEATURES},
    "widths": {**WIDTHS},
    "truncation levels": {**TRUNCATIONS},
    "methods of Ax and Optuna (the first is the default)": {**METHODS},
    "methods of runs over (x, z), loop: conditions": {**CONDITIONS_METHODS},
}


def everything() -> dict[str, dict[str, str]]:
    """One line about everything that can be named, by title and name."""
    configurations = {name: _about(path) for name, path in named_configurations().items()}
    listed = {title: {name: _line(made) for name, made in of.items()} for title, of in REGISTRIES.items()}
    return {"configurations (bo-robust run NAME)": configurations, **listed}


def first_sentence(text: str) -> str:
    """The first sentence of a docstring or description, without markup."""
    plain = " ".join(text.split("\n\n")[0].split())
    plain = re.sub(r":[a-z]+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", plain).replace("``", "")
    end = re.search(r"\.(?= [A-Z(]|$)", plain)
    return f"{plain[: end.start()] if end else plain}."


def _about(path: Path) -> str:
    """The line about a configuration: from its description, or from the comment that it begins with."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    comment = " ".join(line.lstrip("# ") for line in lines)
    return first_sentence(str(read(path).get("description") or comment))


def _line(made: Any) -> str:
    line = first_sentence(getattr(made, "summary", inspect.getdoc(made)) or "")
    # Where the class only repeats its name, the file says what it is.
    return line if " " in line else first_sentence(inspect.getdoc(sys.modules[made.__module__]) or "")
