import math
from dataclasses import replace

import numpy as np
import pytest

from bo_robust.models.robust.slips import Slip
from bo_robust.proposals.suggest import Data, Space, suggest

pd = pytest.importorskip("pandas")

SEARCH = {"restarts": 2, "raw_samples": 32, "num_initial": 3}
X = pd.DataFrame({"T": [20, 40, 60, 80, 100, 30], "time": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "base": list("ABCABC")})
Y = pd.Series([1.0, 2.0, 3.0, 4.0, 3.0, 5.0])
BOUNDS = {"T": (20, 100), "time": (1, 8)}
BASES = {"base": ["A", "B", "C"]}


def test_columns_are_matched_by_name():
    frame = X[["T", "time"]]
    bounds = pd.DataFrame(BOUNDS)
    pending = frame.iloc[:2] + 1.0
    plain = suggest(frame.to_numpy(), Y, bounds=bounds.to_numpy(), X_pending=pending.to_numpy(), q=2, **SEARCH).X
    by_name = suggest(frame.to_numpy(), Y, bounds=BOUNDS, X_pending=pending, q=2, **SEARCH).X
    np.testing.assert_array_equal(by_name, plain)
    for ends in (bounds[["time", "T"]], bounds, BOUNDS, bounds.to_numpy()):
        found = suggest(frame, Y, bounds=ends, X_pending=pending[["time", "T"]], q=2, **SEARCH).X
        assert list(found.columns) == ["T", "time"]
        np.testing.assert_allclose(found.to_numpy(), plain.numpy(), rtol=1e-4)


def test_readings_are_matched_by_their_index():
    one, other = (suggest(X, y, bounds=BOUNDS, categorical=BASES, **SEARCH) for y in (Y, Y.iloc[::-1]))
    pd.testing.assert_frame_equal(one.X, other.X)
    assert one.best == other.best
    for index in (range(1, 7), [0, 0, 1, 2, 3, 4]):
        with pytest.raises(ValueError, match="Y has another index than X"):
            suggest(X, Y.set_axis(index), bounds=BOUNDS, categorical=BASES)
    suggest(X, Y.set_axis(range(1, 7)).to_numpy(), bounds=BOUNDS, categorical=BASES, q=0)


def test_batches_are_matched_by_their_index_and_complete():
    days = pd.Series(["Mon", "Tue"] * 3)
    one, other = (suggest(X, Y, bounds=BOUNDS, categorical=BASES, batch=b, **SEARCH).X for b in (days, days[::-1]))
    pd.testing.assert_frame_equal(one, other)
    for missing in (np.nan, None, pd.NA):
        for dtype in (object, None):
            with pytest.raises(ValueError, match="batch has a missing label"):
                suggest(X, Y, bounds=BOUNDS, categorical=BASES, batch=pd.Series([1, 2, missing] * 2, dtype=dtype))


def test_texts_go_in_and_come_out():
    space = {"bounds": BOUNDS, "categorical": BASES}
    codes = X.assign(base=X["base"].map({"A": 0, "B": 1, "C": 2})).to_numpy()
    numbers = {"bounds": [[20, 1, 0], [100, 8, 2]], "categorical": {2: [0, 1, 2]}, "discrete": {0: range(20, 101, 20)}}
    for fixed, code in (({}, {}), ({"time": 4, "base": "B"}, {1: 4, 2: 1})):
        plain = suggest(codes, Y, q=3, fixed=code, **numbers, **SEARCH).X
        found = suggest(X, Y, q=3, fixed=fixed, discrete={"T": range(20, 101, 20)}, **space, **SEARCH).X
        assert found["base"].tolist() == ["ABC"[int(k)] for k in plain[:, 2]]
        np.testing.assert_array_equal(found[["T", "time"]].to_numpy(), plain[:, :2].numpy())
    again = pd.concat([X, found], ignore_index=True)
    data = Data(again, pd.concat([Y, Y[:3]], ignore_index=True), X_failed=found)
    assert suggest(data, space=Space(**space), **SEARCH).X.shape == (1, 3)
    before = suggest(X[:0], Y[:0], q=8, **space).X
    assert set(before["base"]) == {"A", "B", "C"}


def test_a_set_of_categories_and_a_single_one_are_some():
    listed, as_set = (
        suggest(X, Y, bounds=BOUNDS, categorical={"base": values}, **SEARCH).X
        for values in (["A", "B", "C"], set("CBA"))
    )
    pd.testing.assert_frame_equal(as_set, listed)
    found = suggest(X.assign(base="A"), Y, bounds=BOUNDS, categorical={"base": ["A"]}, **SEARCH).X
    assert found["base"].tolist() == ["A"]


def test_a_list_gives_its_rows_with_their_index():
    listed = X.assign(cas=[f"{k}-1" for k in range(6)]).set_index("cas")
    found = suggest(
        listed[:5], Y[:5].to_numpy(), candidates=listed[["base", "T", "time"]], categorical=BASES, **SEARCH
    ).X
    pd.testing.assert_frame_equal(found, listed[["base", "T", "time"]].iloc[[5]])


