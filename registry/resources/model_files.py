"""Files of a model directory: selection, checks and digests."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from registry.resources.hub import cache_folder

MARKS = ("config.json", "modules.json", "cse.json")
"""Files that mark a model directory: at least one of them exists."""

_VOCABULARIES = ("tokenizer.json", "vocab.*", "*.model", "tokenizer.model*", "*.spm")
_CONTENT = ("config.json", "*.safetensors", "*.bin", "tokenizer.json", "vocab.txt", "*.model", "*.spm")
_ADAPTER = "adapter_config.json"
_STRUCTURE = ("config.json", "modules.json", "cse.json")
_NOTES = ("_name_or_path", "transformers_version", "torch_dtype", "dtype")
_SETTINGS = ("*.json", "*.txt", "*.model", "*.spm")
_OTHER_FRAMEWORKS = ("tf_*", "flax_*", "*.h5.index.json", "*.msgpack.index.json")
_WEIGHTS = (  # the first form that exists is used
    ("model.safetensors",),
    ("model.safetensors.index.json", "model-?????-of-?????.safetensors"),
    ("*.safetensors",),
    ("pytorch_model.bin",),
    ("pytorch_model.bin.index.json", "pytorch_model-?????-of-?????.bin"),
    ("pytorch_model*.bin",),
)
_MODULE = re.compile(r"(\w+_)?\d+_\w+(/(\w+_)?\d+_\w+)?")
"""Directory of a sentence-transformers module, such as 1_Pooling, or of a router's, such as query_0_StaticEmbedding."""


def needed_files(names: Sequence[str]) -> list[str]:
    """Return the files of a repository to download: settings, vocabulary, and PyTorch weights in one format."""
    modules = {name.rpartition("/")[0] for name in names}
    folders = ["", *(f"{folder}/" for folder in sorted(modules) if _MODULE.fullmatch(folder))]
    chosen: list[str] = []
    for folder in folders:
        here = [name.removeprefix(folder) for name in names if name.startswith(folder)]
        here = [name for name in here if "/" not in name and not _matching([name], _OTHER_FRAMEWORKS)]
        settings = [name for name in _matching(here, _SETTINGS) if not name.endswith(".index.json")]
        weights = next((_matching(here, patterns) for patterns in _WEIGHTS if _matching(here, patterns[-1:])), [])
        chosen += [folder + name for name in (*settings, *weights)]
    return chosen


def _matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    return [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def complete(folder: Path) -> bool:
    """Return whether a directory contains a configuration, all weights and a vocabulary."""
    if not any((folder / name).is_file() for name in MARKS):
        return False
    try:
        shards = _shards(folder)
    except ValueError:
        return False
    in_modules = not (folder / "config.json").is_file() and (folder / "modules.json").is_file()
    parts = [folder, *(part for part in folder.iterdir() if _MODULE.fullmatch(part.name))] if in_modules else [folder]
    if shards and not any((folder / name).is_file() for name in ("model.safetensors", "pytorch_model.bin")):
        weights = all((folder / shard).is_file() for shard in shards)
    else:
        weights = any(any(part.glob(form)) for part in parts for form in ("*.safetensors", "pytorch_model*.bin"))
    return weights and any(map(has_vocabulary, parts))


def has_vocabulary(folder: Path) -> bool:
    """Return whether a model directory has a tokenizer."""
    return any(file for pattern in _VOCABULARIES for file in folder.glob(pattern))


def check_files(folder: Path) -> None:
    """Raise `ValueError` if transformers would load other weights on another machine.

    That is, if the weight index points outside the directory, or the directory contains a PEFT adapter.
    """
    _shards(folder)
    if (folder / _ADAPTER).exists():
        raise ValueError(f"{_ADAPTER} would be applied only if peft is installed: merge the adapter into the weights")


def _shards(folder: Path) -> set[str]:
    """Return the files in the weight index. Empty if there is no index. Raises `ValueError` if it is not valid."""
    for index in (*folder.glob("*.safetensors.index.json"), *folder.glob("pytorch_model*.index.json")):
        try:
            shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{index.name} is not a weight index") from error
        if odd := [shard for shard in shards if not isinstance(shard, str) or Path(shard).name != shard]:
            raise ValueError(f"{index.name} lists {odd[0]!r}, which is not a file in this directory")
        return shards
    return set()


def digest(path: Path) -> str:
    """Return 16 hex digits that identify the weights, the configuration and the vocabulary in `path`."""
    total = hashlib.sha256()
    for file in sorted({file for pattern in _CONTENT for file in path.glob(pattern)}):
        total.update(file.name.encode() + b"\0")
        with file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()[:16]


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file, which is its name in the Hub's cache. A process reads an unchanged file once."""
    blob = file.resolve()
    if re.fullmatch("[0-9a-f]{64}", blob.name) and blob.is_relative_to(cache_folder().resolve()):
        return blob.name
    state = blob.stat()
    return _content_sha256(blob, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)


@cache
def _content_sha256(file: Path, *_state: int) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def weights_sha256(folder: Path) -> str:
    """Return the SHA-256 of a model's weight file. For several files, return that of their digests in name order."""
    names = needed_files(_files_in(folder))
    digests = [sha256_of(folder / name) for name in sorted(names) if name.endswith((".safetensors", ".bin"))]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def settings_sha256(folder: Path) -> str:
    """Return the SHA-256 of a model's configuration and vocabulary.

    Keys of `config.json` in `_NOTES` are ignored. If a vocabulary exists in several forms, the first one in
    `_VOCABULARIES` counts, because copies of a model can lack the others.
    """
    total = hashlib.sha256()
    for file in sorted(folder / name for name in _files_in(folder) if Path(name).name in _STRUCTURE):
        total.update(f"{file.relative_to(folder).as_posix()}\0{_without_notes(file)}\0".encode())
    for pattern in _VOCABULARIES:
        if files := sorted(folder.glob(pattern)):
            total.update("".join(map(sha256_of, files)).encode())
            break
    return total.hexdigest()


def _files_in(folder: Path) -> list[str]:
    files = (file for file in (*folder.glob("*"), *folder.glob("*/*")) if file.is_file())
    return [file.relative_to(folder).as_posix() for file in files]


def _without_notes(config: Path) -> str:
    content = config.read_bytes()
    try:
        table = json.loads(content)
        kept = {key: value for key, value in table.items() if key not in _NOTES}
        return json.dumps(kept, sort_keys=True)
    except (ValueError, AttributeError, RecursionError):
        return content.hex()
