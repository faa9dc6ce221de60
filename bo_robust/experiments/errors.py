"""The one exception a user meets on the command line: one clear line, no traceback."""


class RunError(Exception):
    """Something the user can put right; the message says how. Any function of ``experiments`` may raise it."""
