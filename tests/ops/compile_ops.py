"""What the compiler makes of the fused ops at the sizes that pay, without a GPU: ``python tests/ops/compile_ops.py``.

Every kernel is compiled for compute capabilities 8.0 and 9.0. A row of the table is a kernel: its dtype, tile and
warps, the capability, registers of a thread, bytes of stack (spills), bytes of shared memory, and how many programs
fit on a multiprocessor by these. Of several binaries the worst counts.
"""

import re
import subprocess
import tempfile
import warnings
from importlib import import_module
from pathlib import Path

import torch
import triton
from production import PRODUCTION
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from bo_robust.ops.cases import CASES

TYPES = {torch.float64: "*fp64", torch.float32: "*fp32", torch.int64: "*i64", torch.int32: "*i32", torch.int8: "*i8"}
OPTIONS = ("num_warps", "num_stages", "enable_fp_fusion")
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
CAPABILITIES = {80: 164 << 10, 90: 228 << 10}  # shared memory of a multiprocessor
done, rows = set(), {}


def used_by(cubin):
    """Registers of a thread, bytes of stack and bytes of shared memory."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [CUOBJDUMP, "-res-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return map(int, re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", usage).groups())


def compile_launch(function, *args, grid, warmup, **kwargs):
    """In place of a launch; arguments are specialized as Triton does: by type, and whole numbers by 1 and 16."""
    options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
    given = dict(zip(function.arg_names, args, strict=False)) | kwargs
    signature, constants, attributes = {}, {}, {}
    for i, parameter in enumerate(function.params):
        value = given[parameter.name]
        free = not parameter.is_constexpr and not parameter.do_not_specialize
        if parameter.is_constexpr or (free and not isinstance(value, torch.Tensor) and value == 1):
            signature[parameter.name], constants[(i,)] = "constexpr", value
            continue
        plain = parameter.annotation_type or ("fp32" if isinstance(value, float) else "i32")
        signature[parameter.name] = TYPES[value.dtype] if isinstance(value, torch.Tensor) else plain
        whole = free and not isinstance(value, (float, torch.Tensor)) and value % 16 == 0
        if whole or (isinstance(value, torch.Tensor) and not parameter.do_not_specialize_on_alignment):
            attributes[(i,)] = [["tt.divisibility", 16]]
    key = (function.__name__, *signature.values(), *constants.values(), *attributes)
    if key in done:
        return
    done.add(key)
    source = ASTSource(function, signature, constants, attributes)
    dtype = next(kind for kind in signature.values() if kind.startswith("*fp"))
    tile = " ".join(f"{name}={value}" for name, value in kwargs.items() if isinstance(value, int) and value > 1)
    warps = options.get("num_warps", 4)
    for capability, memory in CAPABILITIES.items():
        cubin = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).asm["cubin"]
        registers, stack, shared = used_by(cubin)
        per_thread = -(-registers // 8) * 8  # given out in eights
        fit = min(65536 // (per_thread * 32 * warps), 64 // warps, memory // (shared + 1024))
        row = (function.__name__, dtype[1:], tile, warps, f"{capability // 10}.{capability % 10}")
        before = rows.get(row, (0, 0, 0, fit))
        rows[row] = (*map(max, before[:3], (registers, stack, shared)), min(before[3], fit))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    JITFunction.run = compile_launch
    print("| kernel | dtype | tile | warps | capability | registers | stack | shared | programs at once |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for op in CASES:
        fused = import_module(f"bo_robust.ops.{op}.fused")
        for dtype in (torch.float64, torch.float32):
            for case in (CASES[op], *PRODUCTION[op]):
                case(fused, torch.empty(0, dtype=dtype))
    for row, found in sorted(rows.items()):
        print("|", " | ".join(map(str, (*row, *found))), "|")
