"""The machine with a GPU has torch, triton, botorch and what these need; the benchmark must start there."""

import subprocess
import sys

BLOCKED = ("pydantic", "pandas", "yaml", "rich", "typer", "matplotlib", "pyarrow", "joblib", "optuna", "ax")
PROGRAM = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED}:
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
import benchmarks.gpu, benchmarks.ops.registry
print(sorted(benchmarks.gpu.PARTS))
"""


def test_the_benchmark_needs_only_torch_triton_and_botorch():
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert "bkb" in said.stdout
