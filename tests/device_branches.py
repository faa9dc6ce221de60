"""Which branches of the device are executed: ``python -m tests.device_branches`` runs tests on a CPU and simulated.

Everything that a device changes asks :func:`bo_robust.utils.linalg.on_cuda`. Every call of it is listed with the
answers that the tests met, and the script fails if one answer is missing. It is a plugin of pytest too, which writes
the answers.
"""

import ast
import json
import os
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "bo_robust"
# What .ci/run runs with CUDA simulated.
TESTS = [
    "tests/bandits/posteriors",
    "tests/bandits",
    "tests/contract",
    "tests/features",
    "tests/models/test_feature_gp.py",
    "tests/experiments/test_fused_rounds.py",
    "tests/experiments/problems/conditions",
    "tests/ops/test_checked.py",
    "tests/ops/test_inverse_root.py",
    "tests/ops/test_weighted_quantile.py",
    "tests/test_devices.py",
]
ANSWERS = "BO_ROBUST_DEVICE_ANSWERS"  # where the plugin writes


def calls() -> set[str]:
    """Every call of ``on_cuda`` as file:line."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "on_cuda":
                found.add(f"{path.relative_to(PACKAGE).as_posix()}:{node.lineno}")
    return found


def pytest_configure(config):
    """Write down what every caller of ``on_cuda`` is answered."""
    if ANSWERS not in os.environ:
        return
    from bo_robust.utils import linalg

    asked, seen = linalg.on_cuda, {}

    def on_cuda(x):
        answer, frame = asked(x), sys._getframe(1)
        file = Path(frame.f_code.co_filename)
        if PACKAGE in file.parents:
            seen.setdefault(f"{file.relative_to(PACKAGE).as_posix()}:{frame.f_lineno}", set()).add(answer)
        return answer

    for path in sorted({call.split(":")[0] for call in calls()}):
        module = import_module("bo_robust." + path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        module.on_cuda = on_cuda

    def write():
        name = Path(os.environ[ANSWERS]) / f"{os.getpid()}.json"
        name.write_text(json.dumps({call: sorted(answers) for call, answers in seen.items()}))

    config.add_cleanup(write)


def main() -> None:
    """Run the tests on both devices, and print every call with its answers."""
    answers: dict[str, set[bool]] = {call: set() for call in calls()}
    with tempfile.TemporaryDirectory() as folder:
        for device in ("cpu", "simulated"):
            command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.device_branches", "--device", device, *TESTS]
            done = subprocess.run([*command, *sys.argv[1:]], cwd=ROOT, env=os.environ | {ANSWERS: folder}, check=False)
            if done.returncode:
                sys.exit(f"the tests fail on {device}")
        for path in Path(folder).iterdir():
            for call, seen in json.loads(path.read_text()).items():
                answers[call] |= set(seen)
    for call in sorted(answers):
        print(f"{call:55} {'both' if len(answers[call]) == 2 else sorted(answers[call]) or 'never asked'}")
    if missing := [call for call in answers if len(answers[call]) < 2]:
        sys.exit(f"{len(missing)} of {len(answers)} branches of the device are not executed both ways")
    print(f"all {len(answers)} branches of the device are executed both ways")


if __name__ == "__main__":
    main()
