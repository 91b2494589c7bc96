"""Model names → directories on this machine → models and tokenizers. Importing this is cheap."""

from __future__ import annotations

import inspect
import json
import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from registry import hub
from registry.errors import CseError, MissingError, errors_as_one, suggestion
from registry.model_files import MARKS, check_files, complete, has_vocabulary, needed_files
from registry.paths import expand_user, is_dir, is_file, state_directory
from registry.repository import Repository

PRETRAINED = Path(__file__).parent / "pretrained"
"""Models shipped with the package."""

EMBEDDINGS_ONLY = "cse_embeddings_only"
"""Key of a `config.json` whose checkpoint holds the embedding layer and nothing else."""


_MOST_LAYERS = 1000


@dataclass(frozen=True)
class KnownModel:
    """What `models.toml` says of a model.

    Attributes:
        id: `owner/name` on the hub.
        revision: Commit, where one is known.
        names: Other spellings.
        licence: As its owners state it.
        bytes: What is fetched of it, where known.
        tokenizer: The model whose vocabulary it uses, where its repository has none.
        model_type: Its architecture, where its configuration does not say.
        hidden_size: D of its configuration, where a paper's table prints it.
        note: What else a user should know.
        published: Whether the hub has it; other models are looked for below `$CSE_MODELS` alone.
    """

    id: str
    revision: str | None = None
    names: tuple[str, ...] = ()
    licence: str | None = None
    bytes: int | None = None
    tokenizer: str | None = None
    model_type: str | None = None
    hidden_size: int | None = None
    note: str | None = None
    published: bool = True


@dataclass(frozen=True)
class ModelState:
    """Whether a model is on this machine.

    Attributes:
        name: As asked for.
        repository: Where the hub has it; None for a directory.
        path: Its directory, if it is complete here.
        bytes: What is to be fetched, 0 if nothing, None if unknown.
        licence: As far as it is known.
        missing: Files to be fetched, as far as they are known.
    """

    name: str
    repository: Repository | None
    path: Path | None
    bytes: int | None
    licence: str | None
    missing: tuple[str, ...] = ()


# --- where models are -------------------------------------------------------------------------------------------------


@cache
def known_models() -> dict[str, KnownModel]:
    """Return what `models.toml` lists, by `owner/name`."""
    owners = tomllib.loads((Path(__file__).parent / "models.toml").read_text(encoding="utf-8"))
    entries = {f"{owner}/{name}": about for owner, models in owners.items() for name, about in models.items()}
    return {id: KnownModel(id, **about | {"names": tuple(about.get("names", ()))}) for id, about in entries.items()}


def known(model: str) -> KnownModel | None:
    """Return what `models.toml` says of a model under any of its spellings."""
    name = model.partition("@")[0]
    return next((about for id, about in known_models().items() if name == id or name in about.names), None)


def locate(model: str, *, force: bool = False) -> Path:
    """Return the directory of a model.

    Looked up in this order: a directory, a name under `$CSE_MODELS`, a model shipped with this package, the local cache
    of the hub, the hub. The cache and the hub are asked for one commit: that of the run that is taken up, of the name
    (`owner/name@revision`), of `models.toml`, of the cache, else the hub's newest.

    Args:
        model: Directory or name.
        force: Check a hub model's files, and fetch anew what is wrong.

    Raises:
        MissingError: It is nowhere to be found from this machine.
        UnknownNameError: The hub has no such model.
    """
    if (folder := _directory(model)) is not None:
        return folder
    if not force and (folder := find(model)) is not None:
        return folder
    if (about := known(model)) is not None and not about.published:
        raise MissingError(
            f"model {model!r} is not on this machine, and it is not published",
            f"put its folder, {about.id.rpartition('/')[2]}, below the folder that CSE_MODELS names",
        )
    others = [name for name in (*local_names(), *_spellings()) if name != model]
    hint = suggestion(model, others) if about is None else ""
    repair = f"cse data download --force {model}"
    return hub.fetch(_repositories(model)[0], needed_files, force=force, complete=complete, hint=hint, repair=repair)


