"""The command ``bo-robust``, and ``python -m bo_robust``."""

import importlib.util
import io
import sys

# What the extra [experiments] installs.
NEEDED = ("pydantic", "yaml", "typer", "rich", "pandas", "pyarrow", "matplotlib", "joblib")
COMMANDS = {
    "suggest": "what to measure next, from a table of readings",
    "run": "run the papers' experiments from a configuration file",
    "prepare": "make the file of a public data set from what you downloaded",
    "list": "list configurations, methods, problems and data sets",
}
HELP = (
    "usage: bo-robust COMMAND ...\n\n"
    + "".join(f"  {name:9s}{what}\n" for name, what in COMMANDS.items())
    + '\n`bo-robust COMMAND --help` explains one. All but suggest need the extra: pip install "bo-robust[experiments]"'
)


def main() -> None:
    """Run a command; where the extra that it needs is missing, say so and exit with code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.isatty():
            stream.reconfigure(encoding="utf-8")  # Windows would write its code page, which lacks most of Unicode
    command = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if command in ("--help", "-h"):
        print(HELP)
        sys.exit(0)
    if command == "suggest":  # needs no extra
        from bo_robust.tables.command import main as suggest

        sys.exit(suggest(sys.argv[2:]))
    if command not in COMMANDS:
        from difflib import get_close_matches

        (close,) = get_close_matches(command, COMMANDS, n=1, cutoff=0.0)
        sys.exit(_refused(f"there is no command {command!r}; did you mean {close}? ({', '.join(COMMANDS)})"))
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(_refused(f'{", ".join(missing)} not installed; run: pip install "bo-robust[experiments]"'))
    from bo_robust.experiments.cli import main as experiments

    experiments()


def _refused(message: str) -> int:
    print(f"bo-robust: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
