"""Embeddings on the disk, so that a second evaluation of a model on the same data needs no forward pass.

A file contains the embeddings of one call of an evaluator, usually those of a data set. `cse_cli.data.cache` writes it
atomically and detects damage. The least recently used files are deleted if all of them exceed `LIMIT`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from cse_cli.core import digests, paths
from cse_cli.core.devices import Compute
from cse_cli.data.cache import Facts, make_file, whole_file
from registry.code import code_digest, modules_digest
from registry.prompts import Side
from registry.types import Encoder

LIMIT = 10 * 2**30
"""Maximum size of all files in bytes."""

Way = tuple[str, Side | None]
"""Prompt of sentences, and their side if the encoder can have different modules for the sides."""

_CODE = ("cse_cli.evaluation.encoder", "registry.encoders.saved")
_LIBRARIES = ("torch", "transformers", "tokenizers", "sentence-transformers")


class StoredVectors:
    """Stored embeddings of one model with one group of settings.

    Args:
        key: Result of `identify`.
    """

    def __init__(self, key: str) -> None:
        self.folder = paths.cache() / "vectors" / key
        self.read_rows = 0
        """Number of embeddings that were read."""

    def path(self, sentences: Sequence[str], way: Way) -> Path:
        """Return the file with the embeddings of sentences."""
        return self.folder / f"{_sha256([way, list(sentences)])}.npy"

    def read(self, sentences: Sequence[str], way: Way) -> np.ndarray | None:
        """Return the embeddings (n, D) of sentences, or None if they are not stored or damaged."""
        path = self.path(sentences, way)
        if whole_file(path) is None:
            return None
        with suppress(OSError):  # a read-only directory
            os.utime(path)
        found: np.ndarray = np.load(path, allow_pickle=False)
        self.read_rows += len(found)
        return found

    def write(self, sentences: Sequence[str], way: Way, vectors: np.ndarray) -> None:
        """Store the embeddings of sentences, unless the directory is read-only or the disk is full."""

        def save(path: Path) -> Facts:
            np.save(path, vectors, allow_pickle=False)
            return {"rows": len(vectors)}

        with suppress(OSError):
            make_file(self.path(sentences, way), save)
            _delete_oldest(self.folder.parent)


def digest_of(folder: Path) -> str:
    """Return the SHA-256 of all files of a model except its descriptions. Unchanged files are not read again."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.suffix != ".md"]
    return _sha256({file.relative_to(folder).as_posix(): digests.sha256(file) for file in files})


def identify(model: str, encoder: Encoder, compute: Compute, **settings: Any) -> str:
    """Return the digest of everything that decides an embedding of a model, apart from the sentence and its prompt.

    Args:
        model: Digest of its files.
        encoder: Opened model, whose code and tokenizer count.
        compute: Precision, and kind of device.
        settings: Other settings, as JSON values.
    """
    known: dict[str, Any] = {
        "model": model,
        "vocabulary": getattr(getattr(encoder, "vocabulary", None), "fingerprint", ""),
        "code": [code_digest(type(encoder)), modules_digest(_CODE)],
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "compute": [compute.device.type, compute.precision],
        "settings": settings,
    }
    return _sha256(known)


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _delete_oldest(folder: Path) -> None:
    """Delete files, the least recently used first, until they are not larger than `LIMIT`."""
    found = sorted((file.stat().st_mtime_ns, file.stat().st_size, file) for file in folder.glob("*/*.npy"))
    total = sum(size for _, size, _ in found)
    for _, size, file in found:
        if total <= LIMIT:
            break
        for part in (file, file.with_suffix(".json"), Path(f"{file}.lock")):
            part.unlink(missing_ok=True)
        total -= size
