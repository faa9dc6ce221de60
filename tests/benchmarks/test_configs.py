"""Every configuration makes panels, and everything that measures can be imported."""

import importlib
from pathlib import Path

import pytest

from benchmarks.panel import Panel

ROOT = Path(__file__).resolve().parents[2]


def modules(folder):
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("name", modules("benchmarks"))
def test_it_is_importable(name):
    if name == "benchmarks.coco":
        pytest.importorskip("cocoex")
    importlib.import_module(name)


@pytest.mark.parametrize("name", [name for name in modules("configs") if not name.endswith(".methods")])
def test_it_makes_panels_and_runs_them(name):
    panels = importlib.import_module(name).PANELS
    assert all(isinstance(panel, Panel) for panel in panels)
    assert len({panel.name for panel in panels}) == len(panels) > 0
    text = (ROOT / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8")
    assert text.endswith('if __name__ == "__main__":\n    main(PANELS)\n')
