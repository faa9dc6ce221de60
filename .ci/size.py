"""Lines of Python in each folder, against the limits in ``.ci/size``: ``python .ci/size.py``.

A commit may lower a limit freely. One that raises a limit does nothing else, and says what for.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMITS = Path(__file__).with_name("size")


def lines(folder: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))


def main() -> int:
    """Print a line for each folder; the exit code is 1 if one has too many lines, or no limit."""
    limits = dict(line.split() for line in LIMITS.read_text(encoding="utf-8").splitlines() if line[:1] not in ("", "#"))
    parts = {f"bo_robust/{path.name}" for path in (ROOT / "bo_robust").iterdir() if any(path.rglob("*.py"))}
    failed = False
    for name in sorted({"bo_robust", "benchmarks", "configs", "tests", *parts}):
        if not (ROOT / name).is_dir():
            continue
        found, limit = lines(ROOT / name), int(limits.get(name, -1))
        print(f"{name}: {found} lines of {limit}" + " TOO MANY" * (found > limit))
        failed |= found > limit
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
