"""Compiles what the ops of the registry launch for compute capability 9.0, without a GPU; run by test_compiles.py.

Prints a line per op and dtype: its name, registers, stack frame and shared memory.
"""

import re
import subprocess
import tempfile
import warnings
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from benchmarks.ops.registry import OPS

TYPES = {torch.float64: "*fp64", torch.float32: "*fp32", torch.int64: "*i64", torch.int32: "*i32", torch.int8: "*i8"}
OPTIONS = ("num_warps", "num_stages", "enable_fp_fusion")
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
done = set()


def compile_launch(function, *args, grid, warmup, **kwargs):
    """In place of a launch; arguments are specialised as Triton does: by type, and whole numbers by 1 and 16."""
    options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
    given = dict(zip(function.arg_names, args, strict=False)) | kwargs
    signature, constants, attributes = {}, {}, {}
    for i, parameter in enumerate(function.params):
        value = given[parameter.name]
        free = not parameter.is_constexpr and not parameter.do_not_specialize
        if parameter.is_constexpr or (free and not isinstance(value, torch.Tensor) and value == 1):
            signature[parameter.name], constants[(i,)] = "constexpr", value
            continue
        plain = "fp32" if isinstance(value, float) else "i32"
        signature[parameter.name] = TYPES[value.dtype] if isinstance(value, torch.Tensor) else plain
        if isinstance(value, torch.Tensor) or (free and not isinstance(value, float) and value % 16 == 0):
            attributes[(i,)] = [["tt.divisibility", 16]]
    key = (function.__name__, *signature.values(), *constants.values(), *attributes)
    if key in done:
        return
    done.add(key)
    source = ASTSource(function, signature, constants, attributes)
    cubin = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["cubin"]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", usage)
    print(function.__name__, next(t for t in signature.values() if t.startswith("*fp")), *found.groups(), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    JITFunction.run = compile_launch
    for op in OPS.values():
        for dtype in (torch.float64, torch.float32):
            op.fused(op.make(op.small, "cpu", dtype))
