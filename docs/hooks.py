"""What this site has beside its pages: the README, results and their pictures, tutorials, changelog.

Nothing of it is committed twice. The README is the first page. Pages link to ``../../benchmarks/results/FILE`` and
``../results/PAGE``, as they would be read in the repository; at build time both are added to the site under
``results/``, the pages with their tables (:mod:`docs.result_pages`), and the links follow.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))  # mkdocs loads this file alone
RESULTS = ROOT / "benchmarks" / "results"
TUTORIALS = ROOT / "docs" / "tutorials"
OUTPUTS = TUTORIALS / "outputs"


class Cell(NamedTuple):
    """One cell of a tutorial.

    Attributes:
        kind: "prose" (its text is Markdown) or "code".
        text: Without the marker line, and for prose without the comment signs.
    """

    kind: str
    text: str


def cells(source: str) -> list[Cell]:
    """The cells of a script in percent format, in order."""
    parts = re.split(r"^# %%(.*)$", source, flags=re.M)
    found = []
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        if "[markdown]" in title:
            lines = [re.sub(r"^# ?", "", line) for line in body.strip().splitlines()]
            found.append(Cell("prose", "\n".join(lines)))
        else:
            found.append(Cell("code", body.strip()))
    return found


def code_hash(source: str) -> str:
    """Of the code cells alone: prose may change without running the tutorial again."""
    code = "\n".join(cell.text for cell in cells(source) if cell.kind == "code")
    return hashlib.sha256(code.encode()).hexdigest()


def tutorial_page(path: Path) -> str:
    """Markdown of a tutorial: prose, code, and what the code printed when ``docs.run_tutorials`` last ran it."""
    stored = OUTPUTS / f"{path.stem}.json"
    stored_run = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {"outputs": {}}
    lines = []
    for i, cell in enumerate(cells(path.read_text(encoding="utf-8"))):
        if cell.kind == "prose":
            lines += [cell.text, ""]
            continue
        lines += ["```python", cell.text, "```", ""]
        if str(i) in stored_run["outputs"]:
            lines += ["```text", stored_run["outputs"][str(i)].rstrip(), "```", ""]
    lines += ["---", "", f"This page is the script `docs/tutorials/{path.name}`.", *_provenance(stored_run)]
    return "\n".join(lines) + "\n"


def _provenance(run: dict[str, Any]) -> list[str]:
    if "date" not in run:
        return ["It has not been run yet."]
    return [
        f"What it printed is of {run['date'][:10]}: {run['seconds']:.0f} s of one thread, {run['processor']}, "
        f"torch {run['versions']['torch']}. Another machine rounds differently.",
    ]


HOMES = (  # of the README's links: where they lead in the repository, and where on the site
    (re.compile(r"docs/pages/(.+)"), r"\1"),
    (re.compile(r"docs/results/(.+)"), r"results/\1"),
    (re.compile(r"docs/tutorials/(\w+)\.py"), r"tutorials/\1.md"),
    (re.compile(r"benchmarks/results/(.+\.(?:png|jsonl?))"), r"results/\1"),
    (re.compile(r"CHANGELOG\.md"), "changelog.md"),
    (re.compile(r"((?:https?://|#).+)"), r"\1"),
)


def home(readme: str) -> str:
    """The README as the first page: links lead to pages of the site, or are plain text where it has no such page."""

    def link(found: re.Match[str]) -> str:
        text, target = found.groups()
        for repository, site in HOMES:
            if inside := repository.fullmatch(target):
                return f"[{text}]({inside.expand(site)})"
        return text

    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", link, readme)


def on_files(files: Any, config: Any) -> Any:
    """mkdocs: the files of the site that lie outside ``docs/pages`` or are written here."""
    from mkdocs.structure.files import File

    for path in sorted(RESULTS.rglob("*")):
        if path.suffix in (".png", ".json", ".jsonl"):
            uri = posixpath.join("results", path.relative_to(RESULTS).as_posix())
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    from docs.result_pages import PAGES, page

    for path in sorted(PAGES.glob("*.md")):
        text = re.sub(
            r"\]\(\.\./tutorials/(\w+)\.py", r"](../tutorials/\1.md", page(path).replace("](../pages/", "](../")
        )
        files.append(File.generated(config, f"results/{path.name}", content=text))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=home(readme)))
    for path in sorted(TUTORIALS.glob("*.py")):
        files.append(File.generated(config, f"tutorials/{path.stem}.md", content=tutorial_page(path)))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "changelog.md", content=changes))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """mkdocs: links to pages of results and to benchmarks/results."""
    folder = posixpath.dirname(page.file.src_uri)
    here = posixpath.relpath("results", folder or ".")
    if not folder:
        markdown = markdown.replace("](../results/", "](results/")
    return re.sub(r"(?:\.\./)+benchmarks/results/", f"{here}/", markdown)
