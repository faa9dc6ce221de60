"""The constants of the authors' published scripts, by hand."""

import math

import pytest

from benchmarks.methods.published import LogWidth, PublishedATATruncation, PublishedATAWidth, PublishedTGPWidth


@pytest.mark.parametrize(
    ("schedule", "t", "expected"),
    [
        (PublishedTGPWidth(1.0, 16.0, 1.0, 4.0), 16, 1.0 + 4.0 * math.sqrt(math.log(16.0))),
        (PublishedATAWidth(1.0, 8.0, 0.5, 4.0, 5, 16), 64, 1.0 + 16.0 * math.log(80.0) ** (1.0 / 3.0)),
        (PublishedATAWidth(1.0, 8.0, 0.5, 4.0, 2, 1), 64, 1.0 + 4.0 * math.log(2.0) ** (1.0 / 3.0)),  # the least T
        (PublishedATATruncation(64.0, 0.5, 5, 16), 64, 32.0 * math.log(80.0) ** (-2.0 / 3.0)),
        (PublishedATATruncation(64.0, 0.5, 2, 1), 64, 32.0 * math.log(2.0) ** (-2.0 / 3.0)),  # the least T and p
        (LogWidth(), 7, 1.9459101490553132),
        (LogWidth(), 1, 0.0),
    ],
)
def test_by_hand(schedule, t, expected):
    assert schedule(t) == pytest.approx(expected)


@pytest.mark.parametrize("kind", [PublishedATATruncation, PublishedATAWidth])
def test_a_horizon_of_one_is_refused(kind):
    more = (1.0,) * (2 if kind is PublishedATAWidth else 0)
    with pytest.raises(ValueError, match="horizon"):
        kind(*more, 1.0, 1.0, 1, 8)
