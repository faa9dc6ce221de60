"""Files of a result folder: written whole or not at all, and each with a digest that is checked before use.

``run.json`` and the files of tensors hold their own digest. ``SHA256SUMS`` holds those of all files of a finished run,
for ``sha256sum -c SHA256SUMS``.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bo_robust.experiments.errors import RunError

SUMS = "SHA256SUMS"
REMEDY = "Delete it and resume again: what is finished is kept, only the algorithm under way starts anew."

# The umask can only be read by setting it, which is safe once, before there are threads.
_UMASK = os.umask(0)
os.umask(_UMASK)


def write_atomic(path: Path, write: Callable[[Path], Any]) -> None:
    """Call ``write`` on a temporary file beside ``path``, flush it to disk and move it into place.

    The temporary file is new and nobody can predict its name, so that no link in the folder leads elsewhere.
    ``RunError`` is raised when the disk is full or the folder cannot be written; ``path`` keeps its old content.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made, name = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
        os.close(made)
        temporary = Path(name)
        write(temporary)
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        os.chmod(temporary, 0o666 & ~_UMASK)  # it was made with mode 0600, which other users could not read
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise RunError(f"cannot write {path}: {reason}. What was written before is intact.") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):  # it was moved
                temporary.unlink()


def is_leftover(path: Path) -> bool:
    """Whether a file is what :func:`write_atomic` leaves when it is killed."""
    return path.name.startswith(".") and path.suffix == ".part"


def write_bytes(content: bytes, path: Path) -> None:
    """Write bytes atomically."""
    write_atomic(path, lambda temporary: temporary.write_bytes(content))


def write_json(data: dict[str, Any], path: Path) -> None:
    """Write plain data as JSON, atomically."""
    write_bytes((json.dumps(data, indent=2, allow_nan=False) + "\n").encode(), path)


def json_digest(data: Mapping[str, Any]) -> str:
    """The digest of plain data; its own key "sha256" is left out."""
    plain = json.loads(json.dumps({key: value for key, value in data.items() if key != "sha256"}))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def sealed(tensors: Mapping[str, Tensor], header: str) -> dict[str, str]:
    """Metadata of a file of tensors (safetensors): a text, and the digest of text and tensors."""
    shapes = {name: [str(t.dtype), list(t.shape)] for name, t in tensors.items()}
    found = hashlib.sha256(json.dumps([header, shapes], sort_keys=True).encode())
    for name in sorted(tensors):
        found.update(tensors[name].numpy().tobytes())
    return {"header": header, "sha256": found.hexdigest()}


def read_tensors(path: Path, remedy: str) -> tuple[dict[str, Tensor], Any]:
    """The tensors of a file and its header as JSON; ``RunError`` ends in ``remedy`` if the file is damaged."""
    try:
        with safe_open(path, framework="pt") as handle:
            metadata = handle.metadata()
            tensors = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
        if metadata != sealed(tensors, metadata["header"]):
            raise ValueError("its content does not fit its checksum")
        return tensors, json.loads(metadata["header"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise RunError(f"{path} is damaged ({' '.join(str(error).split())[:300]}). {remedy}") from None


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], meta: dict[str, Any]) -> None:
    """Write tensors and JSON-able ``meta``, atomically.

    A checkpoint holds every tensor of an algorithm's state, the traces so far and a few numbers. It holds no random
    streams, which depend on seed, trial and chunk only. Resuming gives bit-identical traces.
    """
    plain = {k: v.detach().contiguous().cpu() for k, v in tensors.items()}
    metadata = sealed(plain, json.dumps(meta))
    write_atomic(path, lambda temporary: save_file(plain, temporary, metadata=metadata))


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_checkpoint` wrote, or raise ``RunError`` if the file is truncated or damaged."""
    return read_tensors(path, REMEDY)


def add_digests(folder: Path, names: Iterable[str]) -> None:
    """Write the digests of these files into ``SHA256SUMS``, beside those of others that it has."""
    known = _sums(folder) | {name: _file_digest(folder / name) for name in names}
    lines = [f"{digest}  {name}\n" for name, digest in sorted(known.items())]
    write_bytes("".join(lines).encode(), folder / SUMS)


def changed_files(folder: Path) -> list[str]:
    """Names of files directly in the folder that are not as ``SHA256SUMS`` says."""
    known = _sums(folder)
    there = [path for path in sorted(folder.iterdir()) if path.name in known and path.is_file()]
    return [path.name for path in there if _file_digest(path) != known[path.name]]


def _sums(folder: Path) -> dict[str, str]:
    """Digests by name; lines that are none, in a damaged file, are left out."""
    path = folder / SUMS
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    pairs = [line.split("  ", 1) for line in lines if "  " in line]
    return {name: digest for digest, name in pairs if (folder / name).is_file()}


def _file_digest(path: Path) -> str:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
