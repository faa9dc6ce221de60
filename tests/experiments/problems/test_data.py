"""Finding and checking data files: what an error says, and that nothing is unpickled."""

import gzip
import hashlib
import io

import numpy as np
import pytest

from bo_robust.experiments.problems import data


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data folder with one .npz ("toy"), one .csv.gz ("prices") and one .csv ("plain") of known checksum."""
    monkeypatch.delenv("BO_ROBUST_DATA", raising=False)
    (tmp_path / "toy").mkdir()
    np.savez(tmp_path / "toy/toy.npz", a=np.arange(3.0))
    table = b"Date,X,Y\n2020-01-01,1.5,2\n2020-01-02,3,4\n"
    (tmp_path / "toy/prices.csv.gz").write_bytes(gzip.compress(table))
    (tmp_path / "toy/plain.csv").write_bytes(table)
    for name, file in (("toy", "toy/toy.npz"), ("prices", "toy/prices.csv.gz"), ("plain", "toy/plain.csv")):
        digest = hashlib.sha256((tmp_path / file).read_bytes()).hexdigest()
        monkeypatch.setitem(data.DATA_FILES, name, data.DataFile(file, digest, "the workshop"))
    return tmp_path


def test_reads_from_argument_or_environment(folder, monkeypatch):
    np.testing.assert_array_equal(data.load_npz("toy", folder)["a"], [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(data.load_npz("toy", str(folder))["a"], [0.0, 1.0, 2.0])
    monkeypatch.setenv("BO_ROBUST_DATA", str(folder))
    for name in ("prices", "plain"):
        prices = data.load_csv(name)
        assert list(prices.columns) == ["Date", "X", "Y"]
        np.testing.assert_array_equal(prices[["X", "Y"]].to_numpy(), [[1.5, 2.0], [3.0, 4.0]])


def test_argument_beats_environment(folder, monkeypatch):
    monkeypatch.setenv("BO_ROBUST_DATA", str(folder / "elsewhere"))
    assert "a" in data.load_npz("toy", folder)


@pytest.mark.parametrize("given", [None, "nowhere"])
def test_missing_file_says_how_to_point_at_it(folder, given):
    with pytest.raises(FileNotFoundError) as error:
        data.load_npz("toy", folder / given if given else None)
    for part in ("'toy'", "toy/toy.npz", "the workshop", "--data-dir", "BO_ROBUST_DATA"):
        assert part in str(error.value)


def test_changed_file_is_refused(folder):
    path = folder / "toy/toy.npz"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="not the expected file: its sha256 is"):
        data.load_npz("toy", folder)


def test_pickled_arrays_are_not_loaded(folder, monkeypatch):
    buffer = io.BytesIO()
    np.savez(buffer, a=np.array([{"run": "me"}], dtype=object))
    (folder / "toy/toy.npz").write_bytes(buffer.getvalue())
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    monkeypatch.setitem(data.DATA_FILES, "toy", data.DataFile("toy/toy.npz", digest, "the workshop"))
    with pytest.raises(ValueError, match="allow_pickle"):
        data.load_npz("toy", folder)
