"""How the programs of the package end: one line on the standard error for what a user can put right, no traceback."""

import sys
from typing import NoReturn

import typer


def run_app(app: typer.Typer, name: str, mistakes: type[Exception]) -> NoReturn:
    """Run a program and exit; ``mistakes`` and errors of files print ``name`` and their text, and give exit code 2."""
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except (mistakes, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:  # click's usage errors know how to show themselves
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            error.show()
            sys.exit(error.exit_code)
        raise
