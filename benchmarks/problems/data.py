"""The files of real data: their sources, how they are found, checked and read, and made from what one downloads.

Nothing is unpickled, nothing is downloaded. ``python -m benchmarks.problems.data NAME DOWNLOAD`` makes the file that a
problem reads, in the folder of the environment variable BO_ROBUST_DATA; DOWNLOAD is a file, or a folder of files.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

SHIPPED = Path(__file__).resolve().parents[1] / "data"  # files that are part of the repository
OLYMPUS = "the wheel of the package olymp 0.0.1b0 (`pip download --no-deps olymp==0.0.1b0`; Olympus, Häse et al. 2021)"
HEAVY_TAILS = "GitHub sayakrc/Bayesian-Optimization-under-Heavy-tailed-Payoffs @ 673ce5c"


@dataclass(frozen=True)
class DataFile:
    """One file of a data folder."""

    path: str  # within the folder
    sha256: str  # of what it holds (:func:`content_digest`), however it is compressed
    source: str  # What one downloads, a file or a folder


# The arrays of ``.npz`` files that problems read; others do not count.
ARRAYS = {
    "train",
    "test",
    "coords",
    "X",
    "Y",
    "temperature_train",
    "temperature_test",
    "speed",
    "sensor_id",
    "rtt_10ms",
}

DATA_FILES: dict[str, DataFile] = {
    "abalone": DataFile(
        "abalone/abalone.csv.gz",
        "a2daaed9c48ef860360f6438a224a2fde2576f1ebcf4f821ffe23645c229b23e",
        "abalone.data of GitHub Bsovann/Abalone-DS @ 336a72b (UCI abalone; Nash, Sellers, Talbot, Cawthorn, Ford 1994)",
    ),
    "borisk_portfolio": DataFile(
        "borisk_portfolio/borisk_portfolio_evals.npz",
        "40f2141a5a4bbc3203e26af7b95c8a28c6deccba892f6848e9aae145df91131e",
        "the folder port_evals of GitHub zyyjjj/low_rank_BOPE @ 27369e9, a copy of saitcakmak/BoRisk's (Cakmak et al. "
        "2020)",
    ),
    "borisk_portfolio_surrogate": DataFile(
        "borisk_portfolio/surrogate_state_dict.json",
        "704f14b545d02fccdc918eb29b783e07fec8a37e231c1063dfc98489ca72c4f3",
        "portfolio_surrogate_state_dict.pt of GitHub zyyjjj/low_rank_BOPE @ 27369e9",
    ),
    "djia29": DataFile(
        "djia29/djia29_adjclose.csv.gz",
        "e9f7d7c3a0ad4ada75e5b8fa3830c77ed0579232b45837438c671d83b1818199",
        f"fin.csv of {HEAVY_TAILS}",
    ),
    "cmu_light": DataFile(
        "cmu_light/cmu_light.npz",
        "1e81bb4c22d8e280d5718a0a5c41878df2df1c07561e496be200c4722f10fbc4",
        f"iw_data_all.mat of {HEAVY_TAILS} (collected by A. Krause, 2005)",
    ),
    "intel_lab": DataFile(
        "intel_lab/intel_lab_30min.npz",
        "d7c4ee1584666b93a449459d9f9bb2e5d09371c7844746503be2176815fe0dbc",
        "the folder Final/phase1/code/intelLabDataProcessed of GitHub ironhide23586/Sensor-Network-CS583 @ 70a1812 "
        "(Intel Berkeley Research Lab; Bodik, Hong, Guestrin, Madden, Paskin, Thibaux)",
    ),
    "metr_la_week": DataFile(
        "metr_la_week/metr_la_week.npz",
        "5f290b93e4cf65c5bbb19173d76f8394ea049c22af565eaeaceadd532188beff",
        "data/los_speed.csv of GitHub lehaifeng/T-GCN @ 219a234 (METR-LA, Jagadish et al. 2014)",
    ),
}
LABORATORIES = {
    "alkox": "699e31511739a900db9db51d7df63156d6fa47c55d942e2b7e746ef5498f70f1",
    "benzylation": "6112150217e135682ba100f32ffc2875d49d9f973e8f8da1ebb5a42f9b3a2de5",
    "fullerenes": "0d2c7c0abe5018c81f3485d7cab4ca650d59a1a8199e5238ce18f2e240454a33",
    "photo_wf3": "3428cb2737ce0bfe401f6aada773a675079562c377f71a93189016a917fcb159",
    "suzuki": "8505c30ef49e37dfe3194ef12fd7432dbf47e94557feefeead43d51dd6ba5a28",
}
DATA_FILES |= {name: DataFile(f"lab/{name}.csv", sha256, OLYMPUS) for name, sha256 in LABORATORIES.items()}


def load_npz(name: str) -> dict[str, np.ndarray]:
    """Read the arrays of a data set; errors are those of :func:`verified`."""
    with np.load(verified(name), allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


def load_csv(name: str) -> pd.DataFrame:
    """Read the table of a data set; errors are those of :func:`verified`."""
    return pd.read_csv(verified(name))


def data_folder() -> Path | None:
    """The folder of data sets, that of the environment variable ``BO_ROBUST_DATA``; None where there is none."""
    folder = os.environ.get("BO_ROBUST_DATA")
    return Path(folder) if folder else None


def verified(name: str) -> Path:
    """Find a data set's file in the data folder, or in the repository if it is part of that, and check what it holds.

    Raises:
        FileNotFoundError: if the file is missing, saying how to make it and how to point at it.
        ValueError: if its content differs.
    """
    file, folder = DATA_FILES[name], data_folder()
    path, shipped = folder / file.path if folder else None, SHIPPED / Path(file.path).name
    if shipped.is_file():
        path = shipped
    if path is None or not path.is_file():
        where = f"no file {path}" if path else "no data folder was given"
        raise FileNotFoundError(
            f"problem {name!r} needs the data file {file.path}: {where}. Give --data-dir or set BO_ROBUST_DATA "
            f"to a folder, download {file.source}, and run `python -m benchmarks.problems.data {name} DOWNLOAD`."
        )
    check_content(path, path.read_bytes(), file.sha256)
    return path


def content_digest(path: Path, content: bytes) -> str:
    """The sha256 of what a file holds: the arrays of ``.npz``, the data of ``.json``, the lines of ``.csv[.gz]``."""
    if path.suffix == ".npz":
        digest = hashlib.sha256()
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            for key in sorted({*arrays.files} & ARRAYS):
                digest.update(f"{key} {arrays[key].dtype.str} {arrays[key].shape}".encode())
                digest.update(np.ascontiguousarray(arrays[key]).tobytes())
        return digest.hexdigest()
    if path.suffix == ".json":
        return hashlib.sha256(json.dumps(json.loads(content), sort_keys=True).encode()).hexdigest()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()


def check_content(path: Path, content: bytes, expected: str, remedy: str = "Fetch it again.") -> None:
    """Raise ``ValueError``, ending in ``remedy``, unless the content of a file has the expected digest."""
    try:
        found = content_digest(path, content)
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is damaged ({error}). {remedy}") from None
    if found != expected:
        raise ValueError(
            f"{path} is not the expected file: the sha256 of its content is {found}, expected {expected}. It is "
            f"damaged, truncated or another version. {remedy}"
        )


def prepare(name: str, source: Path, data_dir: Path) -> Path:
    """Convert the download ``source``, a file or a folder, to the file of data set ``name`` in ``data_dir``.

    Returns the path written. Raises ``ValueError`` where the result is not the data set.
    """
    path = data_dir / DATA_FILES[name].path
    try:
        content = MAKERS[name](source)
    except (KeyError, IndexError, zipfile.BadZipFile, UnicodeDecodeError, RuntimeError) as error:
        raise ValueError(
            f"{source} is not what {name!r} is made from ({error!r}); it is made from {DATA_FILES[name].source}."
        ) from None
    check_content(path, content, DATA_FILES[name].sha256)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def _cmu_light(source: Path) -> bytes:
    from scipy.io import loadmat

    data = loadmat(source)["data"][0, 0]
    train, test = (data[key][0, 0]["sensordata"] for key in ("train", "test"))
    return _npz(train=train, test=test, coords=data["coords"])


def _portfolio(source: Path) -> bytes:
    saved = [torch.load(source / f"port_n=100_seed={seed}", weights_only=True) for seed in range(1, 31)]
    return _npz(**{key: torch.cat([of[key].squeeze() for of in saved]).numpy() for key in ("X", "Y")})


def _surrogate(source: Path) -> bytes:
    saved = torch.load(source, weights_only=True)
    return (json.dumps({key: value.flatten().tolist() for key, value in saved.items()}, indent=1) + "\n").encode()


def _intel_lab(source: Path) -> bytes:
    files = {part: source / f"intelTemperature{part.capitalize()}.csv" for part in ("train", "test")}
    tables = {part: np.genfromtxt(file, delimiter=",", skip_header=1) for part, file in files.items()}
    # The first column numbers the sensors.
    return _npz(**{f"temperature_{part}": table[:, 1:].T.astype(np.float32) for part, table in tables.items()})


def _metr_la_week(source: Path) -> bytes:
    with source.open() as lines:
        sensors = next(lines).strip().split(",")
        return _npz(speed=np.loadtxt(lines, delimiter=",", dtype=np.float32), sensor_id=np.array(sensors))


def _laboratory(source: Path, name: str, header: str) -> bytes:
    with zipfile.ZipFile(source) as wheel:
        return f"{header}\n".encode() + wheel.read(f"olympus/datasets/dataset_{name}/data.csv")


HEADERS = {
    "alkox": "residence_time,ratio,concentration,temperature,conversion",
    "benzylation": "flow_rate,ratio,solvent,temperature,impurity",
    "fullerenes": "reaction_time,sultine_conc,temperature,mole_fraction",
    "photo_wf3": "mat_1,mat_2,mat_3,mat_4,photo_degradation",
    "suzuki": "temperature,pd_mol,arbpin,k3po4,yield",
}
MAKERS: dict[str, Callable[[Path], bytes]] = {
    "abalone": lambda source: _gzip(pd.read_csv(source).rename(columns=str.lower).to_csv(index=False).encode()),
    "borisk_portfolio": _portfolio,
    "borisk_portfolio_surrogate": _surrogate,
    "cmu_light": _cmu_light,
    "djia29": lambda source: _gzip(source.read_bytes()),
    "intel_lab": _intel_lab,
    "metr_la_week": _metr_la_week,
    **{name: partial(_laboratory, name=name, header=header) for name, header in HEADERS.items()},
}


def main() -> None:
    """Convert a download, and check that the result is the data set."""
    sources = "\n".join(f"  {name}: from {file.source}" for name, file in DATA_FILES.items())
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, epilog=f"data sets:\n{sources}", formatter_class=text)
    parser.add_argument("name", metavar="NAME", choices=DATA_FILES)
    parser.add_argument("file", metavar="DOWNLOAD", type=Path)
    given, folder = parser.parse_args(), data_folder()
    if folder is None:
        parser.error("set the environment variable BO_ROBUST_DATA to the folder of data sets.")
    try:
        print(f"Wrote {prepare(given.name, given.file, folder)}.")
    except (ValueError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
