"""Any transformers model, run from word embeddings to states, with a choice of attention.

The functions call the model's own `forward`, in contrast to `registry.encoders.backbone`, which splits a model.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from registry.encoders.backbone import position_offset
from registry.encoders.pooling import last_places
from registry.errors import CseError, MissingError
from registry.tokens import Tokens

Attention = Literal["causal", "bidirectional"]

DROPOUT_KEYS = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob")
"""Names of the dropout of attention weights in configurations."""


def embed_words(model: Any, ids: Tensor) -> Tensor:
    """Return the (B, L, W) word embeddings of (B, L) token IDs."""
    vectors: Tensor = model.get_input_embeddings()(ids)
    return vectors


def contextual_states(model: Any, tokens: Tokens, vectors: Tensor, layer: int | None = None) -> Tensor:
    """Return the (B, L, D) states after a layer.

    Args:
        model: Transformers model.
        tokens: Mask, segments and positions of the tokens. Padding can be on either side.
        vectors: Word embeddings (B, L, W).
        layer: Index of the layer: 0 is the input of the first block, k the output of the k-th block. Default: the last
            layer, with the model's final normalization.
    """
    known = inspect.signature(model.forward).parameters
    given: dict[str, Any] = {
        "inputs_embeds": vectors,
        "attention_mask": tokens.mask,
        "position_ids": _positions(model, tokens),
        "token_type_ids": tokens.types,
        "use_cache": False,
    }
    if getattr(model.config, "type_vocab_size", 0) == 0:
        del given["token_type_ids"]  # GPT-2 would look them up as words
    made = model(**{key: given[key] for key in given if key in known}, output_hidden_states=layer is not None)
    states: Tensor = made.last_hidden_state if layer is None else made.hidden_states[layer]
    return states


def rows_of(tokens: Tokens, rows: slice) -> Tokens:
    """Return some rows of the tensors that `contextual_states` uses."""
    ids, mask, types, positions = (part[rows] for part in (tokens.ids, tokens.mask, tokens.types, tokens.positions))
    return Tokens(ids, mask, types, positions)


def never_empty(tokens: Tokens) -> Tokens:
    """Return the tokens with one padding token as a real token in each empty row."""
    tokens = tokens.padded_to(1)
    mask = tokens.mask.clone()
    mask[:, 0] |= mask.any(dim=1).logical_not()
    return replace(tokens, mask=mask)


def longest(model: Any) -> int | None:
    """Return the maximum number of tokens, or None if the configuration does not limit it."""
    found = getattr(model.config, "max_position_embeddings", None)
    return None if found is None else int(found) - _offset(model)


def _positions(model: Any, tokens: Tokens) -> Tensor:
    """Return the positions (B, L), counted from each row's first real token and limited to the model's last."""
    real = tokens.positions.masked_fill(tokens.mask == 0, torch.iinfo(torch.int64).max)
    counted = (tokens.positions - real.amin(dim=1, keepdim=True)).clamp(min=0)
    limit = longest(model)
    return (counted if limit is None else counted.clamp(max=limit - 1)) + _offset(model)


def _offset(model: Any) -> int:
    return position_offset(model) if hasattr(model, "embeddings") else 0


def blocks(model: Any) -> nn.ModuleList:
    """Return the model's blocks in forward order.

    Raises:
        CseError: If the model has no single list of its blocks.
    """
    count = int(model.config.num_hidden_layers)
    for part in model.modules():
        if isinstance(part, nn.ModuleList) and len(part) == count:
            return part
    raise CseError(
        f"prepend does not support the architecture '{type(model).__name__}', which has no list of its {count} blocks",
        "remove prepend and placeholder",
        code="encoders.unsupported_architecture",
    )


@contextmanager
def last_state_prepended(model: Any, start: int, stop: int, tokens: Tokens, placeholder: int) -> Iterator[None]:
    """Replace the placeholder's state by the last token's state before each block from start to stop − 1.

    Args:
        model: Transformers model.
        start: Index of the first such block, from 0.
        stop: Index after the last such block.
        tokens: Input of the model. The first placeholder of each row is replaced.
        placeholder: ID of the placeholder.

    Raises:
        CseError: If a row has no placeholder.
    """
    found = (tokens.ids == placeholder) & (tokens.mask == 1)
    if not bool(found.any(dim=1).all()):
        raise CseError(
            "prepend: a sentence has no placeholder",
            "add the placeholder to the encoder's template, before {text}",
            code="encoders.no_placeholder",
        )
    rows = torch.arange(tokens.rows, device=tokens.ids.device)
    places, ends = found.int().argmax(dim=1), last_places(tokens.mask)

    def before(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
        states = arguments[0] if arguments else named["hidden_states"]
        moved = states.index_put((rows, places), states[rows, ends])
        return ((moved, *arguments[1:]), named) if arguments else ((), {**named, "hidden_states": moved})

    with ExitStack() as hooks:
        for block in blocks(model)[start:stop]:
            hooks.enter_context(block.register_forward_pre_hook(before, with_kwargs=True))
        yield


def set_attention(model: Any, attention: Attention | None) -> Attention:
    """Set the attention of a model and return the attention that a test pass shows.

    For a batch without padding, transformers makes no mask for bidirectional attention. Then the configuration or the
    decoder's modules decide, depending on the release. This function sets both.

    Args:
        model: Transformers model.
        attention: Attention to set. Default: the attention of the checkpoint.

    Raises:
        CseError: If the model attends in another way.
    """
    if attention is None and getattr(model.config, "is_causal", True) is False:
        attention = "bidirectional"  # a decoder exported by cse
    if attention == "bidirectional":
        model.config.is_causal = False
        for part in model.modules():
            if hasattr(part, "is_causal"):
                part.is_causal = False
    seen = {padded: attention_of(model, padded) for padded in (False, True)}
    if len(set(seen.values())) > 1 or attention not in (None, seen[False]):
        setting = f"attention = '{attention}' does not work" if attention else "the attention depends on padding"
        raise CseError(
            f"{setting}: {type(model).__name__} is {seen[False]} without padding and {seen[True]} with padding",
            "remove attention, or use another checkpoint",
            code="encoders.unsupported_attention",
        )
    return seen[False]


@torch.no_grad()
def states_width(model: Any, layer: int | None) -> int:
    """Return the width D of the states after a layer. In some models the last layer is narrower."""
    tokens = _example(model, padded=False)
    return int(contextual_states(model, tokens, embed_words(model, tokens.ids), layer).shape[-1])


def is_decoder(model: Any) -> bool:
    """Return whether a model is built with causal attention."""
    return any(getattr(part, "is_causal", False) for part in model.modules())


@torch.no_grad()
def attention_of(model: Any, padded: bool) -> Attention:
    """Return the attention of a model, bidirectional if the last of five tokens changes the first state."""
    tokens = _example(model, padded)
    states = contextual_states(model, tokens, embed_words(model, tokens.ids))
    change = (states[0, 0] - states[1, 0]).abs().max()
    return "bidirectional" if bool(change > 1e-6 * states[:, 0].abs().max()) else "causal"


def _example(model: Any, padded: bool) -> Tokens:
    """Return two rows of five tokens that differ in the last token, optionally with two padding tokens."""
    first = torch.arange(2, 7)
    ids = torch.stack([first, torch.where(first == 6, 7, first)]).remainder(model.config.vocab_size)
    mask = torch.ones_like(ids)
    tokens = Tokens(ids, mask, torch.zeros_like(ids), torch.arange(5).expand(2, 5))
    return tokens.padded_to(7) if padded else tokens


@torch.no_grad()
def verify(model: Any) -> None:
    """Check that the model gives the same states for word embeddings and positions as for token IDs.

    Raises:
        CseError: If the states differ, or if the model does not run on word embeddings.
    """
    tokens = _example(model, padded=True)
    try:
        states = contextual_states(model, tokens, embed_words(model, tokens.ids))
        whole = model(input_ids=tokens.ids, attention_mask=tokens.mask).last_hidden_state
    except (TypeError, AttributeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise _unsupported(model, f"it does not run on word embeddings ({error})") from error
    real = tokens.mask.bool()
    if states.shape != whole.shape or not torch.allclose(states[real], whole[real], rtol=1e-3, atol=1e-4):
        raise _unsupported(model, "its output for word embeddings and positions differs from that for token IDs")


def _unsupported(model: Any, why: str) -> CseError:
    return CseError(
        f"the encoder \"auto_model\" does not support the architecture '{type(model).__name__}': {why}",
        "use a decoder or encoder that runs on word embeddings, such as Llama or ModernBERT",
        code="encoders.unsupported_architecture",
    )


def dropout_key(config: Any) -> str:
    """Return the name of the dropout of attention weights in a configuration.

    Raises:
        CseError: If the configuration has no such dropout.
    """
    for key in DROPOUT_KEYS:
        if hasattr(config, key):
            return key
    raise CseError(
        f"attention_dropout does not work with {type(config).__name__}, which has no dropout of attention weights",
        "remove attention_dropout",
        code="encoders.no_attention_dropout",
    )


# --- low-rank adaptation (LoRA, Hu et al. 2021), by `peft` ------------------------------------------------------------


def add_low_rank(model: Any, rank: int, alpha: int, dropout: float) -> None:
    """Add trainable matrices to every linear layer of the blocks: W + α/rank · B·A.

    A starts from random numbers and B from zeros, so that the initial output does not change. All other weights are
    frozen.

    Raises:
        MissingError: If `peft` is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise MissingError(
            "lora_rank requires the package peft, which is not installed",
            'run pip install "cse-registry[llm]"',
            code="encoders.missing_package",
        ) from error
    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules="all-linear")
    inject_adapter_in_model(config, model)


def merged(model: Any) -> Any:
    """Return a copy of a model with merged LoRA matrices: W + α/rank · B·A."""
    from peft.tuners.lora import LoraLayer

    copied = deepcopy(model)
    for name, layer in list(copied.named_modules()):
        if isinstance(layer, LoraLayer):
            layer.merge()
            copied.set_submodule(name, layer.get_base_layer())
    return copied
