"""Names of results: a hash over a canonical form of what they depend on.

The canonical form is exact. A tensor stands for all its bytes, where its ``repr`` leaves entries out, and a number for
all its digits. What has no such form, such as a function, is refused.
"""

import ast
import dataclasses
import functools
import hashlib
import json
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
# What only reads traces, so that a page can be written anew without its runs.
READERS = ("claims.py", "pictures.py", "reproduce.py", "verdicts.py")
LIBRARIES = ("torch", "botorch", "gpytorch", "linear_operator", "numpy", "scipy")


def digest(value: Any) -> str:
    """The hash of a value, 32 hexadecimal digits; errors are those of :func:`canonical`."""
    return _sha256(json.dumps(canonical(value)).encode())[:32]


def canonical(value: Any, where: str = "the value") -> Any:
    """Plain data that differ wherever the value does.

    A dataclass stands for its class and fields, an array or tensor for its type, shape and bytes, and a path for the
    content of the file. ``TypeError`` says where in the value something else is, such as a function.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return ["float", value.hex()]
    if isinstance(value, torch.Tensor):
        return canonical(value.detach().cpu().contiguous().numpy(), where)
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        return ["array", str(value.dtype), list(value.shape), _sha256(np.ascontiguousarray(value).tobytes())]
    if isinstance(value, Path):
        return ["file", _sha256(value.read_bytes())]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return [f"{type(value).__module__}.{type(value).__qualname__}", canonical(fields, where)]
    if isinstance(value, Mapping):
        items = [[canonical(key, where), canonical(of, f"{key} of {where}")] for key, of in value.items()]
        return ["mapping", sorted(items, key=json.dumps)]
    if isinstance(value, tuple | list | range):
        return ["sequence", *(canonical(item, where) for item in value)]
    raise TypeError(
        f"{where} holds {value!r}. Results are named by what they depend on, and a {type(value).__name__} has no exact "
        "form to name them by: give numbers, texts, tensors, or dataclasses of such."
    )


@functools.cache
def code() -> str:
    """The hash of all source that traces depend on, and of the versions of the libraries it uses.

    That is ``bo_robust`` and ``benchmarks``, and what configurations define beside settings: classes, functions, and
    entries of tables.
    """
    files = sorted(file for name in ("bo_robust", "benchmarks") for file in (ROOT / name).rglob("*.py"))
    files = [file for file in files if file.parent != ROOT / "benchmarks" or file.name not in READERS]
    sources = [[file.relative_to(ROOT).as_posix(), _sha256(file.read_bytes())] for file in files]
    own = [
        defined for file in sorted({*(ROOT / "configs").rglob("*.py"), *_program()}) if (defined := definitions(file))
    ]
    return digest([sources, own, [metadata.version(name) for name in LIBRARIES]])


def _program() -> list[Path]:
    """The file of the program that runs, if that is a configuration."""
    program = sys.modules["__main__"]
    file = getattr(program, "__file__", None)
    return [Path(file).resolve()] if file is not None and hasattr(program, "PANELS") else []


def definitions(file: Path) -> list[str]:
    """The top-level statements of a file but imports and assignments to names, whose values jobs are named by."""
    statements = ast.parse(file.read_text(encoding="utf-8")).body
    definitions = (ast.ClassDef, ast.FunctionDef)
    entries = [s for s in statements if isinstance(s, ast.Assign) and not isinstance(s.targets[0], ast.Name)]
    return [ast.dump(s) for s in statements if isinstance(s, definitions) or s in entries]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
