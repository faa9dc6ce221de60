import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bo_robust.confidence.truncation import (
    RULES,
    TRUNCATIONS,
    ATAFourierTruncation,
    ATANystromTruncation,
    NoTruncation,
    TGPTruncation,
    median_mad,
    mostly_beyond,
    truncate,
)

E = math.e
TGP = {"moment_bound": 4.0, "alpha": 0.7}
ATA = {**TGP, "delta": 0.1, "horizon": 50, "num_features": 8}
EXAMPLES = {"none": {}, "tgp": TGP, "ata_fourier": ATA, "ata_nystrom": ATA}


@pytest.mark.parametrize(
    ("level", "t", "expected"),
    [
        # 8^(2/3) 27^(1/3) / 4
        (TGPTruncation(8.0, 0.5, scale=0.25), 27, 3.0),
        # alpha = 1/2, 2 * 1 * 5 / delta = e^8: (64 / 8)^(2/3) 64^(1/6) / 2
        (ATAFourierTruncation(64.0, 0.5, 10 / E**8, 5, 1, scale=0.5), 64, 4.0),
        # 4 * 1 * 5 / delta = e^8
        (ATANystromTruncation(64.0, 0.5, 20 / E**8, 5, 1), 64, 8.0),
        (NoTruncation(), 3, math.inf),
    ],
)
def test_hand_computed(level, t, expected):
    assert level(t) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("name", TRUNCATIONS)
def test_tensor_of_rounds(name, device):
    level = TRUNCATIONS[name](**EXAMPLES[name])
    t = torch.arange(1, 9, device=device).reshape(2, 4)
    want = torch.tensor([[level(r) for r in row] for row in t.tolist()], dtype=torch.float64, device=device)
    got = level(t)
    assert got.dtype == torch.float64  # int64 rounds must not fall back to float32
    torch.testing.assert_close(got, want, rtol=1e-14, atol=0.0)
    assert level(t.float()).dtype == torch.float32


@settings(max_examples=50, deadline=None)
@given(t=st.integers(1, 10**6), alpha=st.floats(0.01, 1.0), v=st.floats(1e-6, 1e6))
@pytest.mark.parametrize("name", ["tgp", "ata_fourier", "ata_nystrom"])
def test_grows_with_t_and_v(name, t, alpha, v):
    level = TRUNCATIONS[name](**{**EXAMPLES[name], "alpha": alpha, "moment_bound": v})
    wider = TRUNCATIONS[name](**{**EXAMPLES[name], "alpha": alpha, "moment_bound": 2.0 * v})
    assert 0.0 < level(t) <= level(t + 1)
    assert wider(t) == pytest.approx(2.0 ** (1.0 / (1.0 + alpha)) * level(t), rel=1e-12)


def test_truncate_keeps_the_boundary_and_zeroes_or_clips_beyond(device):
    y = torch.tensor([2.0, -2.0, 2.0000001, -3.0, 0.5], dtype=torch.float64, device=device)
    assert truncate(y, 2.0).tolist() == truncate(y, 2.0, "zero").tolist() == [2.0, -2.0, 0.0, 0.0, 0.5]
    assert truncate(y, 2.0, "clip").tolist() == [2.0, -2.0, 2.0, -2.0, 0.5]
    assert torch.equal(truncate(y, NoTruncation()(1)), y)
    assert truncate(torch.tensor([2, -3]), 2.0).tolist() == [2.0, 0.0]  # counts are rewards too
    for rule in RULES:
        assert truncate(y.float(), 1.0, rule).dtype == torch.float32


@pytest.mark.parametrize("rule", RULES)
def test_rules_broadcast_levels_and_keep_all_at_infinity(rule, device):
    y = torch.tensor([[1.0, 5.0], [-4.0, 2.0]], device=device)
    levels = torch.tensor([[3.0], [4.0]], device=device)
    beyond = 3.0 * RULES[rule]
    assert truncate(y, levels, rule).tolist() == [[1.0, beyond], [-4.0, 2.0]]
    assert torch.equal(truncate(y, math.inf, rule), y)


@pytest.mark.parametrize("rule", RULES)
def test_truncate_does_not_hide_failed_pulls(rule, device):
    y = torch.tensor([math.nan, math.inf, -math.inf], device=device)
    kept = truncate(y, math.inf, rule)
    assert math.isnan(kept[0])
    assert kept[1:].tolist() == [math.inf, -math.inf]
    cut = truncate(y, 2.0, rule)
    assert math.isnan(cut[0])
    assert cut[1:].tolist() == [2.0 * RULES[rule], -2.0 * RULES[rule]]


BAD = dict.fromkeys(("moment_bound", "scale"), (0.0, -1.0, math.nan)) | {"alpha": [0.0, 1.2], "delta": [0.0, 1.0]}
BAD |= dict.fromkeys(("horizon", "num_features"), (0, 1.5))


@pytest.mark.parametrize(
    ("name", "field", "bad"),
    [(name, field, bad) for name, args in EXAMPLES.items() if args for field in (*args, "scale") for bad in BAD[field]],
)
def test_bad_argument_is_named(name, field, bad):
    with pytest.raises(ValueError, match=rf"^{field}\b"):
        TRUNCATIONS[name](**{**EXAMPLES[name], field: bad})


def test_most_of_a_weight_beyond_the_level(device):
    """At level 2.5 the second reward loses 9 of 13, the third all of its weight."""
    u = torch.tensor([[1.0, 3.0, 5.0], [-1.0, 2.0, 0.0]], dtype=torch.float64, device=device)
    y = torch.tensor([2.0, -1.0, 4.0], dtype=torch.float64, device=device)
    assert mostly_beyond(u, y, 2.5).tolist() == [False, True, True]
    assert mostly_beyond(u, y, 2.5, 0.7).tolist() == [False, False, True]


def test_median_and_mad():
    rows = np.array([[1.0, 2.0], [3.0, 6.0], [5.0, 4.0]])
    assert median_mad(rows) == (3.5, 1.5)  # deviations 2.5, 1.5, 0.5, 2.5, 1.5, 0.5
