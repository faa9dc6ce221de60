"""The command ``bo-robust``, and ``python -m bo_robust``."""

import importlib.util
import sys

# What the extra [experiments] installs.
NEEDED = ("pydantic", "yaml", "typer", "rich", "pandas", "pyarrow", "matplotlib", "joblib")


def main() -> None:
    """Run a command; where the extra that it needs is missing, say so and exit with code 2."""
    if sys.argv[1:2] == ["suggest"]:  # needs no extra
        from bo_robust.spreadsheet import main as suggest

        sys.exit(suggest(sys.argv[2:]))
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f'bo-robust: {", ".join(missing)} not installed; run: pip install "bo-robust[experiments]"', file=sys.stderr
        )
        sys.exit(2)
    from bo_robust.experiments.cli import main as experiments

    experiments()


if __name__ == "__main__":
    main()