def find(model: str) -> Path | None:
    """Return the directory of a model on this machine, without touching the network; None if it is not here.

    Raises:
        MissingError: A path that holds no model.
    """
    if (folder := _directory(model)) is not None:
        return folder
    found = (hub.cached(repository, needed_files, complete=complete) for repository in _repositories(model))
    return next((folder for folder in found if folder is not None), None)


def model_state(model: str, *, ask_hub: bool = False) -> ModelState:
    """Return whether a model is here, else what is to be fetched from where.

    Args:
        model: Directory or name.
        ask_hub: Ask the hub for files and sizes that are not known otherwise.

    Raises:
        CseError: As `locate`, where `ask_hub` is set.
    """
    about = known(model)
    licence = None if about is None else about.licence
    try:
        path = find(model)
    except MissingError:
        return ModelState(model, None, None, None, licence)
    published = about is None or about.published
    repository = None if _directory(model) is not None or not published else _repositories(model)[0]
    if path is not None or repository is None:
        return ModelState(model, repository, path, 0 if path else None, licence)
    if ask_hub or hub.listed(repository):
        lacking = hub.missing_files(repository, needed_files)
        return ModelState(
            model, repository, None, sum(file.size for file in lacking), licence, tuple(file.name for file in lacking)
        )
    return ModelState(model, repository, None, None if about is None else about.bytes, licence)


def _directory(model: str) -> Path | None:
    """Return a directory that the name itself means, or that `$CSE_MODELS` or this package have.

    Raises:
        MissingError: A path that holds no model.
    """
    names = [model, *([] if "@" in model else _spellings(known(model)))]
    candidates = [expand_user(Path(model)), *(folder / name for folder in _local_folders() for name in names)]
    for candidate in candidates:
        if any(is_file(candidate / name) for name in MARKS):
            return candidate.absolute()
    directory = "/" in model and is_dir(candidates[0])
    if directory or model.startswith((".", "/", "~")) or model.count("/") > 1:
        state = "holds no config.json" if directory else "does not exist"
        raise MissingError(
            f"the model directory {model!r} {state}", "give a directory written by save_pretrained or `cse run`"
        )
    return None


def _repositories(model: str) -> list[Repository]:
    """Return where the hub, or its cache, may have a model, the right place first."""
    name, _, asked = model.partition("@")
    about = known(name)
    revision = asked or (about.revision if about is not None and about.revision else "main")
    if about is not None:
        # Older programs kept what they fetched under the bare name that was asked for.
        return [Repository("model", id, revision, about.id) for id in (about.id, *about.names)]
    if "/" in name:
        return [Repository("model", name, revision)]
    same = [id for id in hub.repositories() if id.rpartition("/")[2] == name]
    return [Repository("model", id, revision) for id in dict.fromkeys((name, *same))]


def _spellings(*models: KnownModel | None) -> list[str]:
    """Return all names of these models, of all known ones if none is given."""
    chosen = models or known_models().values()
    return [name for about in chosen if about is not None for name in (about.id, *about.names)]


def local_names() -> list[str]:
    """Return the names `locate` finds without a network."""
    children = [child for folder in _local_folders() for child in _children(folder)]
    found = {child.name for child in children if (child / "config.json").is_file()}
    return sorted(found | set(hub.repositories()))


def own_folder() -> Path:
    """Return `$CSE_MODELS`, absolute; without it the folder `models` of the state directory, which need not exist."""
    configured = os.environ.get("CSE_MODELS")
    return expand_user(Path(configured)).absolute() if configured else state_directory() / "models"


def _local_folders() -> list[Path]:
    return [own_folder(), PRETRAINED]


def _children(folder: Path) -> list[Path]:
    return [child for child in folder.iterdir() if child.is_dir()] if folder.is_dir() else []


# --- loading ----------------------------------------------------------------------------------------------------------


