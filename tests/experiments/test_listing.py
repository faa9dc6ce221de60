"""What the command line lists: one plain sentence about every configuration and every entry of a registry."""

import tomllib
from pathlib import Path

import pytest

from bo_robust.experiments.listing import REGISTRIES, everything, first_sentence

ROOT = Path(__file__).resolve().parents[2]


def test_everything_has_a_line_that_is_a_plain_sentence():
    listed = everything()
    assert {"quickstart", "smoke", "heavy_tails/pareto"} <= listed["configurations (bo-robust run NAME)"].keys()
    for title, registry in REGISTRIES.items():
        assert [*listed[title]] == [*registry]
    for entries in listed.values():
        for name, line in entries.items():
            assert line.endswith("."), (name, line)
            assert len(line) > 10, (name, line)
            assert not {"`", "#", "\n", ":class"} & {*line}, (name, line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("One sentence. Another one.", "One sentence."),
        ("It spans\ntwo lines.\n\nAnd has more.", "It spans two lines."),
        ("Of :class:`bo_robust.utils.covariance.Matern` and ``nu`` = 2.5.", "Of Matern and nu = 2.5."),
        ("No stop", "No stop."),
    ],
)
def test_the_first_sentence(text, line):
    assert first_sentence(text) == line


def test_configurations_are_packaged():
    with open(ROOT / "pyproject.toml", "rb") as file:
        targets = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["packages"] == ["bo_robust"]
    assert targets["wheel"]["force-include"] == {"configs": "bo_robust/configs"}
    assert {"/bo_robust", "/configs"} <= {*targets["sdist"]["include"]}
