import inspect
import math

import pytest
import torch

from benchmarks.problems import ARM_PROBLEMS, make_conditions_problem, make_problem
from bo_robust.utils.random import stream

REFUSED = [
    ("rkhs_funtion", {}, "did you mean 'rkhs_function'"),
    ("zzz", {}, "one of: abalone, ball, cmu_light"),
    ("branin", {}, "unknown problem 'branin'"),
    ("intel_lab", {"rows": 3}, r"has no 'rows'; choose one of: data_dir"),
    ("gp_draw", {"seed": 3}, "has no 'seed'"),
    ("rkhs_function", {"noise": {"kind": "pareto"}}, "positive=True"),
    ("rkhs_function", {"kernel": "rbf"}, "kernel must be one of"),
    *(("rkhs_function", {name: 0}, name) for name in ("lengthscale", "num_arms", "noise_var")),
    ("rkhs_function", {"alpha": 1.2}, "alpha must be in"),
    ("spiked_function", {"num_arms": 1}, "num_arms must be at least 2"),
    ("spiked_function", {"magnitude": 0.0}, "magnitude"),
    *(("many_arms", {name: 0}, name) for name in ("num_arms", "dim", "lengthscale")),
    ("many_arms", {"num_arms": 5, "noise_var": 0.0}, "noise_var"),
    ("hard_instance", {"peaks": 0}, "peaks"),
    ("hard_instance", {"peaks": 400}, r"peaks=400 .* fewer peaks"),
    ("hard_instance", {"gap": 2.0, "v": 1.0}, "smaller gap"),
    ("abalone", {"lengthscale": -1.0}, "lengthscale"),
    ("djia29", {"scaling": "raw"}, "scaling must be one of"),
    ("unknown_lengthscale", {"lengthscales": []}, "at least one number"),
    ("unknown_lengthscale", {"lengthscales": [0.5, 0.5]}, "all different"),
    ("unknown_lengthscale", {"lengthscales": [-0.5]}, "lengthscale"),
    ("unknown_lengthscale", {"kernel": "rbf"}, "kernel must be one of"),
    *(("unknown_lengthscale", {name: -1.0}, name) for name in ("noise_scale", "norm_bound")),
    ("unknown_decomposition", {"per_axis": 1}, "per_axis"),
    ("unknown_decomposition", {"lengthscale": math.inf}, "lengthscale"),
    ("unknown_mean", {"outputscale": 2.0}, "<= 1"),
    ("unknown_mean", {"hill": 3.0}, "0 < hill < tallest"),
    ("unknown_mean", {"noise_scale": -1.0}, "noise_scale"),
]

SMALL = {"gp_draw": {"num_arms": 60}, "unknown_decomposition": {"per_axis": 4}}


@pytest.fixture
def build(request):
    """make_problem with the data folder, skipping where a problem's data is absent."""

    def make(name, trials, **params):
        settings = inspect.signature(ARM_PROBLEMS[name]).parameters if name in ARM_PROBLEMS else ()
        folder = request.getfixturevalue("data_dir") if "data_dir" in settings else None
        return make_problem(name, trials, 4, data_dir=folder, **SMALL.get(name, {}) | params)

    return make


@pytest.mark.parametrize("name", sorted(ARM_PROBLEMS))
def test_a_trial_alone_is_that_among_others_in_either_precision(name, build, device):
    alone = build(name, [7]).to(device, torch.float64)
    among = build(name, range(16)).to(device, torch.float64)
    assert alone.name == name
    assert torch.equal(alone.f[0], among.f[7])
    for constant in ("noise_var", "norm_bound", "moment_bound", "alpha", "noise_scale", "arm_names"):
        assert getattr(alone, constant) == getattr(among, constant), constant
    if isinstance(alone.kernel, torch.Tensor):
        assert torch.equal(alone.kernel, among.kernel)
    if alone.candidates is not None:
        ours, theirs = alone.candidates, among.candidates
        for part in ("names", "lengthscales"):
            assert getattr(ours, part) == getattr(theirs, part), part
        for part in ("kernels", "prior_means"):
            one, other = getattr(ours, part), getattr(theirs, part)
            assert one is other is None or torch.equal(one, other)
        assert (ours.true is None and theirs.true is None) or ours.true[0] == theirs.true[7]
    draws = torch.from_numpy(among.rewards.draw(stream(4, "reward", 7), 16)).to(device)
    arms = torch.arange(16, device=device) % among.num_arms
    for t in range(16):
        together = among.rewards(among.f, arms[t].expand(16), draws[t].expand(16, -1))
        assert torch.equal(together[7:8], alone.rewards(alone.f, arms[t : t + 1], draws[t : t + 1]))
    assert among.notes
    single = among.to(device, torch.float32)
    y = single.rewards(single.f, arms, draws.float())
    assert (y.shape, y.dtype, y.device.type) == ((16,), torch.float32, device.type)
    assert bool(torch.isfinite(y).all())
    if single.candidates is not None:
        parts = [x for x in (single.candidates.kernels, single.candidates.prior_means) if x is not None]
        assert {(x.dtype, x.device.type) for x in parts} == {(torch.float32, device.type)}


def test_seeds_and_trials_differ(build):
    one, two = build("rkhs_function", [0]), make_problem("rkhs_function", [0], 5)
    assert not torch.equal(one.f, two.f)
    f = build("rkhs_function", range(8)).f
    assert len(torch.unique(f, dim=0)) == 8


@pytest.mark.parametrize(("name", "params", "message"), REFUSED)
def test_refused(build, name, params, message):
    with pytest.raises(ValueError, match=message):
        build(name, [0], **params)


def test_a_problem_is_of_one_loop():
    with pytest.raises(ValueError, match="unknown problem 'gp_draw'"):
        make_conditions_problem("gp_draw")


def test_data_dir_is_ignored_by_problems_without_data(tmp_path):
    assert make_problem("hard_instance", [0], 0, data_dir=tmp_path).num_arms == 100


def test_notes_say_what_a_standard_error_covers(build):
    for name in ("intel_lab", "metr_la_week"):
        assert "not new days" in build(name, [0]).notes, name
    for name in ("cmu_light", "djia29"):
        assert "All trials share one f" in build(name, [0]).notes, name
