"""Models that only sentence-transformers opens, such as static embeddings and routers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor

from registry.errors import CseError, MissingError, install_command
from registry.prompts import Prompts, Side
from registry.resources.models import quiet_transformers
from registry.types import Encoder

UNLIMITED = 1_000_000
"""Maximum number of tokens of a model without a limit."""

OLDEST = 6
"""Oldest release of sentence-transformers. Earlier ones execute code in local directories."""


class LibraryEncoder(Encoder):
    """Encoder that passes sentences to a model of sentence-transformers.

    Args:
        model: `SentenceTransformer`. Its own prompts are not used, only those of the attribute `prompts`.
        folder: Directory of the model, for messages.
    """

    def __init__(self, model: Any, folder: Path) -> None:
        super().__init__()
        self.model, self.folder = model, folder
        self.dim = self.width = int(model.get_embedding_dimension())
        limit = model.max_seq_length
        self.max_length = None if limit is None or limit > UNLIMITED else int(limit)
        self.routed = any(type(module).__name__ == "Router" for module in model)

    @property
    def modules_named(self) -> str:
        """Names of the modules, for example "StaticEmbedding"."""
        return ", ".join(type(module).__name__ for module in self.model)

    def encode_texts(self, texts: Sequence[str], max_length: int, prompt: str, side: Side | None) -> Tensor:
        """Return (n, D) embeddings. A router receives the side."""
        if self.max_length is not None:
            self.model.max_seq_length = max_length
        task = {"task": side} if side is not None and self.routed else {}
        try:
            found: Tensor = self.model.encode(
                list(texts), prompt=prompt, convert_to_tensor=True, show_progress_bar=False, **task
            )
        except ValueError as error:
            if not self.routed:
                raise
            raise CseError(
                f"the model in {self.folder} has no route for these sentences: {error}",
                "use a task with queries and documents, or set `default_route` in router_config.json",
                code="encoders.no_route",
            ) from error
        return found


def open_with_library(folder: Path) -> tuple[LibraryEncoder, int]:
    """Return the model in a directory, opened by sentence-transformers, and its maximum number of tokens."""
    if find_spec("sentence_transformers") is None or int(version("sentence-transformers").partition(".")[0]) < OLDEST:
        raise MissingError(
            f"the model in {folder} requires sentence-transformers {OLDEST} or newer, which is not installed",
            f"run `{install_command('sentence-transformers')}`",
            code="encoders.missing_package",
        )
    from sentence_transformers import SentenceTransformer

    quiet_transformers()
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    model = SentenceTransformer(str(folder), device="cpu", trust_remote_code=False, local_files_only=True)
    encoder = LibraryEncoder(model, folder)
    encoder.prompts = Prompts.read(folder)
    return encoder.eval(), encoder.max_length or UNLIMITED
