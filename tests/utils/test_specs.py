from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from bo_robust.utils.specs import SpecError, build, kind_of, nearest, quoted, typed


@dataclass(frozen=True)
class Level:
    moment_bound: float
    rounds: int = 1
    rule: str | None = None
    points: Mapping[str, Any] | tuple[int, ...] = ()

    def __post_init__(self):
        if self.moment_bound <= 0:
            raise ValueError("moment_bound must be > 0")


REGISTRY = {"level": Level, "function": lambda a, b=2: (a, b)}


def test_options_come_from_the_spec_then_the_context_then_the_default():
    context = {"moment_bound": 3.0, "rounds": None, "unused": 7}
    assert build({"kind": "level", "moment_bound": 2}, REGISTRY, context, "level") == Level(2.0)
    assert build({"kind": "level", "rounds": 5}, REGISTRY, context, "level") == Level(3.0, 5)
    assert build({"kind": "function"}, REGISTRY, {"a": 1}, "thing") == (1, 2)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"kind": "levle"}, "unknown truncation 'levle'; did you mean 'level'\\?"),
        ({"kind": "level", "moment_bond": 1.0}, "has no 'moment_bond'; did you mean 'moment_bound'\\?"),
        ({"kind": "level"}, "truncation 'level' needs 'moment_bound', which must be given"),
        ({"kind": "level", "moment_bound": "4"}, "moment_bound of truncation 'level' must be a number, got '4'"),
        ({"kind": "level", "moment_bound": True}, "must be a number, got True"),
        ({"kind": "level", "moment_bound": 1, "rounds": 1.5}, "rounds of .* must be a whole number"),
        ({"kind": "level", "moment_bound": 1, "rule": 3}, "must be text or empty, got 3"),
        ({"kind": "level", "moment_bound": 0}, "truncation 'level': moment_bound must be > 0"),
        ({"moment_bound": 1}, "truncation has no `kind`"),
        ({"kind": 3}, "the kind of truncation must be text, got 3"),
        ("level", "truncation must be a mapping with a `kind`, got 'level'"),
        ({3: 4}, "the key 3, which is no text"),
    ],
)
def test_errors_say_what_to_change(spec, message):
    with pytest.raises(SpecError, match=message):
        build(spec, REGISTRY, {}, "truncation")


def test_unions_containers_and_unknown_hints():
    assert typed({}, Mapping[str, Any] | tuple[int, ...], "x") == {}
    assert typed(None, float | None, "x") is None
    assert typed(True, bool | None, "x") is True
    assert typed(object, Any, "x") is object
    with pytest.raises(SpecError, match="x must be a mapping or tuple, got 3"):
        typed(3, Mapping[str, Any] | tuple[int, ...], "x")


def test_long_values_are_cut():
    assert quoted("a" * 500) == "'" + "a" * 79 + "..."
    with pytest.raises(SpecError) as error:
        kind_of(["x" * 10_000], "width")
    assert len(str(error.value)) < 200


def test_nearest_without_anything_near():
    assert nearest("zzz", ["b", "a"]) == "choose one of: a, b"
    assert nearest("BA", ["b-a", "z"]) == "did you mean 'b-a'? (one of: b-a, z)"


def test_what_is_cut_off_is_never_written_out():
    written = []

    class Watched:
        def __repr__(self):
            written.append(1)
            return "w"

    assert quoted([[[[[Watched()] * 40] * 40] * 40] * 40]).startswith("[[[[")
    assert len(written) <= 10**4
    assert quoted(10**5000) == "a number of very many digits"
    assert len(quoted("x" * 10**6)) == 83
