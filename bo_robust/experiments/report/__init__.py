"""One self-contained HTML page of a run: tables, pictures, settings, provenance; no scripts, no network.

``panels`` prepares the pictures of a panel, which ``pictures`` draws. ``page`` puts everything into the one template,
``report.html.j2``.
"""

from bo_robust.experiments.report.page import write_report

__all__ = ["write_report"]
