"""A fused path that fails on a device is found out before its first call: the op runs plain, with one warning."""

import math
import warnings
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bo_robust.ops import arm_update, checked, dtc_round, dtc_scores
from bo_robust.ops.cases import CASES
from tests.ops.production import PRODUCTION

CPU = torch.device("cpu")
LIKE = torch.empty(0, dtype=torch.float64)
# The ops as others call them, with the arguments that a case gives; the case passes covariances to "naive".
PUBLIC = SimpleNamespace(
    __name__="naive",
    update_=arm_update.update_,
    dtc_scores=dtc_scores.dtc_scores,
    draw_=dtc_round.draw_,
    inverse_root=dtc_round.inverse_root,
)
# Of every op: a function of its fused module, a tensor that it writes, and the last of its kernels.
FUSED = {
    "arm_update": ("update_", lambda out, given: given[0].mean, "_stream"),
    "dtc_scores": ("dtc_scores", lambda out, given: out.variance, "_squares"),
    "dtc_round": ("draw_", lambda out, given: out[1], "_draw"),
}


class Broken:
    """A kernel that does not compile (``kernel[grid]``) or cannot be launched (``kernel[grid](...)``)."""

    def __init__(self, error, at):
        self.error, self.at, self.calls = error, at, 0

    def __getitem__(self, grid):
        self.calls += 1
        if self.at == "compile":
            raise self.error
        return self

    def __call__(self, *arguments, **options):
        raise self.error


@pytest.fixture(autouse=True)
def nothing_found(monkeypatch):
    monkeypatch.setattr(checked, "_found", {})


def test_a_check_allows_what_strict_modes_refuse(monkeypatch):
    """Without CUBLAS_WORKSPACE_CONFIG a product raises in deterministic mode on CUDA."""
    modes = []
    monkeypatch.setattr(checked, "agree", lambda *case: modes.append(torch.get_deterministic_debug_mode()) or True)
    torch.use_deterministic_algorithms(True)
    try:
        assert checked.check("arm_update", CPU, torch.float32) is None
        assert (modes, torch.get_deterministic_debug_mode()) == ([0], 2)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.fixture
def fused_on_cpu(fused_module, device, monkeypatch):
    """CPU tensors take the fused path, in Triton's interpreter."""
    if device.type == "cuda":
        pytest.skip("fails on purpose, in the interpreter")
    monkeypatch.setattr(checked, "use_fused", lambda x: True)
    monkeypatch.setattr(arm_update, "on_cuda", lambda x: True)
    return fused_module


