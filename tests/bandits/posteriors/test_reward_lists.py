import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bo_robust.bandits.posteriors import reward_lists
from bo_robust.confidence.truncation import RULES, truncate

ARMS = 3
LIKE = torch.zeros(1, ARMS, dtype=torch.float64)

NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 1e300, -1e300, 5e-324, 0.5]),  # ties among them
    st.floats(-8.0, 8.0, allow_subnormal=False),
)
PULLS = st.lists(st.tuples(st.integers(0, ARMS - 1), NUMBERS, st.booleans(), st.floats(0.0, 0.3)), max_size=60)
# u sqrt(c) of three directions; the bound |u| <= 1 / sqrt(c) of every root is met with equality at 1
SHARES = st.lists(st.sampled_from([0.0, 1.0, -1.0, 0.5, 0.25, -0.125, 1e-300]), min_size=3, max_size=3)


def insert(lists, arm, value, level, count):
    """One reward, the ``count``-th of the arm."""
    reward, counts = lists.table.new_tensor([value]), lists.table.new_tensor([count])
    reward_lists.raise_floor(lists, level)
    reward_lists.insert(lists, torch.tensor([arm], device=lists.table.device), reward, counts, level)


def check_invariants(lists, rewards, level):
    """``rewards``: those of every arm."""
    for a in range(ARMS):
        size = int(lists.size[0, a])
        capacity, values = lists.values.shape[2], rewards[a]
        listed = lists.values[0, a, capacity - size :]
        assert bool((listed.abs().diff() >= 0).all())
        assert bool(lists.values[0, a, : capacity - size].eq(0.0).all())
        assert float(lists.largest[0, a]) == (float(listed.abs().max()) if size else 0.0)
        # what is settled is within the level for every |u| <= 1 / sqrt(c); listed are the largest
        by_size = sorted((abs(v) for v in values), reverse=True)
        assert sorted(listed.abs().tolist(), reverse=True) == by_size[:size]
        assert all(v <= level * math.sqrt(len(values)) for v in by_size[size:])
        tolerance = 1e-13 * math.fsum(map(abs, values)) + 1e-300
        assert float(lists.total[0, a]) == pytest.approx(math.fsum(values), rel=0, abs=tolerance)


@settings(max_examples=80, deadline=None)
@given(pulls=PULLS, first=st.sampled_from([1e-3, 0.3, 1.0, 1e301]), shares=SHARES, rule=st.sampled_from(list(RULES)))
@example(pulls=[(0, y, True, 0.0) for y in (0.0, 0.0, 0.0, 2.0)], first=1.0, shares=[1.0, -1.0, 0.5], rule="zero")
@example(pulls=[(0, 2.0, True, 0.0)] * 40, first=1e-9, shares=[1.0, 0.0, -1.0], rule="clip")
@example(pulls=[(0, 1.0, True, 0.0), (0, -1.0, True, 0.0)] * 8, first=0.5, shares=[1.0, 0.5, 0.25], rule="zero")
def test_any_sequence_of_rewards(pulls, first, shares, rule, device):
    lists = reward_lists.init(LIKE.to(device))
    rewards: list[list[float]] = [[] for _ in range(ARMS)]
    level = first
    for arm, value, ok, rise in pulls:
        level *= 1.0 + rise
        if ok:
            rewards[arm].append(value)
        insert(lists, arm, value if ok else 0.0, level, len(rewards[arm]))
    check_invariants(lists, rewards, level)
    counts = [max(len(r), 1) for r in rewards]
    u = torch.tensor([[share / math.sqrt(c) for share in shares] for c in counts], dtype=torch.float64)
    pairs = torch.zeros(ARMS, dtype=torch.long, device=device), torch.arange(ARMS, device=device)
    got = lists.truncated_sums(u.to(device), torch.full_like(lists.table[0, :, 0], level), rule, pairs)
    for a in range(ARMS):
        for i in range(3):
            w = float(u[a, i])
            kept = [w * v for v in rewards[a] if abs(w) * abs(v) <= level]
            beyond = [math.copysign(level, w * v) for v in rewards[a] if abs(w) * abs(v) > level]
            beyond = [RULES[rule] * b for b in beyond]
            size = math.fsum(map(abs, kept + beyond))
            assert float(got[a, i]) == pytest.approx(math.fsum(kept + beyond), rel=0, abs=1e-13 * size + 1e-300)


def test_a_new_rule_is_one_entry(monkeypatch):
    """Level 2, weights 1: of the rewards 1, 5 and -9, the last two become 1 and -1."""
    monkeypatch.setitem(RULES, "half", 0.5)
    lists = reward_lists.init(LIKE)
    for count, value in enumerate((1.0, 5.0, -9.0), 1):
        insert(lists, 0, value, 1e-3, count)
    weights, level = torch.ones(ARMS, 1, dtype=torch.float64), torch.full((ARMS,), 2.0, dtype=torch.float64)
    pairs = torch.zeros(ARMS, dtype=torch.long), torch.arange(ARMS)
    assert float(lists.truncated_sums(weights, level, "half", pairs)[0]) == 1.0
    assert truncate(torch.tensor([1.0, 5.0, -9.0]), 2.0, "half").tolist() == [1.0, 1.0, -1.0]
    lists = reward_lists.init(LIKE)
    insert(lists, 0, 5.0, 1e-3, 1)
    assert float(lists.truncated_sums(weights, level, "half", pairs)[0]) == 1.0
