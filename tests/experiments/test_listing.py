import tomllib
from pathlib import Path

import pytest

from bo_robust.experiments.errors import RunError
from bo_robust.experiments.listing import REGISTRIES, everything, first_sentence, settings_of

ROOT = Path(__file__).resolve().parents[2]


def test_everything_has_a_line_that_is_a_plain_sentence():
    listed = everything()
    assert {"quickstart", "smoke", "heavy_tails/pareto"} <= listed["configurations (bo-robust run NAME)"].keys()
    for title, registry in REGISTRIES.items():
        assert [*listed[title]] == [*registry]
    assert "fin.csv" in listed.pop("data sets (bo-robust prepare NAME DOWNLOAD)")["djia29"]
    for title, entries in listed.items():
        for name, line in entries.items():
            assert line.endswith("."), (name, line)
            assert len(line) > (30 if "problems" in title else 10), (name, line)
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


def test_every_name_has_its_settings_with_their_defaults():
    for registry in REGISTRIES.values():
        for name in registry:
            assert settings_of(name)
    (bbkb,) = settings_of("bbkb").values()
    starts = ("width, by default {'kind'", "oversampling, must be given: ", "batch_constant, must be given: c >= 0.")
    assert [line[: len(start)] for line, start in zip(bbkb[1:], starts, strict=True)] == [*starts]
    both = settings_of("v-ucb")
    assert len(both) == 3
    assert sum("{'kind': 'finite', 'num_arms': 1}" in line for lines in both.values() for line in lines) == 2
    assert any("bo-robust prepare abalone" in line for line in settings_of("abalone")["data sets"])
    with pytest.raises(RunError, match="nothing is called 'bbkbb'; did you mean 'bbkb'"):
        settings_of("bbkbb")


def test_the_table_that_ships_has_its_source_and_licence():
    folder = ROOT / "bo_robust" / "data"
    assert {path.name for path in folder.iterdir()} == {"suzuki.csv", "README.md", "LICENSE"}
    assert "Olympus" in (folder / "README.md").read_text()
    assert (folder / "LICENSE").read_text().startswith("MIT License")


def test_configurations_are_packaged():
    with open(ROOT / "pyproject.toml", "rb") as file:
        targets = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["packages"] == ["bo_robust"]
    assert targets["wheel"]["force-include"] == {"configs": "bo_robust/configs"}
    assert {"/bo_robust", "/configs"} <= {*targets["sdist"]["include"]}
