"""Griffe extension: Sphinx roles in docstrings, such as :class:`~bo_robust.GPUCB`, become links."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|obj):`(~?)([^`]+)`")


def linked(text: str) -> str:
    """The text with its roles as optional cross-references; names relative to the module stay plain code."""

    def link(found: re.Match[str]) -> str:
        short, name = found.groups()
        shown = name.rsplit(".", 1)[-1] if short or name.startswith(".") else name
        if name.startswith("."):
            return f"`{shown}`"
        return f'<autoref identifier="{name}" optional><code>{shown}</code></autoref>'

    return ROLE.sub(link, text)


class Roles(griffe.Extension):
    """Rewrites the docstring of every object when it is loaded."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Griffe: an object was made."""
        if obj.docstring is not None:
            obj.docstring.value = linked(obj.docstring.value)

    def on_module_members(self, *, mod: griffe.Module, **kwargs: Any) -> None:
        """Griffe: a module was read. What it exports on first use is what it imports for type checkers."""
        if "on_first_use" in mod.members:
            mod.exports = [*(set(mod.members) - {"TYPE_CHECKING", "on_first_use"})]
