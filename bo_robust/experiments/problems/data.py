"""The files of real data: their sources, and how they are found, checked and read.

Nothing is unpickled, nothing is downloaded.
"""

import hashlib
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bo_robust

SHIPPED = Path(bo_robust.__file__).resolve().parent / "data"  # files that are part of the package
OLYMPUS = "the package olymp 0.0.1b0 (Olympus, Häse et al. 2021), folder olympus/datasets, with a header"


@dataclass(frozen=True)
class DataFile:
    """One file of a data folder: its path within the folder, the checksum of its bytes, and its source."""

    path: str
    sha256: str
    source: str


DATA_FILES: dict[str, DataFile] = {
    "abalone": DataFile(
        "abalone/abalone.csv.gz",
        "6fa17ceaa7db5a70b6cc9becfbb305bcb076d2ae712bfd15ac028ff9a004f54a",
        "UCI abalone (Nash, Sellers, Talbot, Cawthorn, Ford 1994), abalone.data of GitHub Bsovann/Abalone-DS @ 336a72b",
    ),
    "borisk_portfolio": DataFile(
        "borisk_portfolio/borisk_portfolio_evals.npz",
        "9ba6749f1bdb24d4229ef6cedfdfaf54a0b83dd3260ebb28bea83ef5af1319d3",
        "the port_evals of GitHub zyyjjj/low_rank_BOPE @ 27369e9, a copy of saitcakmak/BoRisk's (Cakmak et al. 2020)",
    ),
    "borisk_portfolio_surrogate": DataFile(
        "borisk_portfolio/surrogate_state_dict.json",
        "1e83b8d9c9b7522c900e15efdfd0e8826b84e2f655d0c4e866d6fa5037895b71",
        "portfolio_surrogate_state_dict.pt of GitHub zyyjjj/low_rank_BOPE @ 27369e9, as JSON",
    ),
    "djia29": DataFile(
        "djia29/djia29_adjclose.csv.gz",
        "6c37e415574eff2ea5263690ed2fc3b3c1d21e81987d44bf5ebe8a7f9b61d2c5",
        "fin.csv of GitHub sayakrc/Bayesian-Optimization-under-Heavy-tailed-Payoffs @ 673ce5c, gzipped",
    ),
    "cmu_light": DataFile(
        "cmu_light/cmu_light.npz",
        "14e21e327c31b7997036e11f110ce1b46dde9aa810e37acf7a77e9db1bc0b10e",
        "iw_data_all.mat of GitHub sayakrc/Bayesian-Optimization-under-Heavy-tailed-Payoffs @ 673ce5c "
        "(collected by A. Krause, 2005)",
    ),
    "intel_lab": DataFile(
        "intel_lab/intel_lab_30min.npz",
        "57cea5df3243cddb9a31118dcc8731f6af680fed847058a6767b632a0d17eb08",
        "Intel Berkeley Research Lab (Bodik, Hong, Guestrin, Madden, Paskin, Thibaux), 30-minute values of "
        "GitHub ironhide23586/Sensor-Network-CS583 @ 70a1812",
    ),
    "metr_la_week": DataFile(
        "metr_la_week/metr_la_week.npz",
        "a8a824de3815a2cf6814a54c8de841885c494919c97bab829d6118ddd54466d4",
        "los_speed.csv of GitHub lehaifeng/T-GCN @ 219a234 (METR-LA, Jagadish et al. 2014)",
    ),
    "seattle_latency": DataFile(
        "seattle_latency/seattle_rtt.npz",
        "57fe9a12c18217a006d10050b3aa530b5d34a1b5d826a2df8957df32c40b7512",
        "GitHub uofa-rzhu3/NetLatency-Data @ a584557 (Zhu, Liu, Niu, Li, Zhao, IEEE/ACM ToN 2017)",
    ),
    "alkox": DataFile("lab/alkox.csv", "699e31511739a900db9db51d7df63156d6fa47c55d942e2b7e746ef5498f70f1", OLYMPUS),
    "benzylation": DataFile(
        "lab/benzylation.csv", "6112150217e135682ba100f32ffc2875d49d9f973e8f8da1ebb5a42f9b3a2de5", OLYMPUS
    ),
    "fullerenes": DataFile(
        "lab/fullerenes.csv", "0d2c7c0abe5018c81f3485d7cab4ca650d59a1a8199e5238ce18f2e240454a33", OLYMPUS
    ),
    "photo_wf3": DataFile(
        "lab/photo_wf3.csv", "3428cb2737ce0bfe401f6aada773a675079562c377f71a93189016a917fcb159", OLYMPUS
    ),
    "suzuki": DataFile("lab/suzuki.csv", "8505c30ef49e37dfe3194ef12fd7432dbf47e94557feefeead43d51dd6ba5a28", OLYMPUS),
}


def load_npz(name: str, data_dir: Path | str | None = None) -> dict[str, np.ndarray]:
    """Read the arrays of a data set's ``.npz`` file. Errors are those of :func:`verified`."""
    with np.load(io.BytesIO(verified(name, data_dir)), allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


def load_csv(name: str, data_dir: Path | str | None = None) -> pd.DataFrame:
    """Read a data set's ``.csv`` or ``.csv.gz`` file. Errors are those of :func:`verified`."""
    compression: Any = "gzip" if DATA_FILES[name].path.endswith(".gz") else None
    return pd.read_csv(io.BytesIO(verified(name, data_dir)), compression=compression)


def verified(name: str, data_dir: Path | str | None = None) -> bytes:
    """Read a data set's file and check its bytes; arguments and errors are as in :func:`verified_path`."""
    return verified_path(name, data_dir).read_bytes()


def verified_path(name: str, data_dir: Path | str | None = None) -> Path:
    """Find a data set's file, ``name`` in :data:`DATA_FILES`, and check its bytes.

    ``data_dir`` is the data folder; None takes the environment variable ``BO_ROBUST_DATA``. A file that is part of the
    package is taken from there.

    Raises:
        FileNotFoundError: if the file is missing, saying how to point at it.
        ValueError: if its checksum differs.
    """
    file = DATA_FILES[name]
    folder = data_dir if data_dir is not None else os.environ.get("BO_ROBUST_DATA")
    path = Path(folder, file.path) if folder else None
    if (SHIPPED / Path(file.path).name).is_file():
        path = SHIPPED / Path(file.path).name
    if path is None or not path.is_file():
        where = f"no file {path}" if path else "no data folder was given"
        raise FileNotFoundError(
            f"problem {name!r} needs the data file {file.path}: {where}. It is not part of the package; it "
            f"comes from {file.source}. Point at the folder that holds {Path(file.path).parent}/ with --data-dir "
            "FOLDER (data_dir= in Python) or the environment variable BO_ROBUST_DATA."
        )
    check_sha256(path, path.read_bytes(), file.sha256)
    return path


def check_sha256(path: Path, content: bytes, expected: str, remedy: str = "Fetch it again.") -> None:
    """Raise ``ValueError``, ending in ``remedy``, unless ``content`` has the expected checksum."""
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise ValueError(
            f"{path} is not the expected file: its sha256 is {found}, expected {expected}. It is damaged, "
            f"truncated or another version. {remedy}"
        )
