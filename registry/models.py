"""Model names → directories on this machine → models and tokenizers. Importing this is cheap."""

from __future__ import annotations

import hashlib
import inspect
import os
from pathlib import Path
from typing import Any

from registry.errors import CseError, MissingError, suggestion
from registry.hub import fetch, repositories

PRETRAINED = Path(__file__).parent / "pretrained"
"""Models shipped with the package."""

EMBEDDINGS_ONLY = "cse_embeddings_only"
"""Key of a `config.json` whose checkpoint holds the embedding layer and nothing else."""

_MARKS = ("config.json", "modules.json", "cse.json")
_VOCABULARIES = ("tokenizer.json", "vocab.*", "*.model", "tokenizer.model*")
_CONTENT = ("config.json", "*.safetensors", "*.bin", "tokenizer.json", "vocab.txt", "*.model")


def locate(model: str) -> Path:
    """Return the directory of a model.

    Looked up in this order: a directory, a name under `$CSE_MODELS`, a model shipped with this package, the local cache
    of the hub, the hub. A hub that does not answer costs at most five seconds.

    Raises:
        MissingError: It is nowhere to be found from this machine.
    """
    candidates = [Path(model).expanduser(), *(folder / model for folder in _local_folders())]
    for candidate in candidates:
        if any((candidate / name).is_file() for name in _MARKS):
            return candidate.absolute()
    directory = "/" in model and candidates[0].is_dir()
    if directory or model.startswith((".", "/", "~")) or model.count("/") > 1:
        state = "holds no config.json" if directory else "does not exist"
        raise MissingError(
            f"the model directory {model!r} {state}", "give a directory written by save_pretrained or `cse run`"
        )
    hint = suggestion(model, [name for name in local_names() if name != model])
    return fetch(model, hint)


def local_names() -> list[str]:
    """Return the names `locate` finds without a network."""
    children = [child for folder in _local_folders() for child in _children(folder)]
    found = {child.name for child in children if (child / "config.json").is_file()}
    return sorted(found | set(repositories()))


def _local_folders() -> list[Path]:
    configured = os.environ.get("CSE_MODELS")
    return [Path(configured).expanduser(), PRETRAINED] if configured else [PRETRAINED]


def _children(folder: Path) -> list[Path]:
    return [child for child in folder.iterdir() if child.is_dir()] if folder.is_dir() else []


def digest(path: Path) -> str:
    """Return 16 hex digits that change when the weights, the configuration or the vocabulary in `path` change."""
    total = hashlib.sha256()
    for file in sorted({file for pattern in _CONTENT for file in path.glob(pattern)}):
        total.update(file.name.encode() + b"\0")
        with file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()[:16]


def quiet_transformers() -> None:
    """Keep transformers' progress bars and loading reports off the terminal."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def load_config(model: str) -> Any:
    """Return the transformers configuration of a model."""
    from transformers import AutoConfig

    path = locate(model)
    try:
        return AutoConfig.from_pretrained(path)
    except (OSError, ValueError, KeyError) as error:
        raise CseError(
            f"the configuration of model {model!r} in {path} cannot be read: {_first_line(error)}",
            "give a model whose config.json names an architecture transformers knows",
        ) from error


def load_tokenizer(model: str) -> Any:
    """Return the transformers tokenizer of a model."""
    from transformers import AutoTokenizer

    quiet_transformers()
    path = locate(model)
    action = "put its tokenizer.json, or vocab.txt and tokenizer_config.json, into that directory"
    if not any(file for pattern in _VOCABULARIES for file in path.glob(pattern)):
        # transformers would make a tokenizer that knows special tokens only.
        raise MissingError(f"model {model!r} in {path} has no tokenizer file", action)
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError, KeyError, TypeError, ImportError, AttributeError) as error:
        raise MissingError(
            f"the tokenizer of model {model!r} in {path} cannot be loaded: {_first_line(error)}", action
        ) from error
    _check_size(model, len(tokenizer))
    return tokenizer


def _check_size(model: str, entries: int) -> None:
    """Refuse a tokenizer whose ids reach past the embedding table."""
    rows = getattr(load_config(model), "vocab_size", None)
    if rows is not None and entries > rows:
        raise CseError(
            f"the tokenizer of model {model!r} has {entries} entries, its embedding layer {rows}",
            "the directory mixes files of two models: put the right tokenizer beside the weights",
        )


def load_model(model: str, *, random_weights: bool = False, embeddings_only: bool = False, **config: Any) -> Any:
    """Return the transformers model, in float32, without pooler, in eval mode, with scaled-dot-product attention.

    Args:
        model: Name or directory.
        random_weights: Keep the freshly initialised weights of the same shape.
        embeddings_only: Build no transformer block; their weights are not read.
        config: Configuration values to override, for example `hidden_dropout_prob`.

    Raises:
        MissingError: The checkpoint lacks weights, which would silently stay random.
    """
    settings = load_config(model)
    if getattr(settings, EMBEDDINGS_ONLY, False) and not (random_weights or embeddings_only):
        raise MissingError(
            f"model {model!r} in {locate(model)} holds an embedding layer only and cannot serve as an encoder",
            "use it in `fuse_embeddings`, or point $CSE_MODELS at a folder that has the complete model",
        )
    settings.output_hidden_states = False  # exports that average layers switch it on; nothing here reads it
    if embeddings_only:
        config["num_hidden_layers"] = 0
    for key, value in config.items():
        setattr(settings, key, value)
    return _load(model, settings, random_weights)


def _load(model: str, settings: Any, random_weights: bool) -> Any:
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModel

    quiet_transformers()
    path = locate(model)
    options: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "sdpa", **_without_pooler(settings)}
    try:
        if random_weights:
            return AutoModel.from_config(settings, **options).eval()
        loaded, report = AutoModel.from_pretrained(path, config=settings, output_loading_info=True, **options)
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        raise MissingError(
            f"the weights of model {model!r} in {path} cannot be loaded: {_first_line(error)}",
            "give a directory with config.json and model.safetensors of the same model",
        ) from error
    missing = sorted(key for key in report["missing_keys"] if "pooler" not in key.split("."))
    if missing:
        raise MissingError(
            f"the checkpoint of model {model!r} in {path} lacks {len(missing)} weights, among them {missing[0]!r}: "
            "they would stay random",
            "give the complete model, or set random_weights = true to train from nothing on purpose",
        )
    return loaded


def _without_pooler(settings: Any) -> dict[str, bool]:
    """The pooler is never used here, and parameters without gradient break distributed training."""
    from transformers import MODEL_MAPPING

    cls = MODEL_MAPPING.get(type(settings), None)
    known = cls is not None and "add_pooling_layer" in inspect.signature(cls.__init__).parameters
    return {"add_pooling_layer": False} if known else {}


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
