"""The command ``bo-robust``, and ``python -m bo_robust``."""

import io
import sys

HELP = (
    "usage: bo-robust suggest FILE ...\n\n"
    "  suggest  what to measure next, from a table of readings\n\n"
    "`bo-robust suggest --help` explains it."
)


def main() -> None:
    """Run the command of ``sys.argv``; exit code 2 if there is no such one."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.isatty():
            stream.reconfigure(encoding="utf-8")  # Windows would write its code page, which lacks most of Unicode
    command = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if command == "suggest":
        from bo_robust.tables.command import main as suggest

        sys.exit(suggest(sys.argv[2:]))
    if command in ("--help", "-h"):
        print(HELP)
        sys.exit(0)
    print(f"bo-robust: there is no command {command!r}; there is suggest.", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
