"""Files and modules that pages name are there."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs" / "pages").rglob("*.md"))]
PATH = re.compile(r"`((?:[\w.-]+/)+(?:[\w.-]+\.(?:py|yaml|toml|md|txt|csv|jsonl?))?)`")
MODULE = re.compile(r"`(?:python -m )?((?:bo_robust|benchmarks|docs|tests)(?:\.\w+)+)[^`]*`(?! of revision)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_exist(page):
    """They begin at the root of the repository, or in the package."""
    text = page.read_text(encoding="utf-8")
    missing = [
        path for path in PATH.findall(text) if not any((top / path).exists() for top in (ROOT, ROOT / "bo_robust"))
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_exist(page):
    for name in set(MODULE.findall(page.read_text(encoding="utf-8"))):
        assert _found(name), name


def _found(name):
    """Whether a dotted name leads to a module, or to something in one."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:k]))
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in ("bo_robust", "benchmarks", "docs", "tests"):
                return True  # of a host that is not installed
            continue
        for part in parts[k:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False
