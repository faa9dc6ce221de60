"""The result folder of a run: one process at a time, every file written whole or not at all, one digest a file.

``run.json`` says what is played, with which constants, where and since when. ``shards/`` holds what finished jobs left:
parquet files of traces, whose schema metadata hold everything else as JSON under :data:`METADATA`. ``checkpoints/``
holds the state of jobs under way on this machine. ``SHA256SUMS`` has the digest of every file but checkpoints, for
``sha256sum -c SHA256SUMS``; the format of a checkpoint has checksums of its own.

A shard is some trials of one method of one panel: by default all of them over arms, one over (x, z). Random numbers
depend on the seed, the trial and the round only. Batched algebra, however, may round differently for another number of
trials. Traces are therefore bit-identical only to those of runs with the same shards; others agree up to rounding,
which may decide between arms in float32.
"""

import hashlib
import io
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from bo_robust.experiments.config import RunConfig, parse
from bo_robust.experiments.errors import RunError

SUMS = "SHA256SUMS"
METADATA = b"bo_robust"
LEFTOVERS = ".*.part"  # what a process leaves when it is killed while it writes
ANEW = "Put back what was there (files or version), or start a new run with another --out."


class ShardKey(NamedTuple):
    """Trials ``first`` to ``stop - 1`` of one method of one panel, both by number."""

    panel: int
    method: int
    first: int
    stop: int

    @property
    def name(self) -> str:
        """The shard's file in the result folder."""
        return "shards/{:02d}-{:02d}-{:06d}-{:06d}.parquet".format(*self)

    def path(self, folder: Path) -> Path:
        """Where the shard is stored."""
        return folder / self.name

    def checkpoint(self, folder: Path) -> Path:
        """Where the state of a job under way is saved."""
        return folder / "checkpoints" / f"{Path(self.name).stem}.npz"


@dataclass(frozen=True)
class Shard:
    """What one job left."""

    frame: pd.DataFrame  # Traces in long format, one row per trial and round
    # Plain data (:meth:`bo_robust.experiments.arm_loop.ArmRun.shard`,
    # :func:`bo_robust.experiments.conditions_loop.play_shard`)
    metadata: dict[str, Any]


def keys_of(panels: Iterable[Any], size: int | None) -> list[ShardKey]:
    """The shards of all panels, in the order they are played; ``size`` as in :meth:`Panel.shards`."""
    return [
        ShardKey(i, j, first, stop)
        for i, panel in enumerate(panels)
        for first, stop in panel.shards(size)
        for j in range(len(panel.methods))
    ]


def check_free(folder: Path) -> None:
    """Raise ``RunError`` if the folder of a new run holds something already, but for what a killed process left."""
    try:
        taken = folder.exists() and any(not path.match(LEFTOVERS) for path in folder.iterdir())
    except OSError as error:
        raise RunError(f"{folder} is no folder to write to ({error.strerror}); choose another --out.") from None
    if taken:
        raise RunError(
            f"{folder} exists already; choose another --out, or go on with `bo-robust resume {folder}` if it is a "
            "run that was interrupted."
        )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for one process at a time, on systems that have flock; what killed ones left is deleted."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)  # not a file in it, which may be replaced
    except OSError as error:
        raise RunError(f"{folder} is not a result folder: it cannot be opened ({error.strerror}).") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"another process is running {folder}; wait for it or stop it.") from None
        except OSError as error:
            raise RunError(f"{folder} cannot be locked ({error.strerror}); choose another --out.") from None
        for path in folder.rglob(LEFTOVERS):
            path.unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)


