"""What the mteb package asks of a model, answered by an `Encode`. Registers nothing and imports no mteb by itself."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from registry.errors import CseError
from registry.types import Encode


class MtebModel:
    """An encoder as `mteb.models.EncoderProtocol` wants it.

    Args:
        encode: Makes the vectors.
        task: Name of the task, for messages.
    """

    def __init__(self, encode: Encode, task: str) -> None:
        self._encode = encode
        self._task = task

    def encode(self, inputs: Iterable[Mapping[str, Any]], **about: Any) -> np.ndarray[Any, Any]:  # noqa: ARG002
        """Return (n, D) vectors of the texts of all batches, asked for at once; nothing stands before a text.

        Raises:
            CseError: The task has something else than texts.
        """
        texts: list[str] = []
        for batch in inputs:
            if "text" not in batch:
                found = ", ".join(batch)
                raise CseError(f"mteb task '{self._task}' asks for vectors of {found}", "take a task of texts")
            texts += batch["text"]
        return self._encode(texts).numpy()

    def similarity(self, first: Any, second: Any) -> Tensor:
        """Return (n, m) cosines of all pairs."""
        return _unit(first) @ _unit(second).T

    def similarity_pairwise(self, first: Any, second: Any) -> Tensor:
        """Return (n,) cosines of row i of one with row i of the other."""
        return (_unit(first) * _unit(second)).sum(dim=-1)

    @property
    def mteb_model_meta(self) -> Any:
        """What mteb calls the model; nothing is looked up or stored under the name."""
        from mteb.models import ModelMeta

        return ModelMeta.create_empty({"name": "cse/encoder", "revision": "none"})


def _unit(vectors: Any) -> Tensor:
    rows = torch.as_tensor(vectors)
    return F.normalize(rows if rows.ndim == 2 else rows.unsqueeze(0), dim=-1)


@contextmanager
def randomness_kept() -> Iterator[None]:
    """Give Python's, NumPy's and torch's random numbers back as they were: mteb seeds them all, even when imported."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
