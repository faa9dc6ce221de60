"""Questions about a table that only its user can answer: all of them at once, with the options that answer them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bo_robust.tables.cells import TableError


class Question(NamedTuple):
    """What can mean several things, and an option for each (with its meaning), to paste behind the command."""

    text: str
    answers: tuple[str, ...] = ()


def ask_all(path: Path, questions: Sequence[Question]) -> None:
    """Raise a ``TableError`` that lists all questions; nothing where there are none."""
    if len(questions) == 1:
        raise TableError(f"{path}: {_line(questions[0])}")
    if questions:
        lines = "".join(f"\n- {_line(question)}" for question in questions)
        raise TableError(f"{path} leaves {len(questions)} questions; answer each by an option:{lines}")


def _line(question: Question) -> str:
    if not question.answers:  # the table has to be corrected
        return f"{question.text}."
    several = len(question.answers) > 1
    return f"{question.text}; add {'one of: ' if several else ''}{', '.join(question.answers)}."