def quiet_transformers() -> None:
    """Keep transformers' progress bars and loading reports off the terminal."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def load_config(model: str) -> Any:
    """Return the transformers configuration of a model."""
    from transformers import AutoConfig

    path, about = locate(model), known(model)
    action = "give a model whose config.json names an architecture transformers knows"
    with errors_as_one(f"the configuration of model {model!r} in {path} cannot be read", action, CseError):
        if about is not None and about.model_type is not None:
            table = {"model_type": about.model_type} | json.loads((path / "config.json").read_text())
            settings = AutoConfig.for_model(**table)
        else:
            settings = AutoConfig.from_pretrained(path, trust_remote_code=False)
        layers = getattr(settings, "num_hidden_layers", 0)
        if not 0 <= layers <= _MOST_LAYERS:  # they are made one by one before their weights are looked for
            raise ValueError(f"num_hidden_layers is {layers}")
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
        # transformers would make a tokenizer that knows special tokens only.
        raise MissingError(f"model {model!r} in {path} has no tokenizer file", action)
    with errors_as_one(f"the tokenizer of model {model!r} in {path} cannot be loaded", action):
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False, **_config_for(model, path))
    _check_size(model, len(tokenizer))
    return tokenizer


def _config_for(model: str, path: Path) -> dict[str, Any]:
    """The configuration, where the files beside the tokenizer do not name its class."""
    about = known(model)
    odd = about is not None and about.model_type is not None and not (path / "tokenizer_config.json").is_file()
    return {"config": load_config(model)} if odd else {}


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
    from transformers import AutoModel

    quiet_transformers()
    path = locate(model)
    options: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "sdpa", **without_pooler(settings)}
    action = "give a directory with config.json and model.safetensors of the same model"
    with errors_as_one(f"the weights of model {model!r} in {path} cannot be loaded", action):
        if random_weights:
            return AutoModel.from_config(settings, trust_remote_code=False, **options).eval()
        check_files(path)
        loaded, report = AutoModel.from_pretrained(
            path, config=settings, output_loading_info=True, trust_remote_code=False, **options
        )
    missing = [key for key in report["missing_keys"] if "pooler" not in key.split(".")]
    _refuse_missing(model, missing, ", or set random_weights = true to train from nothing on purpose")
    return loaded


def load_language_model(model: str, *, causal: bool = False) -> tuple[Any, bool]:
    """Return the language model in float32 and eval mode, and whether its checkpoint has the prediction head.

    Args:
        model: Name or directory.
        causal: Whether it predicts the next token, as decoders do, and not masked ones.

    Raises:
        MissingError: Other weights than the head's are missing.
        CseError: The architecture has no such language model.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    quiet_transformers()
    path, settings = locate(model), load_config(model)
    if getattr(settings, EMBEDDINGS_ONLY, False):
        raise MissingError(f"model {model!r} in {path} holds an embedding layer only", "name a complete model")
    kind = "causal" if causal else "masked"
    action = f"name a {'decoder, such as Llama' if causal else 'BERT, DistilBERT or RoBERTa checkpoint'}"
    with errors_as_one(f"model {model!r} in {path} cannot be loaded as a {kind} language model", action, CseError):
        check_files(path)
        loaded, report = (AutoModelForCausalLM if causal else AutoModelForMaskedLM).from_pretrained(
            path, config=settings, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
    inside = f"{loaded.base_model_prefix}."
    _refuse_missing(model, [key for key in report["missing_keys"] if key.startswith(inside)])
    return loaded.eval(), not report["missing_keys"]


def _refuse_missing(model: str, missing: Sequence[str], alternative: str = "") -> None:
    """Refuse a checkpoint that lacks weights.

    Raises:
        MissingError: It does.
    """
    if missing:
        raise MissingError(
            f"the checkpoint of model {model!r} in {locate(model)} lacks {len(missing)} weights, among them "
            f"{min(missing)!r}: they would stay random",
            f"give the complete model{alternative}",
        )


def without_pooler(settings: Any) -> dict[str, bool]:
    """Return what keeps transformers from making a pooler: none is used here, and one would be random weights.

    Its parameters have no gradient, which breaks distributed training, and loading an export would warn of them.
    """
    from transformers import MODEL_MAPPING

    cls = MODEL_MAPPING.get(type(settings), None)
    has_pooler = cls is not None and "add_pooling_layer" in inspect.signature(cls.__init__).parameters
    return {"add_pooling_layer": False} if has_pooler else {}
