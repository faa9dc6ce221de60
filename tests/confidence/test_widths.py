import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bo_robust.confidence import (
    WIDTHS,
    ATAFourierWidth,
    ATANystromWidth,
    BayesianFiniteWidth,
    BKBWidth,
    CompactWidth,
    ConstantWidth,
    FiniteWidth,
    RandomizedWidth,
    RKHSWidth,
    SelfNormalizedWidth,
    TGPWidth,
)
from bo_robust.confidence.base import needs_of
from bo_robust.confidence.candidate_widths import widths_at

E = math.e
PI2 = 8 * math.pi**2 / (3 * E**4)
BKB_AT_5 = 2.0 * math.sqrt(6.0 * (1.0 + math.log(17.0)) + math.log(10.0)) + 1.0 + math.sqrt(2.0)
HEAVY = {"norm_bound": 1.0, "moment_bound": 4.0, "alpha": 0.7, "noise_var": 0.5, "delta": 0.1}
EXAMPLES = {
    "finite": {"num_arms": 100, "delta": 0.1},
    "compact": {"dim": 2, "delta": 0.1, "a": 1.0, "b": 1.0, "r": 1.0},
    "rkhs": {"norm_bound_squared": 2.0, "delta": 0.1},
    "self_normalized": {"norm_bound": 1.5, "noise_scale": 0.2, "delta": 0.1},
    "randomized": {"num_arms": 100},
    "tgp": HEAVY,
    "ata_fourier": {**HEAVY, "horizon": 50, "num_features": 8},
    "ata_nystrom": {**HEAVY, "horizon": 50, "num_features": 8, "epsilon": 0.1},
    "bayesian_finite": {"num_arms": 100, "delta": 0.1},
    "bkb": {"norm_bound": 1.0, "noise_scale": 0.5, "noise_var": 0.25, "delta": 0.1, "epsilon": 0.5},
    "constant": {"value": 2.0},
}
GAIN_FREE = sorted(set(WIDTHS) - {"rkhs", "self_normalized", "tgp", "randomized", "bkb"})


def make(name, **changes):
    return WIDTHS[name](**{**EXAMPLES[name], **changes})


def test_examples_cover_the_registry():
    assert set(EXAMPLES) == set(WIDTHS)


