import numpy as np
import pytest
import torch

from benchmarks.problems.data import SHIPPED
from benchmarks.problems.designs import FUNCTIONS, LAB, Function, Laboratory, OwnTable

# Where BoTorch's best value of Michalewicz' function is; it has no `optimizers`.
MICHALEWICZ = (2.202906, 1.570796, 1.284992, 1.923058, 1.720470)


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_functions_are_in_standard_deviations_and_have_their_best_value(name):
    problem, f = Function(name).make(), FUNCTIONS[name]()
    sample = torch.rand(20_000, problem.d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = problem.value(sample)
    at = torch.tensor([MICHALEWICZ[: problem.d]]) if name.startswith("michalewicz") else f.optimizers
    bounds = f.bounds.double()
    optimum = problem.value((at.double() - bounds[0]) / (bounds[1] - bounds[0]))
    assert optimum.numpy() == pytest.approx(problem.best, abs=1e-4)
    assert values.max() <= problem.best
    assert problem.observe(sample[0], 0.5, 2.0) == pytest.approx(float(values[0]) + 0.2)


@pytest.mark.parametrize("name", list(LAB))
def test_tables_are_read_row_by_row(name, request):
    if name != "suzuki":
        request.getfixturevalue("data_dir")
    problem = Laboratory(name).make()
    values = problem.value(problem.candidates)
    assert values.max().item() == problem.best
    readings = [problem.observe(problem.candidates[0], u, 9.0) for u in np.linspace(0, 0.999, 60)]
    assert np.mean(sorted(set(readings))) == pytest.approx(values[0].item())
    assert torch.equal(problem.nearest(problem.candidates[3] + 1e-6), problem.candidates[3])


def test_the_table_that_ships_is_the_one_of_the_data_folder(data_dir):
    assert (SHIPPED / "suzuki.csv").read_bytes() == (data_dir / "lab" / "suzuki.csv").read_bytes()


def test_your_own_table(tmp_path):
    """Designs (a, red), (a, blue) and (b, red), of which the first has two replicates: means 2, 5 and 8, sd 3."""
    file = tmp_path / "mine.csv"
    file.write_text("temperature,color,impurity\n10,red,1\n20,blue,5\n10,red,3\n20,red,8\n")
    problem = OwnTable(file, "impurity", maximize=False).make()
    assert problem.candidates.tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]  # categories: blue, red
    assert problem.value(problem.candidates).tolist() == [1.0, -1.0, 0.0]
    first = problem.candidates[0]
    assert [problem.observe(first, u, 0.0) for u in (0.2, 0.7)] == pytest.approx([4 / 3, 2 / 3])
    assert problem.best == 1.0


BAD = [
    ("a,y\n1,2\n", {}, "has 1 designs"),
    ("a,y\n1,2\n2,2\n", {}, "all designs have the same y"),
    ("a,y\n1,2\nx,3\n", {}, "row 3, column 'a': a mixes numbers"),
    ("a,y\n1,2\n2,\n", {}, "row 3, column 'y' is blank"),
    ("a,y\n1,u\n2,v\n", {}, "column 'y' holds no numbers"),
    ("a,yield\n1,2\n2,3\n", {"target": "yeild"}, "no column 'yeild'; did you mean 'yield'"),
]


@pytest.mark.parametrize(("content", "options", "message"), BAD)
def test_bad_tables_name_row_and_column(tmp_path, content, options, message):
    (tmp_path / "mine.csv").write_text(content)
    with pytest.raises(ValueError, match=message):
        OwnTable(tmp_path / "mine.csv", **{"target": "y"} | options).make()


def test_a_table_that_is_not_there_says_where_it_comes_from(tmp_path, monkeypatch):
    monkeypatch.setenv("BO_ROBUST_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"lab/alkox.csv.*Olympus"):
        Laboratory("alkox").make()
