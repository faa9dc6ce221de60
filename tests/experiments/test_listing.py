"""What the command line lists: one plain sentence about every entry, quickly."""

import subprocess
import sys
from pathlib import Path

import pytest

from bo_robust.experiments import listing
from bo_robust.experiments.listing import everything, plain_line, registry_lines

ROOT = Path(__file__).resolve().parents[2]
CLI = [sys.executable, "-m", "bo_robust.experiments.cli"]


def test_every_entry_of_every_registry_has_a_line():
    import importlib

    found = everything()
    assert len(found) == len(listing.REGISTRIES)
    for title, module, name in listing.REGISTRIES:
        assert [*found[title]] == [*getattr(importlib.import_module(module), name)]


def test_lines_are_whole_sentences_without_markup():
    for entries in everything().values():
        for name, line in entries.items():
            assert line.endswith("."), (name, line)
            assert len(line) > 10, (name, line)
            assert "`" not in line
            assert ":class" not in line
            assert "\n" not in line


@pytest.mark.parametrize(
    ("docstring", "line"),
    [
        ("One sentence. Another one.", "One sentence."),
        ("It spans\ntwo lines.\n\nAnd has more.", "It spans two lines."),
        ("Of :class:`bo_robust.covariance.Matern` and ``nu`` = 2.5.", "Of Matern and nu = 2.5."),
        ("No stop", "No stop."),
    ],
)
def test_the_first_sentence(docstring, line):
    assert plain_line(docstring) == line


def test_a_registry_that_is_not_there():
    with pytest.raises(LookupError, match=r"bo_robust\.truncation has no dict WIDTHS"):
        registry_lines("bo_robust.truncation", "WIDTHS")


def test_list_and_help_load_no_pytorch():
    """Which takes seconds; without it both take a fraction of one."""
    for arguments in (["list"], ["--help"], ["run", "--help"]):
        code = f"import sys; sys.argv = ['bo-robust', *{arguments}]\nfrom bo_robust.experiments import cli\n"
        code += "try:\n    cli.main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        code += "print('loaded:', sorted({'torch', 'matplotlib', 'pandas'} & {*sys.modules}))"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.rstrip().endswith("loaded: []"), done.stdout[-500:]
        assert ":class:" not in done.stdout
        assert "``" not in done.stdout