def write_atomic(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, flush it to disk and move it into place.

    ``RunError`` is raised when the disk is full or the folder cannot be written; ``path`` keeps its old content.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        reason = error.strerror or error
        raise RunError(f"cannot write {path}: {reason}. What was written before is intact.") from None
    finally:
        with suppress(OSError):  # it was moved
            temporary.unlink()


def put_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files of a result folder, by name, and their digests."""
    digests = _digests(folder)
    if contents.keys() & digests.keys():  # a kill must not leave a new file with its old digest
        digests = {name: digest for name, digest in digests.items() if name not in contents}
        _write_digests(folder, digests)
    for name, content in contents.items():
        write_atomic(folder / name, lambda file, content=content: file.write(content))  # type: ignore[misc]
    _write_digests(folder, digests | {name: hashlib.sha256(of).hexdigest() for name, of in contents.items()})


def get_file(folder: Path, name: str, remedy: str) -> bytes:
    """The content of a file; ``RunError`` ends in ``remedy`` if it is not as ``SHA256SUMS`` says."""
    content = (folder / name).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if _digests(folder).get(name, digest) != digest:
        raise RunError(f"{folder / name} is damaged or was changed: its digest is not that of {SUMS}. {remedy}")
    return content


def _digests(folder: Path) -> dict[str, str]:
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.split("  ", 1) for line in lines if "  " in line)
    return {name: digest for digest, name in pairs if (folder / name).is_file()}


def _write_digests(folder: Path, digests: Mapping[str, str]) -> None:
    text = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    write_atomic(folder / SUMS, lambda file: file.write(text.encode()))


def json_bytes(data: Mapping[str, Any]) -> bytes:
    """Plain data as JSON, for people to read."""
    return (json.dumps(data, indent=2, allow_nan=False) + "\n").encode()


def write_run(info: dict[str, Any], folder: Path) -> None:
    """Write ``run.json``."""
    put_files(folder, {"run.json": json_bytes(info)})


def read_run(folder: Path) -> tuple[dict[str, Any], RunConfig]:
    """``run.json`` of a result folder, and the configuration in it.

    ``RunError`` is raised when it is missing, damaged, or its configuration was changed after the run began.
    """
    path = folder / "run.json"
    try:
        info = json.loads(get_file(folder, "run.json", ANEW))
        config, digest, _ = parse(info["config"]), info["config_digest"], info["fingerprint"]
    except OSError as error:
        raise RunError(f"{folder} is not a result folder: cannot read {path} ({error.strerror}).") from None
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged ({error}). {ANEW}") from None
    if config.digest != digest:
        raise RunError(
            f"the configuration in {path} was changed, or means something else in this version of bo_robust; results "
            f"would be mixed. {ANEW}"
        )
    return info, config


def parquet_bytes(frame: pd.DataFrame, metadata: Mapping[bytes, str] | None = None) -> bytes:
    """A parquet file of a table, with ``metadata`` in its schema."""
    table, file = pa.Table.from_pandas(frame, preserve_index=False), io.BytesIO()
    table = table.replace_schema_metadata({**table.schema.metadata, **(metadata or {})})
    pq.write_table(table, file, compression="zstd")
    return file.getvalue()


def shard_bytes(shard: Shard, key: ShardKey, digest: str) -> bytes:
    """The content of a shard's file; ``digest`` is that of the run's configuration."""
    about = {"config_digest": digest, "key": list(key), "metadata": shard.metadata}
    return parquet_bytes(shard.frame, {METADATA: json.dumps(about)})


def load_shard(folder: Path, key: ShardKey, digest: str) -> Shard:
    """Read a shard, or raise ``RunError`` if it is missing, damaged, or belongs to another run or place."""
    remedy = f"Delete it and run `bo-robust resume {folder}`: it is played again, the others are kept."
    try:
        table = pq.read_table(io.BytesIO(get_file(folder, key.name, remedy)))
        about = json.loads(table.schema.metadata[METADATA])
        frame = table.to_pandas()
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{key.path(folder)} is damaged ({' '.join(str(error).split())[:300]}). {remedy}") from None
    if about["config_digest"] != digest or about["key"] != list(key):
        raise RunError(f"{key.path(folder)} is of another run or shard. {remedy}")
    return Shard(frame, about["metadata"])


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
    """Write tensors and JSON-able ``numbers``, atomically.

    A checkpoint holds every tensor of an algorithm's state, the traces so far and a few numbers. It holds no random
    streams, which depend on seed, trial and chunk only. Resuming gives bit-identical traces.
    """
    arrays = {name: tensor.detach().contiguous().cpu().numpy() for name, tensor in tensors.items()}
    arrays["numbers"] = np.array(json.dumps(numbers))
    write_atomic(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Read what :func:`save_checkpoint` wrote; None if there is nothing, or, with a warning, if it cannot be read."""
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:  # checks the checksum of every array
            arrays = dict(file)
        numbers = json.loads(str(arrays.pop("numbers")))
        return {name: torch.from_numpy(array) for name, array in arrays.items()}, numbers
    except Exception as error:  # zipfile and numpy have a dozen kinds for damaged content
        reason = " ".join(str(error).split())[:300]
        warnings.warn(f"the checkpoint {path} cannot be read ({reason}): its job starts again.", stacklevel=2)
        return None
