"""The model hub: what its local cache holds, whether it answers, and one message when it does not."""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path
from typing import Any

from registry.errors import MissingError, UnknownNameError

PATIENCE = 2.5
"""Seconds to wait for the hub's first answer: together with imports below the five a user is asked to wait."""

_SMALL = ["*.json", "*.txt", "*.model"]


def fetch(model: str, hint: str = "") -> Path:
    """Return the directory of a hub model, from the local cache if it is complete there, else downloaded.

    Args:
        model: Repository, `name` or `owner/name`.
        hint: Sentence to add to messages: similar names.

    Raises:
        MissingError: Not cached, and the hub cannot be reached or refuses.
        UnknownNameError: The hub has no such model.
    """
    from huggingface_hub.errors import HFValidationError

    try:
        snapshot = cached(model)
    except HFValidationError as error:
        raise UnknownNameError(f"{model!r} is no model name.{hint}", _ways_out(model)) from error
    if snapshot is not None:
        return snapshot
    if reason := unreachable():
        raise MissingError(f"model {model!r} is not on this machine and {reason}.{hint}", _ways_out(model))
    return _download(model, hint)


def cached(model: str) -> Path | None:
    """Return the snapshot of a hub model in the local cache, if it has both configuration and weights."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(model, "config.json")
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    return folder if any(folder.glob("*.safetensors")) or any(folder.glob("pytorch_model*.bin")) else None


def repositories() -> list[str]:
    """Return the models in the hub's local cache."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return [folder.name.removeprefix("models--").replace("--", "/") for folder in Path(HF_HUB_CACHE).glob("models--*")]


@cache
def unreachable() -> str | None:
    """Return why the hub cannot be used from here, or None; asked once a process, bounded in time."""
    from huggingface_hub import constants, get_session

    if constants.is_offline_mode():
        return "HF_HUB_OFFLINE forbids asking the hub"
    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(get_session().head(constants.ENDPOINT, timeout=PATIENCE))
        except Exception as error:  # whatever the network does, it means the same here
            answers.append(error)

    # A thread, because resolving a host name obeys no time limit.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE)
    if not answers or isinstance(answers[0], Exception):
        return f"the hub at {constants.ENDPOINT} does not answer"
    return None


def _download(model: str, hint: str) -> Path:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        info = HfApi().model_info(model, timeout=PATIENCE)
        names = [file.rfilename for file in info.siblings or []]
        weights = "*.safetensors" if any(name.endswith(".safetensors") for name in names) else "pytorch_model*.bin"
        return Path(snapshot_download(model, revision=info.sha, allow_patterns=[*_SMALL, weights]))
    except GatedRepoError as error:
        raise MissingError(
            f"model {model!r} is gated: its owners want its terms accepted first",
            f"accept them on the model's page, then `hf auth login` and `hf download {model}`",
        ) from error
    except RepositoryNotFoundError as error:
        raise UnknownNameError(f"the hub has no model {model!r}.{hint}", _ways_out(model)) from error
    except OSError as error:
        reason = str(error).partition("\n")[0]
        raise MissingError(f"model {model!r} could not be fetched: {reason}", _ways_out(model)) from error


def _ways_out(model: str) -> str:
    name = model.rpartition("/")[2]
    return (
        f"one of: (1) set model to a directory, or $CSE_MODELS to a folder that holds {name!r}; "
        f"(2) run `hf download {model}` on a connected machine and copy its cache; "
        "(3) set HF_ENDPOINT to a mirror you can reach"
    )
