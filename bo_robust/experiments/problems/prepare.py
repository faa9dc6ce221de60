"""From what one downloads to the files of a data folder; :data:`.data.DATA_FILES` says where from."""

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from bo_robust.experiments.problems.data import DATA_FILES, check_content
from bo_robust.utils.specs import nearest, quoted


def prepare(name: str, source: Path, data_dir: Path) -> Path:
    """Convert the download ``source``, a file or a folder, to the file of data set ``name`` in ``data_dir``.

    Returns the path written. Raises ``ValueError`` for an unknown name, and where the result is not the data set.
    """
    if name not in DATA_FILES:
        raise ValueError(f"there is no data set {quoted(name)}; {nearest(name, DATA_FILES)}")
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


def _abalone(source: Path) -> bytes:
    table = pd.read_csv(source).rename(columns=str.lower)
    return gzip.compress(table.to_csv(index=False).encode(), mtime=0)


def _djia29(source: Path) -> bytes:
    return gzip.compress(source.read_bytes(), mtime=0)


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
    def rows(part: str) -> Any:
        table = np.genfromtxt(source / f"intelTemperature{part}.csv", delimiter=",", skip_header=1)
        return table[:, 1:].T.astype(np.float32)  # the first column numbers the sensors

    return _npz(temperature_train=rows("Train"), temperature_test=rows("Test"))


def _metr_la_week(source: Path) -> bytes:
    with source.open() as lines:
        sensors = next(lines).strip().split(",")
        return _npz(speed=np.loadtxt(lines, delimiter=",", dtype=np.float32), sensor_id=np.array(sensors))


def _seattle_latency(source: Path) -> bytes:
    slices = [np.loadtxt(source / f"SeattleData_{i}") for i in range(1, 689)]
    return _npz(rtt_10ms=np.rint(100.0 * np.stack(slices)).astype(np.uint16))


HEADERS = {
    "alkox": "residence_time,ratio,concentration,temperature,conversion",
    "benzylation": "flow_rate,ratio,solvent,temperature,impurity",
    "fullerenes": "reaction_time,sultine_conc,temperature,mole_fraction",
    "photo_wf3": "mat_1,mat_2,mat_3,mat_4,photo_degradation",
    "suzuki": "temperature,pd_mol,arbpin,k3po4,yield",
}


def _laboratory(name: str) -> Callable[[Path], bytes]:
    def make(source: Path) -> bytes:
        with zipfile.ZipFile(source) as wheel:
            return f"{HEADERS[name]}\n".encode() + wheel.read(f"olympus/datasets/dataset_{name}/data.csv")

    return make


MAKERS: dict[str, Callable[[Path], bytes]] = {
    "abalone": _abalone,
    "borisk_portfolio": _portfolio,
    "borisk_portfolio_surrogate": _surrogate,
    "cmu_light": _cmu_light,
    "djia29": _djia29,
    "intel_lab": _intel_lab,
    "metr_la_week": _metr_la_week,
    "seattle_latency": _seattle_latency,
    **{name: _laboratory(name) for name in HEADERS},
}
