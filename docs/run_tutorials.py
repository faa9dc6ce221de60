"""Run the tutorials and keep what they print: ``python -m docs.run_tutorials [NAME ...]``.

Writes ``docs/tutorials/outputs/NAME.json``, which the site shows below each piece of code. One thread, under a minute
each.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import environment
from docs.hooks import OUTPUTS, TUTORIALS, cells, code_hash

__all__ = ["execute", "main"]


def execute(path: Path, source: str | None = None) -> tuple[dict[str, str], dict[str, Any]]:
    """Execute a tutorial cell by cell.

    Args:
        path: The script.
        source: In place of its text, such as one with smaller settings.

    Returns:
        What each code cell printed, by its number as a string (those that printed nothing are left out), and the names
        they defined.
    """
    outputs: dict[str, str] = {}
    names: dict[str, Any] = {"__name__": path.stem}
    for i, cell in enumerate(cells(path.read_text(encoding="utf-8") if source is None else source)):
        if cell.kind == "code":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(cell.text, f"{path.name}, cell {i}", "exec"), names)
            if out.getvalue():
                outputs[str(i)] = out.getvalue()
    return outputs, names


def main() -> None:
    """Command line of this module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[path.stem for path in sorted(TUTORIALS.glob("*.py"))])
    torch.set_num_threads(1)
    OUTPUTS.mkdir(exist_ok=True)
    for name in parser.parse_args().names:
        path = TUTORIALS / f"{name}.py"
        begin = time.process_time()  # of one thread, whoever else uses the machine
        outputs, _ = execute(path)
        row = environment() | {
            "seconds": round(time.process_time() - begin, 1),
            "code": code_hash(path.read_text(encoding="utf-8")),
            "outputs": outputs,
        }
        (OUTPUTS / f"{name}.json").write_text(json.dumps(row, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{name}: {row['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
