"""Directories of named models, and the models and tokenizers in them. Imports neither torch nor transformers."""

from __future__ import annotations

import fnmatch
import hashlib
import inspect
import json
import os
import re
import tomllib
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from registry.errors import CseError, MissingError, errors_as_one, suggestion
from registry.paths import expand_user, is_dir, is_file, state_directory, state_of
from registry.resources import hub
from registry.resources.download import digest
from registry.resources.hub import Repository

PRETRAINED = Path(__file__).parent.parent / "pretrained"
"""Directory of the models in this package."""

EMBEDDINGS_ONLY = "cse_embeddings_only"
"""Key of `config.json` for a checkpoint that contains only the embedding layer."""

_MOST_LAYERS = 1000
WeightType = Literal["fp32", "bf16", "8bit", "4bit"]
"""Types of the weights of a model."""


@dataclass(frozen=True)
class KnownModel:
    """Entry of a model in `models.toml`.

    Attributes:
        id: `owner/name` on the Hub.
        revision: Commit, if known.
        names: Other names of the model.
        cite: Keys of its works in `registry/papers/references.bib`.
        license: License that its owners state.
        bytes: Download size, if known.
        tokenizer: Model whose vocabulary it uses, if its repository has none.
        model_type: Architecture, if its configuration does not contain it.
        hidden_size: D of its configuration, if a paper reports it.
        note: Further information for users.
        downloadable: Whether cse has an address to download it from. Other models are only searched in `$CSE_MODELS`.
    """

    id: str
    revision: str | None = None
    names: tuple[str, ...] = ()
    cite: tuple[str, ...] = ()
    license: str | None = None
    bytes: int | None = None
    tokenizer: str | None = None
    model_type: str | None = None
    hidden_size: int | None = None
    note: str | None = None
    downloadable: bool = True


@dataclass(frozen=True)
class ModelState:
    """Directory of a model on this machine, or its repository on the Hub and the size of its download, if known."""

    path: Path | None
    repository: Repository | None
    bytes: int | None
    license: str


# --- where models are -------------------------------------------------------------------------------------------------


@cache
def known_models() -> dict[str, KnownModel]:
    """Return the entries of `models.toml` by `owner/name`."""
    owners = tomllib.loads((Path(__file__).parent / "models.toml").read_text(encoding="utf-8"))
    entries = {f"{owner}/{name}": about for owner, models in owners.items() for name, about in models.items()}
    lists = ("names", "cite")
    return {
        id: KnownModel(id, **about | {key: tuple(about.get(key, ())) for key in lists}) for id, about in entries.items()
    }


def known(model: str) -> KnownModel | None:
    """Return the entry of a model under any of its names, or None."""
    name = model.partition("@")[0]
    return next((about for id, about in known_models().items() if name == id or name in about.names), None)


def locate(model: str, *, force: bool = False) -> Path:
    """Return the directory of a model.

    Search order: a directory, a name in `$CSE_MODELS`, a model of this package, the Hub's local cache, the Hub. The
    commit is that of the resumed run, of the name (`owner/name@revision`), of `models.toml` or of the cache, else the
    newest on the Hub. With `force`, the files of a Hub model are verified, and wrong ones are downloaded again.
    """
    if (folder := _directory(model)) is not None:
        return folder
    if not force and (folder := find(model)) is not None:
        return folder
    about = known(model)
    _require_download(model, about)
    return hub.fetch(_repositories(model)[0], needed_files, force=force, complete=complete, hint=similar(model))


def similar(model: str) -> str:
    """Return " Did you mean …?" for a name that is not known, or an empty string."""
    others = [name for name in (*local_names(), *_spellings()) if name != model]
    return suggestion(model, others) if known(model) is None else ""


def find(model: str) -> Path | None:
    """Return the directory of a model on this machine, or None. Sends no request."""
    if (folder := _directory(model)) is not None:
        return folder
    found = (hub.cached(repository, needed_files, complete=complete) for repository in _repositories(model))
    return next((folder for folder in found if folder is not None), None)


def model_state(model: str, *, ask_hub: bool = False) -> ModelState:
    """Return the location of a model, or its download. `ask_hub` asks the Hub for an unknown download size."""
    about = known(model)
    license = "" if about is None else about.license or ""
    if (path := find(model)) is not None:
        return ModelState(path, None, 0, license)
    _require_download(model, about)
    repository = _repositories(model)[0]
    size = hub.missing_bytes(repository, needed_files, ask=ask_hub, hint=similar(model))
    if size is None and about is not None:
        size = about.bytes
    return ModelState(None, repository, size, license)


