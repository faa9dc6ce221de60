import numpy as np
import pytest
import torch

from benchmarks.problems import make_design_problem as make
from benchmarks.problems.data import SHIPPED
from benchmarks.problems.designs import FUNCTIONS, LAB
from bo_robust.utils.specs import SpecError

# Where BoTorch's best value of Michalewicz' function is; it has no `optimizers`.
MICHALEWICZ = (2.202906, 1.570796, 1.284992, 1.923058, 1.720470)


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_functions_are_in_standard_deviations_and_have_their_best_value(name):
    problem, f = make("function", function=name), FUNCTIONS[name]()
    sample = torch.rand(20_000, problem.d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = problem.value(sample)
    assert abs(values.mean()) < 0.1
    assert values.std().item() == pytest.approx(1.0, abs=0.1)
    at = torch.tensor([MICHALEWICZ[: problem.d]]) if name.startswith("michalewicz") else f.optimizers
    bounds = f.bounds.double()
    optimum = problem.value((at.double() - bounds[0]) / (bounds[1] - bounds[0]))
    assert optimum.numpy() == pytest.approx(problem.best, abs=1e-4)
    assert values.max() <= problem.best
    assert problem.observe(sample[0], 0.5, 2.0) == pytest.approx(float(values[0]) + 0.2)


@pytest.mark.parametrize("name", list(LAB))
def test_tables_are_read_row_by_row(name, request):
    problem = make("laboratory", table=name, data_dir=None if name == "suzuki" else request.getfixturevalue("data_dir"))
    values = problem.value(problem.candidates)
    assert values.std().item() == pytest.approx(1.0)
    assert values.max().item() == problem.best
    readings = [problem.observe(problem.candidates[0], u, 9.0) for u in np.linspace(0, 0.999, 60)]
    assert np.mean(sorted(set(readings))) == pytest.approx(values[0].item())
    assert len({tuple(x) for x in problem.initial_design(8, 0).tolist()}) == 8
    assert torch.equal(problem.nearest(problem.candidates[3] + 1e-6), problem.candidates[3])


def test_the_table_that_ships_is_the_one_of_the_data_folder(data_dir):
    assert (SHIPPED / "suzuki.csv").read_bytes() == (data_dir / "lab" / "suzuki.csv").read_bytes()


def test_your_own_table(tmp_path):
    """Designs (a, red), (a, blue) and (b, red), of which the first has two replicates: means 2, 5 and 8, sd 3."""
    file = tmp_path / "mine.csv"
    file.write_text("temperature,color,impurity\n10,red,1\n20,blue,5\n10,red,3\n20,red,8\n")
    problem = make("csv", file=str(file), target="impurity", maximize=False)
    assert problem.candidates.tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]  # categories: blue, red
    assert problem.value(problem.candidates).tolist() == [1.0, -1.0, 0.0]
    first = problem.candidates[0]
    assert [problem.observe(first, u, 0.0) for u in (0.2, 0.7)] == pytest.approx([4 / 3, 2 / 3])
    assert problem.best == 1.0


BAD = [
    ("a,y\n1,2\n", {}, "has 1 designs"),
    ("a,y\n1,2\n2,2\n", {}, "all designs have the same y"),
    ("a,y\n1,2\nx,3\n", {}, "row 3, column 'a': 'x' is no number"),
    ("a,y\n1,2\n2,\n", {}, "row 3, column 'y' is blank"),
    ("a,y\n1,u\n2,v\n", {}, "column 'y' holds no numbers"),
    ("a,yield\n1,2\n2,3\n", {"target": "yeild"}, "no column 'yeild'; did you mean 'yield'"),
]


@pytest.mark.parametrize(("content", "options", "message"), BAD)
def test_bad_tables_name_row_and_column(tmp_path, content, options, message):
    (tmp_path / "mine.csv").write_text(content)
    with pytest.raises(ValueError, match=message):
        make("csv", file=str(tmp_path / "mine.csv"), **{"target": "y"} | options)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("function", {"function": "branni"}, "did you mean 'branin'"),
        ("function", {"function": "branin", "noise_sd": 0.0}, "noise_sd"),
        ("function", {}, "needs 'function'"),
        ("laboratory", {"table": "suzuky"}, "did you mean 'suzuki'"),
        ("csv", {"file": "nowhere.csv", "target": "y"}, "nowhere.csv"),
    ],
)
def test_refused(kind, options, message):
    with pytest.raises((SpecError, ValueError), match=message):
        make(kind, **options)


def test_a_table_that_is_not_there_says_where_it_comes_from(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"lab/alkox.csv.*Olympus"):
        make("laboratory", table="alkox", data_dir=tmp_path)
