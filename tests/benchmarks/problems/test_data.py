import gzip
import hashlib
import sys

import numpy as np
import pytest

from benchmarks.problems import data


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data folder with one .npz ("toy"), one .csv.gz ("prices") and one .csv ("plain") of known checksum."""
    monkeypatch.setenv("BO_ROBUST_DATA", str(tmp_path))
    (tmp_path / "toy").mkdir()
    np.savez(tmp_path / "toy/toy.npz", X=np.arange(3.0))
    table = b"Date,X,Y\n2020-01-01,1.5,2\n2020-01-02,3,4\n"
    (tmp_path / "toy/prices.csv.gz").write_bytes(gzip.compress(table))
    (tmp_path / "toy/plain.csv").write_bytes(table)
    for name, file in (("toy", "toy/toy.npz"), ("prices", "toy/prices.csv.gz"), ("plain", "toy/plain.csv")):
        digest = data.content_digest(tmp_path / file, (tmp_path / file).read_bytes())
        monkeypatch.setitem(data.DATA_FILES, name, data.DataFile(file, digest, "the workshop"))
    return tmp_path


def test_reads_from_the_folder_of_the_environment(folder):
    np.testing.assert_array_equal(data.load_npz("toy")["X"], [0.0, 1.0, 2.0])
    for name in ("prices", "plain"):
        prices = data.load_csv(name)
        assert list(prices.columns) == ["Date", "X", "Y"]
        np.testing.assert_array_equal(prices[["X", "Y"]].to_numpy(), [[1.5, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize("given", [None, "nowhere"])
def test_missing_file_says_how_to_point_at_it(folder, given, monkeypatch):
    monkeypatch.setenv("BO_ROBUST_DATA", str(folder / given) if given else "")
    with pytest.raises(FileNotFoundError) as error:
        data.load_npz("toy")
    for part in ("'toy'", "toy/toy.npz", "the workshop", "benchmarks.problems.data", "BO_ROBUST_DATA"):
        assert part in str(error.value)


def test_changed_file_is_refused(folder):
    path = folder / "toy/toy.npz"
    whole = path.read_bytes()
    np.savez(path, X=np.arange(4.0))
    with pytest.raises(ValueError, match="not the expected file: the sha256 of its content is"):
        data.load_npz("toy")
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="is damaged"):
        data.load_npz("toy")


def test_the_same_content_is_accepted_however_it_is_compressed(folder):
    np.savez_compressed(folder / "toy/toy.npz", X=np.arange(3.0), another=np.ones(2))
    assert len(data.load_npz("toy")["X"]) == 3
    table = gzip.decompress((folder / "toy/prices.csv.gz").read_bytes()).replace(b"\n", b"\r\n")
    (folder / "toy/prices.csv.gz").write_bytes(gzip.compress(table, 1, mtime=7))
    assert len(data.load_csv("prices")) == 2


def test_prepare_makes_the_file_of_a_download(tmp_path, monkeypatch, capsys):
    source, digest = tmp_path / "fin.csv", hashlib.sha256(b"Date,A\n1,2\n").hexdigest()
    source.write_bytes(b"Date,A\n1,2\n")
    monkeypatch.setitem(data.DATA_FILES, "djia29", data.DataFile("djia29/p.csv.gz", digest, "a shop"))
    monkeypatch.setattr(sys, "argv", ["data", "djia29", str(source)])
    monkeypatch.setenv("BO_ROBUST_DATA", str(tmp_path))
    data.main()
    assert str(tmp_path / "djia29/p.csv.gz") in capsys.readouterr().out
    assert data.load_csv("djia29").columns.tolist() == ["Date", "A"]
    source.write_bytes(b"other")
    for name, word in (("djia29", "not the expected"), ("suzuki", "is made from")):
        with pytest.raises(ValueError, match=word):
            data.prepare(name, source, tmp_path)
