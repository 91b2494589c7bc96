"""A transformers encoder run in two halves: its embedding layer, then its blocks.

Each function takes the transformers model; together they compute what its own `forward` does, checked by `verify`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from registry.encoders.blocks import first_states, run_blocks
from registry.errors import CseError, suggestion
from registry.tokens import Tokens


def take_dropout(model: Any) -> nn.Dropout:
    """Remove the dropout at the end of the embedding layer and return it, so that augmenters can act before it."""
    embeddings = getattr(model, "embeddings", None)
    parts = [getattr(embeddings, name, None) for name in ("dropout", "word_embeddings", "position_embeddings")]
    if any(part is None for part in parts) or not hasattr(model, "encoder"):
        raise unsupported(model, "it has no `embeddings` with word, position and dropout parts beside an `encoder`")
    dropout = nn.Dropout(embeddings.dropout.p)  # type: ignore[union-attr]
    embeddings.dropout = nn.Identity()  # type: ignore[union-attr]
    return dropout


def can_be_split(config: Any) -> bool:
    """Whether models of a transformers configuration have the parts that are called here one by one."""
    from transformers import AutoModel

    try:
        with torch.device("meta"):
            take_dropout(AutoModel.from_config(config, trust_remote_code=False))
    except Exception:  # whatever transformers raises for settings that fit nothing: loading the model tells it
        return False
    return True


def unsupported(model: Any, why: str) -> CseError:
    """Return the error for an architecture that cannot be split."""
    return CseError(
        f"the architecture {type(model).__name__} cannot be used as an encoder: {why}",
        'use a BERT, RoBERTa, XLM-R, ELECTRA or ALBERT checkpoint, or the encoder "auto_model", which takes others',
    )


def position_offset(model: Any) -> int:
    """Return what the model adds to positions counted from 0: padding_idx + 1 in the RoBERTa family."""
    embeddings = model.embeddings
    return int(embeddings.padding_idx) + 1 if hasattr(embeddings, "create_position_ids_from_input_ids") else 0


def longest(model: Any) -> int:
    """Return the most tokens, specials included, the model has positions for."""
    return int(model.embeddings.position_embeddings.num_embeddings) - position_offset(model)


def embed_words(model: Any, tokens: Tokens) -> Tensor:
    """Return (B, L, W) word vectors alone."""
    vectors: Tensor = model.embeddings.word_embeddings(tokens.ids)
    return vectors


def embed_layer(model: Any, tokens: Tokens, words: Tensor | None = None) -> Tensor:
    """Return (B, L, W): word + position + segment vectors, normalised; `words` stand in for the word vectors.

    Places past the model's last position share that one: too long a text is read badly, but read.
    """
    positions = tokens.positions.clamp(max=longest(model) - 1) + position_offset(model)
    source = {"input_ids": tokens.ids} if words is None else {"inputs_embeds": words}
    vectors: Tensor = model.embeddings(**source, token_type_ids=tokens.types, position_ids=positions)
    return vectors


def freeze(model: nn.Module, prefixes: list[str]) -> None:
    """Stop the gradient of every weight below the sub-modules named.

    Raises:
        CseError: There is no such sub-module.
    """
    known = {name for name, _ in model.named_modules() if name}
    for prefix in prefixes:
        if prefix not in known:
            hint = suggestion(prefix, known)
            blocks = [name for name in known if name.rpartition(".")[2].isdigit()]
            shape = f", {min(blocks)!r}" if blocks else ""
            raise CseError(
                f"freeze: the model has no part called {prefix!r}.{hint}",
                f"name sub-modules such as 'embeddings', 'encoder'{shape}",
            )
        model.get_submodule(prefix).requires_grad_(False)


@torch.no_grad()
def verify(model: Any) -> None:
    """Check on two short sentences that the two halves give what the model's own forward gives.

    Raises:
        CseError: They do not: the architecture does something between or after them.
    """
    ids = torch.arange(2, 12).remainder(model.config.vocab_size).view(2, 5)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    tokens = Tokens(ids, mask, torch.zeros_like(ids), torch.arange(5).expand(2, 5))
    real = mask.bool()
    training = model.training
    model.eval()
    try:
        whole = model(input_ids=ids, attention_mask=mask).last_hidden_state
        vectors = embed_layer(model, tokens)
        ours = run_blocks(model, vectors, mask, all_states=False)[0]
        first = first_states(model, vectors, mask)
    except (TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise unsupported(model, f"its parts cannot be called separately ({error})") from error
    finally:
        model.train(training)
    same = whole.shape == ours.shape and torch.allclose(whole[real], ours[real], atol=1e-4)
    if not same or not torch.allclose(whole[:, 0], first, atol=1e-4):
        raise unsupported(model, "its embedding layer and blocks alone do not give its output")


@contextmanager
def modes_kept(module: nn.Module) -> Iterator[None]:
    """Give every sub-module its training mode back: those that are shared have another owner."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