def same(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def plain(op):
    """What the op gives without Triton."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(checked, "use_fused", lambda x: False)
        return CASES[op](PUBLIC, LIKE)


def run(op):
    """What the op gives, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = CASES[op](PUBLIC, LIKE)
    return found, [str(w.message) for w in caught if "fused path" in str(w.message)]


def test_every_fused_op_has_a_case(fused_module):
    folder = import_module("bo_robust.ops").__path__[0]
    assert set(CASES) == set(PRODUCTION) == set(FUSED) == {path.parent.name for path in Path(folder).glob("*/fused.py")}


def test_every_fused_op_passes_its_check(fused_module, device):
    for op in CASES:
        for dtype in (torch.float64, torch.float32):
            assert checked.check(op, device, dtype) is None, (op, dtype)


def one_round(dtype=torch.float32):
    """A score of an arm by the op."""
    return CASES["dtc_scores"](PUBLIC, LIKE.to(dtype))


def contaminated(real, written, value, calls):
    """A function with one wrong entry in what it writes: ``value``, or off by a little."""

    def wrong(*given):
        calls.append(given)
        out = real(*given)
        x = written(out, given)
        entry = x.view(-1)[-1:]
        if not x.is_floating_point():
            entry.add_(1)
        elif value is None:
            entry.add_(x.abs().amax() * 1e-3)
        else:
            entry.fill_(value)
        return out

    return wrong


@pytest.mark.parametrize("value", [math.nan, None, math.inf])
def test_wrong_results_are_noticed(value, fused_on_cpu, monkeypatch):
    """Of every op, one entry that is NaN, infinite or off by a thousandth (whole numbers by one)."""
    for op, (name, written, _) in FUSED.items():
        module, expected, calls = fused_on_cpu(op), plain(op), []
        with monkeypatch.context() as patches:
            patches.setattr(module, name, contaminated(getattr(module, name), written, value, calls))
            found, warned = run(op)
            assert same(found, expected), op
            done = len(calls)
            assert same(run(op)[0], expected)
            assert run(op)[1] == []
        assert len(calls) == done > 0  # never called again
        (message,) = warned
        assert message == (
            f"The fused path of {op} fails on cpu in torch.float64: its results differ from those of the naive path. "
            f"The op runs in PyTorch. Please report this line with the output of "
            f"`python -m torch.utils.collect_env`."
        )


@pytest.mark.parametrize("at", ["compile", "launch"])
def test_kernels_that_fail_are_noticed(at, fused_on_cpu, monkeypatch):
    for op, (_, _, kernel) in FUSED.items():
        module, expected = fused_on_cpu(op), plain(op)
        broken = Broken(RuntimeError("Triton Error [CUDA]: out of resources\nmore lines"), at)
        with monkeypatch.context() as patches:
            patches.setattr(module, kernel, broken)
            found, warned = run(op)
            again = run(op)
        assert same(found, expected), op
        assert same(again[0], expected)
        assert again[1] == []
        assert broken.calls == 1
        (message,) = warned
        assert f"{op} fails on cpu in torch.float64: RuntimeError: Triton Error [CUDA]: out of resources. " in message


def test_a_module_that_cannot_be_imported_is_noticed(fused_on_cpu, monkeypatch):
    def refuse(name):
        if name.endswith("fused"):
            raise ImportError("libcuda.so.1: cannot open shared object file")
        return import_module(name)

    monkeypatch.setattr(checked, "import_module", refuse)
    found, (message,) = run("dtc_scores")
    assert same(found, plain("dtc_scores"))
    assert "ImportError: libcuda.so.1" in message


@pytest.mark.parametrize("at", ["compile", "launch"])
def test_a_kernel_that_fails_after_its_check_leaves_nothing_half_done(at, fused_on_cpu, monkeypatch):
    """As for a shape that needs another kernel: the round goes on plain from the state before it."""
    for op, (_, _, kernel) in FUSED.items():
        checked.check(op, CPU, torch.float64)
        expected = plain(op)
        with monkeypatch.context() as patches:
            patches.setattr(fused_on_cpu(op), kernel, Broken(RuntimeError("out of resource: shared memory"), at))
            found, warned = run(op)
        assert same(found, expected), op
        (message,) = warned
        assert f"{op} fails on cpu in torch.float64: RuntimeError: out of resource: shared memory. " in message


@pytest.mark.parametrize("error", [ValueError("noise must be T x s"), torch.OutOfMemoryError("4 GiB")])
def test_mistakes_and_a_full_memory_stay_errors(error, fused_on_cpu, monkeypatch):
    one_round()

    def fails(*given):
        raise error

    with monkeypatch.context() as patches:
        patches.setattr(fused_on_cpu("dtc_scores"), "dtc_scores", fails)
        with pytest.raises(type(error), match=str(error)):
            one_round()
    assert checked.check("dtc_scores", CPU, torch.float32) is None


def test_an_error_of_both_paths_is_nobodys_fault(fused_on_cpu, monkeypatch):
    def fails(*given):
        raise TypeError("a covariance of the user")

    assert checked.check("dtc_scores", CPU, torch.float32) is None
    with monkeypatch.context() as patches:
        patches.setattr(fused_on_cpu("dtc_scores"), "dtc_scores", fails)
        patches.setattr(dtc_scores.naive, "dtc_scores", fails)
        with pytest.raises(TypeError, match="a covariance of the user"):
            one_round()
    assert checked.check("dtc_scores", CPU, torch.float32) is None
