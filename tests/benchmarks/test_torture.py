"""The torture counts what goes wrong: content that changed unsaid, and errors that do not name the file."""

import json

import pytest

from benchmarks import torture
from bo_robust.experiments.errors import RunError


def _with(error):
    def content(folder):
        if (folder / "file").read_bytes() != b"good":
            raise error(folder)
        return "good"

    return content


@pytest.mark.parametrize(
    ("content", "verdict", "wrong"),
    [
        (lambda folder: (folder / "file").read_bytes(), "wrong", 4),
        (lambda folder: "the same", "harmless", 0),
        (_with(lambda folder: RunError(f"{folder}/file is damaged. Delete it.")), "said", 0),
        (_with(lambda folder: RunError(f"{folder}/file is damaged.")), "said without file or remedy", 4),
        (_with(lambda folder: RunError("a file is damaged. Delete it.")), "said without file or remedy", 4),
        (_with(lambda folder: KeyError("recomMended")), "raw error", 4),
    ],
)
def test_verdicts(tmp_path, capsys, monkeypatch, content, verdict, wrong):
    monkeypatch.setattr(torture, "MISSED", [])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_bytes(b"good")
    torture.damage("flips", [tmp_path / "out"], torture.flipped, content, 4, tmp_path)
    row = json.loads(capsys.readouterr().out)
    assert row["detail"] == {"harmed": 4, "files": 1, verdict: 4}
    assert (row["value"], row["met"]) == (wrong, wrong == 0)
    assert (["flips"] if wrong else []) == torture.MISSED


def test_runs_that_end_differently_are_counted(tmp_path, capsys, monkeypatch):
    """Traces of another seed after the first kill."""
    monkeypatch.setattr(torture, "MISSED", [])
    real, seeds = torture.runs.start, iter([0])

    def other(config, folder, **options):
        return real(torture.config(next(seeds, 1), 1000), folder, **options)

    monkeypatch.setattr(torture.runs, "start", other)
    torture.killed_runs(1, tmp_path)
    detail = json.loads(capsys.readouterr().out)["detail"]
    assert detail["differing"] == detail["runs"] == 1
