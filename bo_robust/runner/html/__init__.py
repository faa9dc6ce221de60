"""One self-contained HTML page of a run: tables, pictures as inline SVG, settings, provenance; no scripts, no network.

``load`` reads a result folder, whole or not; ``arms`` and ``robust`` write the sections of a panel of the two kinds of
run (``truncation``, ``eliminations``, ``dictionaries``, ``environments`` and ``settings`` parts of them), ``elements``
and ``pictures`` their pieces; ``page`` puts all together.
"""

from bo_robust.runner.html.page import write_report

__all__ = ["write_report"]