def test_sums_and_conditions_by_name():
    frame = pd.concat([X, X]).assign(humid=np.repeat([0.2, 0.8], 6)).reset_index(drop=True)
    options = {"bounds": BOUNDS, "categorical": BASES, "inequality_constraints": [(["T", "time"], [-1, -1], -60)]}
    found = suggest(frame, [*Y, *(Y - 1.0)], conditions=["humid"], **options, **SEARCH).X
    assert list(found.columns) == list(frame.columns)
    assert found["T"][0] + found["time"][0] <= 60.0 + 1e-6
    assert found["humid"][0] in (0.2, 0.8)
    for ends in ({}, {"humid": (0.0, 8.0)}):
        space = Space(bounds=BOUNDS | ends, categorical=BASES, conditions=["humid"], discrete={"humid": [0.2, 8.0]})
        assert space.discrete == {list(space.columns.names).index("humid"): [0.2, 8.0]}
    space = {"bounds": BOUNDS | ends, "categorical": BASES, "conditions": ["humid"]}
    with pytest.raises(ValueError, match=r"discrete\['humid'\] has 9.0, beyond the bounds 0.0 and 8.0"):
        Space(discrete={"humid": [9.0]}, **space)


def test_a_suggestion_says_what_to_do_in_three_lines():
    rng = np.random.default_rng(0)
    x = rng.random((20, 2))
    y = -((x - 0.4) ** 2).sum(1)
    y[[3, 7]] += 50.123, -60.456
    found = suggest(pd.DataFrame(x, columns=["T", "t" * 300]), y, bounds=[[0, 0], [1, 1]], q=9, **SEARCH)
    measure, check, use = repr(found).split("\n")
    assert measure.startswith(f"Measure (T = {x[3, 0]:.10g}, {'t' * 16}…{'t' * 15} = {x[3, 1]:.10g}) (again), (T = ")
    assert measure.endswith("and 3 more.")
    assert check == "Rows that look wrong: 3, 7; that need a second reading first: none."
    assert use.startswith(f"Use row {found.best}: mean -0.0")
    told = repr(replace(found, slips=(Slip("exchanged", (3, 7), math.nan, 9.0),)))
    assert "first: none; perhaps exchanged (3, 7).\n" in told
    nothing = repr(suggest([], [], bounds=[[0], [1]], q=0)).split("\n")
    first = suggest([[0.1], [0.9], [0.5]], [1.0, 2.0, 3.0], bounds=[[0], [1]], X_failed=[[0.7]], num_initial=6)
    assert "). An initial design: proposals follow from the readings once there are 6 rows.\nRows" in repr(first)
    assert (nothing[0], nothing[2]) == ("Measure nothing (q = 0).", "Use no design yet.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"categorical": {}}, r"X must have columns \['T', 'time'\], each once; see 'base'"),
        ({"categorical": {"base": ["A", "B"]}}, r"X has 'C' in column 'base', which categorical\['base'\] lacks"),
        ({"categorical": {"base": "ABC"}}, r"categorical\['base'\] must list the different values"),
        ({"categorical": {"base": ["A", "A", "B", "C"]}}, r"categorical\['base'\] must list the different values"),
        ({"bounds": {"T": (20, 100)}}, "X must have columns .* see 'time'"),
        ({"bounds": {**BOUNDS, "time": "1-8"}}, "bounds has '1-8' in column 'time', which is no number"),
        ({"bounds": {**BOUNDS, "time": (False, True)}}, "bounds has False in column 'time'"),
        ({"bounds": {**BOUNDS, "time": 3}}, "bounds must have columns of one length"),
        ({"bounds": [[20, 1, 0], [100, 8, 2]]}, "columns have names where bounds or candidates do"),
        ({"X": X.assign(T=list("abcdef"))}, "X has 'a' in column 'T', which is no number"),
        ({"X": X.assign(T=pd.Timestamp("2026-01-02"))}, "X has Timestamp.* in column 'T', which is no number"),
        ({"X": X.assign(base=[None, *"BCABC"])}, "X must be finite, but row 0 is not"),
        ({"X": pd.concat([X, X["T"]], axis=1)}, "X must have columns .*, each once; see 'T'"),
        ({"X_pending": [[20, 1, 0]]}, "X_pending must be a data frame"),
        ({"X_failed": X[["T", "time"]]}, "X_failed must have columns .* see 'base'"),
        ({"bounds": {**BOUNDS, "T": (100, 20)}}, "lower below the upper, but column 'T' has 100.0 and 20.0"),
        ({"discrete": {"T": [20, 120]}}, r"discrete\['T'\] has 120.0, beyond the bounds 20.0 and 100.0"),
        ({"fixed": {"tim": 4}}, "fixed has no column 'tim'; did you mean 'time'"),
        ({"fixed": {"base": "D"}}, r"fixed has 'D' in column 'base', which categorical\['base'\] lacks"),
        ({"equality_constraints": [(["T", "tim"], [1, 1], 9)]}, "equality_constraints has no column 'tim'"),
        ({"bounds": None, "candidates": X.assign(base="D")}, "candidates has 'D' in column 'base'"),
        ({"constraints": pd.DataFrame({"c": [1.0] * 6}, index=range(1, 7))}, "constraints has another index"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        suggest(**{"X": X, "Y": Y, "bounds": BOUNDS, "categorical": BASES} | arguments)


def test_frames_of_polars():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(X.to_dict("list"))
    found = suggest(frame, pl.Series(Y.to_list()), bounds=BOUNDS, categorical=BASES, q=2, **SEARCH).X
    assert isinstance(found, pl.DataFrame)
    assert pl.concat([frame.cast({"T": pl.Float64}), found]).shape == (8, 3)
    listed = suggest(frame[:5], Y[:5].to_numpy(), candidates=frame, categorical=BASES, **SEARCH).X
    assert listed.equals(frame[5:])