def _require_download(model: str, about: KnownModel | None) -> None:
    if about is not None and not about.downloadable:
        raise MissingError(
            f"model {model!r} is not on this machine, and cse has no address to download it from. It is {about.note}",
            f"put its directory, with the name {about.id.rpartition('/')[2]}, into the directory that CSE_MODELS names",
            code="models.no_download",
        )


def _directory(model: str) -> Path | None:
    """Return the model as a directory, in `$CSE_MODELS` or in this package, or None."""
    names = [model, *([] if "@" in model else _spellings(known(model)))]
    candidates = [expand_user(Path(model)), *(folder / name for folder in _local_folders() for name in names)]
    for candidate in candidates:
        if any(is_file(candidate / name) for name in MARKS):
            return candidate.absolute()
    directory = "/" in model and is_dir(candidates[0])
    if directory or model.startswith((".", "/", "~")) or model.count("/") > 1:
        state = "has no config.json" if directory else "does not exist"
        raise MissingError(
            f"model directory {model!r} {state}",
            "use a directory written by save_pretrained or `cse run`",
            code="models.no_model_directory",
        )
    return None


def _repositories(model: str) -> list[Repository]:
    """Return the repositories that can contain a model, the most likely first."""
    name, _, asked = model.partition("@")
    about = known(name)
    revision = asked or (about.revision if about is not None and about.revision else "main")
    if about is not None:
        # Other programs store a model in the cache under the bare name that was requested.
        return [Repository("model", id, revision, about.id) for id in (about.id, *about.names)]
    if "/" in name:
        return [Repository("model", name, revision)]
    same = [id for id in hub.repositories() if id.rpartition("/")[2] == name]
    return [Repository("model", id, revision) for id in dict.fromkeys((name, *same))]


def _spellings(*models: KnownModel | None) -> list[str]:
    """Return all names of these models. Default: all known models."""
    chosen = models or known_models().values()
    return [name for about in chosen if about is not None for name in (about.id, *about.names)]


def local_names() -> list[str]:
    """Return the names that `locate` finds without a network."""
    found = {config.parent.name for folder in _local_folders() for config in folder.glob("*/config.json")}
    return sorted(found | set(hub.repositories()))


def own_folder() -> Path:
    """Return the absolute path of `$CSE_MODELS`. Default: `models` in the state directory, which may not exist."""
    configured = os.environ.get("CSE_MODELS")
    return expand_user(Path(configured)).absolute() if configured else state_directory() / "models"


def _local_folders() -> list[Path]:
    return [own_folder(), PRETRAINED]


# --- loading ----------------------------------------------------------------------------------------------------------


