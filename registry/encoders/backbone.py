"""A transformers encoder in two halves: embedding layer and blocks.

Together the functions compute the same as the model's own `forward`. `verify` checks this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from registry.encoders.blocks import first_states, run_blocks
from registry.encoders.half import Dropout
from registry.encoders.lookup import look_up
from registry.errors import CseError, suggestion
from registry.tokens import Tokens


def take_dropout(model: Any) -> nn.Dropout:
    """Remove and return the dropout at the end of the embedding layer. Augmenters act before it."""
    embeddings = getattr(model, "embeddings", None)
    parts = [getattr(embeddings, name, None) for name in ("dropout", "word_embeddings", "position_embeddings")]
    if any(part is None for part in parts) or not hasattr(model, "encoder"):
        raise unsupported(model, "it has no `encoder`, or no `embeddings` with word, position and dropout parts")
    for part in list(model.modules()):
        for name, child in part.named_children():
            if type(child) is nn.Dropout:
                setattr(part, name, Dropout(child.p))
    dropout = Dropout(embeddings.dropout.p)  # type: ignore[union-attr]
    embeddings.dropout = nn.Identity()  # type: ignore[union-attr]
    return dropout


def can_be_split(config: Any) -> bool:
    """Return whether models of this transformers configuration have the parts that this module calls."""
    from transformers import AutoModel

    try:
        with torch.device("meta"):
            take_dropout(AutoModel.from_config(config, trust_remote_code=False))
    except Exception:  # for wrong settings transformers raises many types; loading the model reports the error
        return False
    return True


def unsupported(model: Any, why: str) -> CseError:
    """Return the error for an architecture that cannot be split into two halves."""
    return CseError(
        f"the encoder \"transformer\" does not support the architecture '{type(model).__name__}': {why}",
        'use a BERT, RoBERTa, XLM-R, ELECTRA or ALBERT checkpoint, or the encoder "auto_model" for other architectures',
        code="encoders.unsupported_architecture",
    )


def position_offset(model: Any) -> int:
    """Return the offset that the model adds to positions: padding_idx + 1 in the RoBERTa family, else 0."""
    embeddings = model.embeddings
    return int(embeddings.padding_idx) + 1 if hasattr(embeddings, "create_position_ids_from_input_ids") else 0


def longest(model: Any) -> int:
    """Return the maximum number of tokens, special tokens included."""
    return int(model.embeddings.position_embeddings.num_embeddings) - position_offset(model)


def embed_words(model: Any, tokens: Tokens) -> Tensor:
    """Return the (B, L, W) word embeddings."""
    return look_up(model.embeddings.word_embeddings, tokens.ids)


def embed_layer(model: Any, tokens: Tokens, words: Tensor | None = None, *, padding_index: bool = False) -> Tensor:
    """Return the (B, L, W) sum of word, position and segment embeddings after layer normalization.

    Tokens after the model's last position share that position.

    Args:
        model: Transformers model.
        tokens: Token IDs, mask, positions and segments.
        words: Embeddings (B, L, W) that replace the word embeddings.
        padding_index: Whether padding has the position `padding_idx` in the RoBERTa family, as in transformers. It only
            has an effect if the blocks attend to padding.
    """
    offset = position_offset(model)
    positions = tokens.positions.clamp(max=longest(model) - 1) + offset
    if padding_index and offset:
        positions = positions.masked_fill(tokens.mask == 0, offset - 1)
    if words is None:
        words = embed_words(model, tokens)
    vectors: Tensor = model.embeddings(inputs_embeds=words, token_type_ids=tokens.types, position_ids=positions)
    return vectors


def freeze(model: nn.Module, prefixes: list[str]) -> None:
    """Disable the gradient of every weight in these submodules.

    Raises:
        CseError: If a submodule does not exist.
    """
    known = {name for name, _ in model.named_modules() if name}
    for prefix in prefixes:
        if prefix not in known:
            hint = suggestion(prefix, known)
            blocks = [name for name in known if name.rpartition(".")[2].isdigit()]
            shape = f", {min(blocks)!r}" if blocks else ""
            raise CseError(
                f"freeze: the model has no part '{prefix}'.{hint}",
                f"use names of submodules, such as 'embeddings', 'encoder'{shape}",
                code="encoders.unknown_part",
            )
        model.get_submodule(prefix).requires_grad_(False)


@torch.no_grad()
def verify(model: Any) -> None:
    """Check on two short sentences that the two halves and the model's own forward give the same states.

    Raises:
        CseError: If they differ, because the architecture has steps between or after the halves.
    """
    ids = torch.arange(2, 12).remainder(model.config.vocab_size).view(2, 5)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    tokens = Tokens(ids, mask, torch.zeros_like(ids), torch.arange(5).expand(2, 5))
    real = mask.bool()
    training = model.training
    model.eval()
    try:
        expected = model(input_ids=ids, attention_mask=mask).last_hidden_state
        vectors = embed_layer(model, tokens)
        split = run_blocks(model, vectors, mask, all_states=False)[0]
        first = first_states(model, vectors, mask)
    except (TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise unsupported(model, f"its parts cannot be called separately ({error})") from error
    finally:
        model.train(training)
    same = expected.shape == split.shape and torch.allclose(expected[real], split[real], atol=1e-4)
    if not same or not torch.allclose(expected[:, 0], first, atol=1e-4):
        raise unsupported(model, "its output differs from that of its embedding layer and blocks")


@contextmanager
def modes_kept(module: nn.Module) -> Iterator[None]:
    """Restore the training mode of every submodule after the block, because shared submodules have another owner."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
