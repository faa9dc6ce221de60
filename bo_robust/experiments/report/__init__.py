"""One self-contained HTML page of a run: tables, pictures as inline SVG, settings, provenance; no scripts, no network.

``arms`` and ``conditions`` prepare plain data of a panel, section by section. ``pictures`` draws. ``templates/``
holds all words, markup and columns of tables; ``page`` fills the templates.
"""

from bo_robust.experiments.report.page import write_report

__all__ = ["write_report"]