@pytest.mark.parametrize(
    ("width", "t", "kwargs", "expected"),
    [
        # 1 * 1 * pi^2 / (6 delta) = e^2 at delta = pi^2 / (6 e^2) = 0.2226; sqrt(2 * 2) = 2
        (FiniteWidth(1, math.pi**2 / (6 * E**2)), 1, {}, 2.0),
        (BayesianFiniteWidth(1, math.pi**2 / (3 * E**2)), 1, {}, 2.0),
        # 1.5 + 0.5 sqrt(2 (1 + 1 + 2)) with log(1 / delta) = 2
        (SelfNormalizedWidth(1.5, 0.5, E**-2), 3, {"information_gain": 1.0}, 1.5 + 0.5 * math.sqrt(8.0)),
        # the grid has at least one point: b = 1e-9 leaves 2 * 5 only
        (CompactWidth(1, PI2 / E, a=PI2 / 4, b=1e-9, r=1.0), 2, {}, math.sqrt(10.0)),
        # log^3(1 / e^-1) = 1; 2 * 2 + 300 * 0.32 = 100
        (RKHSWidth(2.0, 1 / E), 1, {"information_gain": 0.32}, 10.0),
        # 2 log(2 / 2) = 0 and -2 log(e^-2) = 4
        (RandomizedWidth(2), 9, {"uniform": 1 - E**-2}, 2.0),
        # u = 0 leaves the shift: 2 log(20 / 2) = 2 log 10 = 4.605170
        (RandomizedWidth(20), 9, {"uniform": 0.0}, math.sqrt(4.605170185988092)),
        # b_16 = 4^(1/2) 16^(1/4) = 4; 3 / sqrt(9) = 1; sqrt(2 * 7 + 2) = 4; 1 + 4 * 4
        (TGPWidth(1.0, 4.0, 1.0, 9.0, 1 / E), 17, {"information_gain": 7.0}, 17.0),
        # alpha = 1/2: b_27 = 8^(2/3) 27^(1/3) = 12; 3 / 1; sqrt(0 + 2 * 2) = 2; 1 + 3 * 12 * 2
        (TGPWidth(1.0, 8.0, 0.5, 1.0, E**-2), 28, {}, 73.0),
        # b_0 = 0
        (TGPWidth(1.0, 8.0, 0.5, 1.0, E**-2), 1, {}, 1.0),
        # alpha = 1: 2 * 4 * 5 / delta = e^4; 1 + 4 sqrt(4 / 1) * 9^(1/2) * 4^(1/2) * 1
        (ATAFourierWidth(1.0, 9.0, 1.0, 1.0, 40 / E**4, 5, 4), 3, {}, 49.0),
        # and so in the first round, as 0^0 = 1
        (ATAFourierWidth(1.0, 9.0, 1.0, 1.0, 40 / E**4, 5, 4), 1, {}, 49.0),
        # alpha = 1/2: 2 * 1 * 5 / delta = e^8; 1 + 4 sqrt(1 / 4) * 8^(2/3) * 8^(1/3) * 64^(1/6) = 1 + 2*4*2*2
        (ATAFourierWidth(1.0, 8.0, 0.5, 4.0, 10 / E**8, 5, 1), 65, {}, 33.0),
        (ATAFourierWidth(1.0, 8.0, 0.5, 4.0, 10 / E**8, 5, 1), 1, {}, 1.0),
        # 4 * 1 * 5 / delta = e^8; B (1 + 1 / sqrt(1/4)) = 3; 3 + 32
        (ATANystromWidth(1.0, 8.0, 0.5, 4.0, 20 / E**8, 5, 1, epsilon=0.75), 65, {}, 35.0),
        # alpha = 3, L = 1 + log(4 / .25 + 1) after 4 rewards, sum sigma~^2 = 2: 2 sqrt(3 L 2 + log 10) + 1 + sqrt 2
        (BKBWidth(1.0, 0.5, 0.25, 0.1, 0.5), 5, {"information_gain": 2.0}, BKB_AT_5),
        (ConstantWidth(2.5), 7, {}, 2.5),
        (ConstantWidth(0.0), 7, {}, 0.0),
    ],
)
def test_hand_computed(width, t, kwargs, expected):
    assert width(t, **kwargs) == pytest.approx(expected, rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("name", WIDTHS)
def test_scale_multiplies_the_width(name):
    whole, fifth = make(name), make(name, scale=0.2)
    assert fifth(6, 1.5, 0.4) == pytest.approx(0.2 * whole(6, 1.5, 0.4), rel=1e-14)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", WIDTHS)
def test_tensor_of_trials_equals_single_numbers(name, dtype, device):
    width = make(name, scale=0.3)
    gains, draws = [0.0, 0.7, 12.5], [0.0, 0.4, 0.999]
    by_hand = [width(11, g, u) for g, u in zip(gains, draws, strict=True)]
    gains, draws, want = (torch.tensor(x, dtype=dtype, device=device) for x in (gains, draws, by_hand))
    got = width(11, gains, draws)
    if isinstance(got, float):  # depends on t alone
        got = torch.full_like(want, got)
    torch.testing.assert_close(got, want, rtol=1e-5 if dtype == torch.float32 else 1e-13, atol=0.0)
    assert got.device == want.device


@pytest.mark.parametrize("name", WIDTHS)
def test_tensors_do_not_touch_the_host(name):
    # tensors on the meta device have no values: any read of one raises
    gain = torch.empty(5, dtype=torch.float64, device="meta")
    width = make(name)(4, gain, gain)
    assert isinstance(width, float) if name in GAIN_FREE else width.shape == (5,)


@settings(max_examples=30, deadline=None)
@given(t=st.integers(1, 10**6), gain=st.floats(0.0, 500.0), more=st.floats(0.0, 10.0))
@pytest.mark.parametrize("name", sorted(set(WIDTHS) - {"randomized"}))
def test_never_decreases_in_t_or_gain(name, t, gain, more):
    width = make(name)
    assert width(t + 1, gain) >= width(t, gain) >= 0.0
    assert width(t, gain + more) >= width(t, gain)


def test_self_normalized_width_covers_at_small_noise_var_with_the_rescaled_noise():
    # One arm, k = 1, f = 0, N(0, 1) noise, noise_var = 0.01: mu_t = sum / (t + 0.01),
    # sigma_t^2 = 0.01 / (t + 0.01), gain 1/2 log(1 + t / 0.01). R = 1 as printed (a theorem for
    # noise_var = 1 + 2/T) must fail, R / 0.1 must not.
    noise_var, delta = 0.01, 0.1
    noise = torch.randn(500, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    t = torch.arange(1, 61, dtype=torch.float64)
    error = (noise.cumsum(-1) / (t + noise_var)).abs()
    sigma = (noise_var / (t + noise_var)).sqrt()
    gain = 0.5 * torch.log1p(t / noise_var)

    def covered(noise_scale):
        width = SelfNormalizedWidth(1e-6, noise_scale, delta)
        w = torch.stack([width(i + 2, gain[i]) for i in range(60)])
        return float((error <= w * sigma).all(-1).double().mean())

    assert covered(1.0 / math.sqrt(noise_var)) >= 1 - delta
    assert covered(1.0) < 0.5


POSITIVE = ("moment_bound", "noise_var", "norm_bound", "norm_bound_squared", "noise_scale", "b", "scale")
WHOLE = ("num_arms", "dim", "horizon", "num_features")
BAD = dict.fromkeys(POSITIVE, (0.0, -1.0, math.inf, math.nan)) | dict.fromkeys(WHOLE, (0, -3, 1.5))
BAD |= {"delta": [0.0, 1.0, -0.1, 1.5, math.nan], "alpha": [0.0, -0.5, 1.01, math.nan], "epsilon": [0.0, 1.0]}
BAD |= {"a": [0.0, 0.0125], "r": [-1.0], "value": [-0.1, math.nan]}  # 4 * 2 * 0.0125 = 0.1 = delta


@pytest.mark.parametrize(
    ("name", "field", "bad"),
    [(name, field, bad) for name, args in EXAMPLES.items() for field in (*args, "scale") for bad in BAD[field]],
)
def test_bad_argument_is_named(name, field, bad):
    with pytest.raises(ValueError, match=rf"^{field}\b"):
        make(name, **{field: bad})


def test_the_rkhs_width_takes_bounds_on_the_maximum_gain():
    width = RKHSWidth(2.0, 1 / E, (0.32, 0.02))
    assert width(1) == width(1, 99.0) == pytest.approx(10.0)  # w^2 = 4 + 300 * .32
    assert width(2, 5.0) == pytest.approx(RKHSWidth(2.0, 1 / E)(2, 0.02))
    with pytest.raises(ValueError, match="bounds for 2 rounds, this is round 3"):
        width(3)


def test_candidates_have_one_width_or_one_each(device):
    gains = torch.tensor([[0.5, 1.0], [2.0, 3.0]], dtype=torch.float64, device=device)
    norm = SelfNormalizedWidth(1.0, 0.5, 0.1)
    assert widths_at(ConstantWidth(2.0), 3, lambda _: gains) == 2.0
    by_hand = [[1.0 + 0.5 * math.sqrt(2.0 * (g + 1.0 + math.log(10.0))) for g in row] for row in gains.tolist()]
    torch.testing.assert_close(widths_at(norm, 3, lambda _: gains), gains.new_tensor(by_hand))
    each = widths_at((FiniteWidth(10, 0.1), norm), 3, lambda _: gains)
    assert each[:, 0].tolist() == pytest.approx([FiniteWidth(10, 0.1)(3)] * 2)
    assert each[:, 1].tolist() == pytest.approx([row[1] for row in by_hand])
    uniform = gains.new_tensor([0.1, 0.9])
    random = widths_at(RandomizedWidth(10), 3, lambda _: gains, uniform)
    torch.testing.assert_close(random.expand(2, 2)[:, 1], RandomizedWidth(10)(3, 0.0, uniform))


class HalfGain(ConstantWidth):
    def _at(self, t, gain, uniform):
        return 0.5 * gain


def test_needs_of_a_width_are_those_of_its_formula():
    assert needs_of(HalfGain(1.0)) == {"information_gain", "uniform"}  # not those of its parent
    assert needs_of(ConstantWidth(1.0)) == frozenset()
    assert needs_of(RKHSWidth(1.0, 0.1)) == {"information_gain"}
    assert needs_of(RKHSWidth(1.0, 0.1, (1.0,))) == frozenset()
