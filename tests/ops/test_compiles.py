"""The ops compile for a Hopper GPU: what runs in the interpreter need not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OPS = (
    "_take_slots",
    "_scalars",
    "_stream",
    "_fused_rounds",
    "_columns",
    "_squares",
)


@pytest.mark.slow
def test_every_op_compiles_for_hopper_and_stays_in_registers():
    pytest.importorskip("triton", reason="triton is not installed")
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("compile_for_hopper.py"))],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split() for line in done.stdout.splitlines()]
    assert {(line[0], line[1]) for line in lines} == {(name, dtype) for name in OPS for dtype in ("*fp64", "*fp32")}
    for name, _, registers, stack, _ in lines:
        assert int(stack) <= (64 if name == "_fused_rounds" else 0), f"{name} spills"
        assert int(registers) <= 255