def quiet_transformers() -> None:
    """Turn off the progress bars and loading reports of transformers."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def load_config(model: str) -> Any:
    """Return the transformers configuration of a model."""
    from transformers import AutoConfig

    path, about = locate(model), known(model)
    action = "use a model whose config.json names an architecture of transformers"
    message = f"cannot read the configuration of model {model!r} in {path}"
    with errors_as_one(message, action, CseError, code="models.invalid_config"):
        if about is not None and about.model_type is not None:
            table = {"model_type": about.model_type} | json.loads((path / "config.json").read_text())
            settings = AutoConfig.for_model(**table)
        else:
            settings = AutoConfig.from_pretrained(path, trust_remote_code=False)
        layers = getattr(settings, "num_hidden_layers", 0)
        if not 0 <= layers <= _MOST_LAYERS:  # transformers creates all of them before it reads weights
            raise ValueError(f"num_hidden_layers is {layers}")
        rows = getattr(settings, "vocab_size", None)
        if not isinstance(rows, int | None):  # transformers 5.0 does not check types
            raise ValueError(f"vocab_size is {rows!r}")
    return settings


def load_tokenizer(model: str) -> Any:
    """Return the transformers tokenizer of a model."""
    from transformers import AutoTokenizer

    quiet_transformers()
    path, about = locate(model), known(model)
    if about is not None and about.tokenizer is not None and not has_vocabulary(path):
        path = locate(about.tokenizer)
    action = "put its tokenizer.json, or vocab.txt and tokenizer_config.json, into that directory"
    if not has_vocabulary(path):
        # transformers would make a tokenizer that contains only special tokens.
        raise MissingError(f"model {model!r} in {path} has no tokenizer file", action, code="models.no_tokenizer")
    message = f"cannot load the tokenizer of model {model!r} in {path}"
    with errors_as_one(message, action, code="models.invalid_tokenizer"):
        # A configuration without `model_type` does not name the class of a tokenizer without settings.
        odd = about is not None and about.model_type is not None and not (path / "tokenizer_config.json").is_file()
        config = {"config": load_config(model)} if odd else {}
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False, **config)
    if tokenizer.truncation_side != "right":
        raise CseError(
            f"the tokenizer of model {model!r} in {path} cuts long sentences on the left, but cse only on the right",
            'set "truncation_side": "right" in a copy of its tokenizer_config.json',
            code="models.unsupported_truncation",
        )
    static = not (locate(model) / "config.json").is_file()  # a table of vectors has no configuration
    rows = None if static else getattr(load_config(model), "vocab_size", None)
    if rows is not None and (entries := len(tokenizer)) > rows:
        raise CseError(
            f"the tokenizer of model {model!r} has {entries} entries, but its embedding layer has {rows} rows",
            "the directory contains files of two models: replace the tokenizer by the one of the weights",
            code="models.wrong_tokenizer",
        )
    return tokenizer


def load_model(
    model: str,
    *,
    random_weights: bool = False,
    embeddings_only: bool = False,
    dtype: WeightType = "fp32",
    **config: Any,
) -> Any:
    """Return the transformers model in eval mode, without pooler, and with scaled-dot-product attention if possible.

    Of T5 it is the encoder.

    `config` overrides values of the configuration, for example `hidden_dropout_prob`.
    """
    quiet_transformers()
    settings = load_config(model)
    if getattr(settings, EMBEDDINGS_ONLY, False) and not (random_weights or embeddings_only):
        raise MissingError(
            f"model {model!r} in {locate(model)} contains only an embedding layer and cannot be an encoder",
            "use it in `fuse_embeddings`, or set $CSE_MODELS to a directory with the complete model",
            code="models.embeddings_only",
        )
    settings.output_hidden_states = False  # exports that average layers set it
    if embeddings_only:
        config["num_hidden_layers"] = 0
    for key, value in config.items():
        setattr(settings, key, value)
    path = locate(model)
    cls = _encoder_class(settings)
    options: dict[str, Any] = {**_weights(dtype), **_attention(cls), **loading_options(settings)}
    action = "use a directory with config.json and model.safetensors of the same model"
    message = f"cannot load the weights of model {model!r} in {path}"
    with errors_as_one(message, action, code="models.invalid_weights"):
        if random_weights:
            # Some classes have no parameter for the type of new weights.
            return cls._from_config(settings, **options).eval()
        check_files(path)
        loaded, report = cls.from_pretrained(
            path, config=settings, output_loading_info=True, trust_remote_code=False, **options
        )
    missing = [key for key in report["missing_keys"] if "pooler" not in key.split(".")]
    _refuse_missing(model, missing, ", or set random_weights = true to start from random weights")
    if not embeddings_only:
        _check_loaded(model, loaded, report["unexpected_keys"])
    return loaded


def _check_loaded(model: str, loaded: Any, unexpected: Iterable[str]) -> None:
    """Check that a model uses all weights of its checkpoint except those of heads, and that they are finite."""
    name, path = type(loaded).__name__, locate(model)
    prefix, parts = f"{loaded.base_model_prefix}.", {part for part, _ in loaded.base_model.named_children()}
    unused = [key for key in unexpected if key.removeprefix(prefix).partition(".")[0] in parts]
    if unused := [key for key in unused if not {"pooler", "position_ids"} & {*key.split(".")}]:
        raise CseError(
            f"the checkpoint of model {model!r} in {path} has {len(unused)} weights that {name} of transformers does "
            f"not use, for example {min(unused)!r}, so its embeddings would be those of another model",
            "use a checkpoint whose config.json describes all of its weights",
            code="models.unused_weights",
        )
    if (weight := not_finite(loaded)) is not None:
        raise CseError(
            f"the weights {weight!r} of model {model!r} in {path} contain NaN or infinity",
            "download the model again, or use another checkpoint",
            code="models.not_finite",
        )
    if own := getattr(loaded.config, "auto_map", None):
        warnings.warn(
            f"model {model!r}: config.json names code of its authors ({', '.join(map(str, own.values()))}), which cse "
            f"does not run. {name} of transformers computes the embeddings, which can differ from the authors'",
            stacklevel=2,
        )


def not_finite(module: Any) -> str | None:
    """Return the name of a weight that contains NaN or infinity, or None."""
    return next((name for name, weight in module.named_parameters() if not weight.isfinite().all()), None)


def load_skeleton(model: str) -> Any:
    """Return the transformers model without memory for its weights."""
    import torch

    settings = load_config(model)
    cls = _encoder_class(settings)
    with torch.device("meta"):
        return cls._from_config(settings, dtype=torch.float32, **_attention(cls))


def _encoder_class(settings: Any) -> Any:
    """Return the class of transformers for a configuration, of encoder-decoders the encoder."""
    from transformers import MODEL_FOR_TEXT_ENCODING_MAPPING, MODEL_MAPPING

    found = MODEL_FOR_TEXT_ENCODING_MAPPING.get(type(settings), None)
    if found is not None and found.__name__.endswith("EncoderModel"):  # T5 and its relatives
        return found
    found = MODEL_MAPPING.get(type(settings), None)
    if found is None or isinstance(found, tuple) or settings.is_encoder_decoder:
        raise CseError(
            f"transformers has no separate encoder for the architecture '{settings.model_type}'",
            "use another model, such as BERT, ModernBERT, Llama or T5",
            code="models.no_encoder",
        )
    return found


def _weights(dtype: WeightType) -> dict[str, Any]:
    """Return the options of transformers for a type of weights."""
    import torch

    if dtype in ("fp32", "bf16"):
        return {"dtype": torch.bfloat16 if dtype == "bf16" else torch.float32}
    from registry.accelerators import accelerator

    if accelerator() != "cuda":  # on a CPU, bitsandbytes 0.50 has no gradient for products of 4-bit weights
        raise CseError(
            f'dtype = "{dtype}" requires a CUDA device', 'use dtype = "bf16"', code="models.unsupported_weights"
        )
    if find_spec("bitsandbytes") is None:
        raise MissingError(
            f'dtype = "{dtype}" requires the package bitsandbytes, which is not installed',
            "run pip install bitsandbytes accelerate",
            code="models.missing_package",
        )
    from transformers import BitsAndBytesConfig

    few: dict[str, Any] = {"load_in_4bit": True, "bnb_4bit_compute_dtype": torch.bfloat16, "bnb_4bit_quant_type": "nf4"}
    quantized = BitsAndBytesConfig(**(few if dtype == "4bit" else {"load_in_8bit": True}))
    return {"dtype": torch.bfloat16, "quantization_config": quantized}


def _attention(cls: Any) -> dict[str, str]:
    """Return the option for scaled-dot-product attention if the architecture has it."""
    return {"attn_implementation": "sdpa" if cls._supports_sdpa else "eager"}


def load_language_model(model: str, *, causal: bool = False) -> tuple[Any, bool]:
    """Return the language model in float32 and eval mode, and whether its checkpoint has the prediction head.

    A causal model predicts the next token, as decoders do, others predict masked tokens.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    quiet_transformers()
    path, settings = locate(model), load_config(model)
    if getattr(settings, EMBEDDINGS_ONLY, False):
        raise MissingError(
            f"model {model!r} in {path} contains only an embedding layer",
            "use a complete model",
            code="models.embeddings_only",
        )
    kind = "causal" if causal else "masked"
    action = f"use a {'decoder, such as Llama' if causal else 'BERT, DistilBERT or RoBERTa checkpoint'}"
    message = f"cannot load model {model!r} in {path} as a {kind} language model"
    with errors_as_one(message, action, CseError, code="models.no_language_model"):
        check_files(path)
        loaded, report = (AutoModelForCausalLM if causal else AutoModelForMaskedLM).from_pretrained(
            path, config=settings, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
    inside = f"{loaded.base_model_prefix}."
    _refuse_missing(model, [key for key in report["missing_keys"] if key.startswith(inside)])
    _check_loaded(model, loaded, report["unexpected_keys"])
    return loaded.eval(), not report["missing_keys"]


def _refuse_missing(model: str, missing: Sequence[str], alternative: str = "") -> None:
    if missing:
        raise MissingError(
            f"the checkpoint of model {model!r} in {locate(model)} lacks {len(missing)} weights, for example "
            f"{min(missing)!r}, which would stay random",
            f"use the complete model{alternative}",
            code="models.missing_weights",
        )


def loading_options(settings: Any) -> dict[str, Any]:
    """Return the options with which transformers creates no pooler, and applies a limit of attention scores.

    A pooler has random weights and no gradient. It breaks distributed training and makes exports load with a warning.
    Up to transformers 5.20, scaled-dot-product attention ignores a limit.
    """
    from transformers import MODEL_MAPPING

    cls = MODEL_MAPPING.get(type(settings), None)
    has_pooler = cls is not None and "add_pooling_layer" in inspect.signature(cls.__init__).parameters
    without_pooler = {"add_pooling_layer": False} if has_pooler else {}
    limited = getattr(settings, "attn_logit_softcapping", None) is not None
    return {**without_pooler, **({"attn_implementation": "eager"} if limited else {})}


# --- files of a model directory -------------------------------------------------------------------------------------

MARKS = ("config.json", "modules.json", "cse.json")
"""Files that mark a model directory: at least one of them exists."""

THROUGH_CSE = "registry.through_cse.CseEncoder"
"""Module of sentence-transformers that computes embeddings through cse, in a directory that only cse opens."""

_VOCABULARIES = ("tokenizer.json", "vocab.*", "words.json", "*.model", "tokenizer.model*", "*.spm")
_ADAPTER = "adapter_config.json"
_NOTES = ("_name_or_path", "transformers_version", "torch_dtype", "dtype")
_DOCUMENTATION = ("*.md", "*.png", "*.jpg", "*.svg", "*.gif", "*.pdf", "LICENSE*", "NOTICE*", ".*")
_OTHER_WEIGHTS = (
    "*.safetensors",
    "*.bin",
    "*.pt",
    "*.pth",
    "*.h5",
    "*.msgpack",
    "*.onnx",
    "*.onnx_data",
    "*.ot",
    "*.gguf",
)
"""Patterns of weight files, of which only those in `needed_files` are read."""
_SETTINGS = ("*.json", "*.txt", "*.model", "*.spm", "prefix.safetensors")  # of the encoder `prefixed`
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
    encoders = ["", *(name.removesuffix("cse.json") for name in sorted(names) if name.endswith("/cse.json"))]
    modules = {name.rpartition("/")[0] for name in names}
    others = (folder for folder in sorted(modules) if any(_MODULE.fullmatch(folder.removeprefix(e)) for e in encoders))
    folders = [*encoders, *(f"{folder}/" for folder in others)]
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
    """Return whether a directory contains a configuration, all weights and a vocabulary, or several such encoders."""
    if not any((folder / name).is_file() for name in MARKS):
        return False
    if encoders := [file.parent for file in folder.glob("*/cse.json")]:
        return all(map(complete, encoders))
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


def is_native(folder: Path) -> bool:
    """Return whether sentence-transformers opens a directory without cse."""
    file = folder / "modules.json"
    return file.is_file() and THROUGH_CSE not in file.read_text(encoding="utf-8")


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


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file. A process reads an unchanged file once.

    The name of a file in the Hub's cache is its SHA-256, but a program can have overwritten the file.
    """
    return _content_sha256(file.absolute(), *state_of(file))


@cache
def _content_sha256(file: Path, *_state: int) -> str:
    return digest(file)


def weights_sha256(folder: Path) -> str:
    """Return the SHA-256 of a model's weight file. For several files, return that of their digests in name order."""
    names = needed_files(_files_in(folder))
    digests = [sha256_of(folder / name) for name in sorted(names) if name.endswith((".safetensors", ".bin"))]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def settings_sha256(folder: Path) -> str:
    """Return the SHA-256 of every file of a model directory except weights and documentation.

    Keys of `config.json` in `_NOTES` are ignored.
    """
    total = hashlib.sha256()
    for name in sorted(_files_in(folder)):
        if not _matching([Path(name).name], (*_DOCUMENTATION, *_OTHER_WEIGHTS)):
            noted = Path(name).name in MARKS
            total.update(f"{name}\0{_without_notes(folder / name) if noted else sha256_of(folder / name)}\0".encode())
    return total.hexdigest()


def _files_in(folder: Path) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]


def _without_notes(config: Path) -> str:
    content = config.read_bytes()
    try:
        table = json.loads(content)
        kept = {key: value for key, value in table.items() if key not in _NOTES}
        return json.dumps(kept, sort_keys=True)
    except (ValueError, AttributeError, RecursionError):
        return content.hex()
