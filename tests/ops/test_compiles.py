"""The ops compile for compute capabilities 8.0 and 9.0: what runs in the interpreter need not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KERNELS = {"_take_slots", "_times_root", "_scalars", "_stream", "_columns", "_squares", "_draw", "_root"}
# Bytes of stack; some registers are saved around an exponential or a logarithm in float64.
STACK = {"_columns": 16, "_draw": 16}


@pytest.mark.slow
def test_every_op_compiles_and_stays_in_registers():
    pytest.importorskip("triton", reason="triton is not installed")
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("compile_ops.py"))],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if "| _" in line]
    compiled = {(kernel, dtype, capability) for kernel, dtype, _, _, capability, *_ in rows}
    assert compiled == {(k, dtype, c) for k in KERNELS for dtype in ("fp64", "fp32") for c in ("8.0", "9.0")}
    for kernel, _, _, _, _, registers, stack, _, fit in rows:
        assert int(stack) <= STACK.get(kernel, 0), f"{kernel} spills"
        assert int(registers) <= 255
        assert int(fit) >= 1


@pytest.mark.slow
def test_no_kernel_is_compiled_anew_for_sizes_that_grow():
    """Rows, pending rows and the room for both differ from round to round, and so do a dictionary and its chunks.

    Rows of a block of rounds start anywhere. And q is not rounded to float32, as Triton does with a number of Python's.
    """
    pytest.importorskip("triton", reason="triton is not installed")
    code = (
        "from bo_robust.ops.arm_update import fused as arms\n"
        "from bo_robust.ops.dtc_scores import fused as dtc\n"
        "kernels = [(arms, kernel) for kernel in (arms._take_slots, arms._times_root, arms._scalars, arms._stream)]\n"
        "for fused, kernel in [*kernels, (dtc, dtc._columns), (dtc, dtc._squares)]:\n"
        "    print(*(p.name for p in kernel.params if not p.do_not_specialize and p.name in fused.GROWING))\n"
        "from bo_robust.ops.dtc_round.fused import _draw\n"
        "own = {p.name: p for p in _draw.params}\n"
        "print(*(name for name in ('arms', 'rewards', 'uniforms') if not own[name].do_not_specialize_on_alignment))\n"
        "print('fp32' * (own['oversampling'].annotation_type != 'fp64'))"
    )
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == []
