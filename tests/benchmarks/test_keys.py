"""What results are named by."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from benchmarks.keys import canonical, code, definitions, digest


@dataclass(frozen=True)
class Part:
    values: object = None
    options: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Other:
    values: object = None
    options: dict = field(default_factory=dict)


def test_one_entry_of_a_long_tensor_is_another_name():
    """The ``repr`` of both is the same."""
    long = torch.linspace(0.0, 1.0, 5000, dtype=torch.float64)
    edited = long.clone()
    edited[2500] += 1e-12
    assert repr(long) == repr(edited)
    assert digest(Part(long)) == digest(Part(long.clone()))
    assert digest(Part(long)) != digest(Part(edited))


def test_what_differs_has_another_name(tmp_path):
    file, same = tmp_path / "a.csv", tmp_path / "b.csv"
    file.write_text("1")
    same.write_text("1")
    values = [None, True, 1, 1.0, "1", 0.1, 0.1 + 1e-17, [1, 2], [2, 1], [[1], 2], {"a": 1}, {"b": 1}]
    values += [torch.ones(2), torch.ones(2).double(), torch.ones(1, 2), np.ones(2, np.float32)[:1]]
    values += [Part(1), Other(1), Part(2), Part(1, {"a": 1}), float("nan"), range(3), file]
    names = [digest(value) for value in values]
    assert len(set(names)) == len(names)
    assert digest((1, 2)) == digest([1, 2])
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest(file) == digest(same)
    same.write_text("2")
    assert digest(file) != digest(same)


@pytest.mark.parametrize("value", [len, lambda x: x, Part, object(), {1, 2}, torch.float64])
def test_what_has_no_exact_form_is_refused(value):
    with pytest.raises(TypeError, match=r"options of .* holds .*has no exact form"):
        canonical(Part(1.0, {"options": value}))


def test_the_code_is_that_of_this_process():
    assert code() == code()
    assert len(code()) == 32


def test_definitions_of_a_configuration_are_part_of_the_code(tmp_path):
    """Not its settings, which name each job by itself."""
    text = 'from a import main\nTABLE["mine"] = lambda: 1\nPANELS = [1]\n\n\nclass Own:\n    x = 1\n'

    def of(text):
        (tmp_path / "mine.py").write_text(text)
        return definitions(tmp_path / "mine.py")

    assert of(text) == of(text.replace("[1]", "[2]").replace("main", "run"))
    assert of(text) != of(text.replace("lambda: 1", "lambda: 2"))
    assert of(text) != of(text.replace("x = 1", "x = 2"))
