"""Architectures of transformers: their parts, what an encoder can change of them, and their own `forward`.

An architecture is *split* if its embedding layer and its blocks can be called separately, as in BERT. The others
(decoders, ModernBERT, T5's encoder) run through their own `forward`, which also gets their token vectors. In decoders,
their embedding layer contains only the word embeddings.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from registry.encoders.packing import Pack, Prepended, Rows
from registry.errors import CseError
from registry.poolings import last_places
from registry.tokens import Tokens


@dataclass(frozen=True)
class Parts:
    """Paths from a block to its parts.

    Args:
        attention: Attention, whose second output is the attention weights in transformers' "eager" implementation.
        output: Module whose first input contains the concatenated attention heads.
    """

    attention: str
    output: str


_BERT = Parts("attention.self", "attention.output")
_LLAMA = Parts("self_attn", "self_attn.o_proj")
PARTS = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra", "deberta-v2"), _BERT),
    **dict.fromkeys(
        ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "eurobert"), _LLAMA
    ),
    "mpnet": Parts("attention.attn", "attention.attn.o"),
    "distilbert": Parts("attention", "attention.out_lin"),
    "modernbert": Parts("attn", "attn.Wo"),
    "opt": Parts("self_attn", "self_attn.out_proj"),
    "phi": Parts("self_attn", "self_attn.dense"),
    "gpt2": Parts("attn", "attn.c_proj"),
    "t5": Parts("layer.0.SelfAttention", "layer.0.SelfAttention.o"),
}
"""`model_type` of a configuration → its parts. Other architectures work, without access to heads and their weights."""

EMBEDDING_RATES = ("embedding_dropout", "embd_pdrop")
HIDDEN_RATES = ("hidden_dropout_prob", "mlp_dropout", "resid_pdrop", "dropout")
ATTENTION_RATES = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")
SINGLE_RATE = "dropout_rate"
"""Names of dropout rates in configurations. T5 has a single one for everything."""


def unsupported(model: Any, what: str, action: str, why: str = "") -> CseError:
    """Return the error for a parameter that an architecture does not support."""
    return CseError(
        f"{what} does not work with the architecture '{type(model).__name__}'{why and f': {why}'}",
        action,
        code="encoders.unsupported_architecture",
    )


def is_split(model: Any) -> bool:
    """Return whether the embedding layer and the blocks of a model are called separately.

    `backbone.open_halves` stores it, because parts can be replaced later. Before, the parts decide.
    """
    if (known := getattr(model, "cse_split", None)) is not None:
        return bool(known)
    embeddings = getattr(model, "embeddings", None)
    parts = [getattr(embeddings, name, None) for name in ("dropout", "word_embeddings", "position_embeddings")]
    return hasattr(model, "encoder") and all(part is not None for part in parts)


def runs_packed(model: Any) -> bool:
    """Return whether a model gives the same states for packed rows. `backbone.open_halves` stores it for the others."""
    return bool(model.is_backend_compatible() if is_split(model) else getattr(model, "cse_packs", False))


def require_split(model: Any, what: str) -> None:
    """Raise an error if a model is not split."""
    if not is_split(model):
        raise unsupported(model, what, "set model to a BERT, RoBERTa, XLM-R, ELECTRA or ALBERT checkpoint")


def embedding_layer(model: Any) -> nn.Module | None:
    """Return the module between word embeddings and blocks, or None if the blocks get the word embeddings."""
    layer = getattr(model, "embeddings", None)
    takes_words = isinstance(layer, nn.Module) and "inputs_embeds" in inspect.signature(layer.forward).parameters
    return layer if takes_words else None


@contextmanager
def embedded(model: Any, vectors: Tensor) -> Iterator[None]:
    """Let the model's embedding layer return these vectors."""
    layer: Any = embedding_layer(model)
    if layer is None:
        yield
        return
    layer.forward = lambda *_, **__: vectors  # of the object: it hides that of the class until it is deleted
    try:
        yield
    finally:
        del layer.forward


def blocks(model: Any) -> Sequence[nn.Module]:
    """Return the model's blocks in forward order."""
    count = int(model.config.num_hidden_layers)
    for part in model.modules():
        if isinstance(part, nn.ModuleList) and len(part) == count:
            return part  # type: ignore[return-value]
    raise unsupported(model, f"access to its {count} blocks", "set model to another architecture")


def attentions(model: Any) -> list[nn.Module]:
    """Return the attention of each block, which returns its weights in the "eager" implementation."""
    parts = PARTS.get(model.config.model_type)
    if parts is None or not (model.is_backend_compatible() and parts.attention in _parts_of_block(model)):
        action = "set model to a BERT or Llama checkpoint, or to ModernBERT with transformers 5.1 or later"
        raise unsupported(model, "a loss on attention weights", action)
    return [block.get_submodule(parts.attention) for block in blocks(model)]


def head_outputs(
    model: Any,
    what: str = "drophead",
    action: str = "remove drophead, or set model to a BERT, ModernBERT or Llama checkpoint",
) -> list[nn.Module]:
    """Return the module of each block that gets the concatenated attention heads.

    `what` and `action` are for the error.
    """
    parts = PARTS.get(model.config.model_type)
    if parts is None or parts.output not in _parts_of_block(model):
        raise unsupported(model, what, action)
    return [block.get_submodule(parts.output) for block in blocks(model)]


def _parts_of_block(model: Any) -> set[str]:
    return {path for path, _ in blocks(model)[0].named_modules()}


def rates(model_config: Any, dropout: float, scope: str) -> dict[str, float]:
    """Return the configuration values that replace the dropout rates of a scope.

    The dropout at the end of an embedding layer that the encoder applies itself is not among them.
    """
    names: tuple[str, ...] = {
        "all": (*EMBEDDING_RATES, *HIDDEN_RATES, *ATTENTION_RATES, SINGLE_RATE),
        "embedding": EMBEDDING_RATES,
        "hidden": (*EMBEDDING_RATES, *HIDDEN_RATES),
        "attention": ATTENTION_RATES,
    }[scope]
    return {name: dropout for name in names if getattr(model_config, name, None) is not None}


def states(model: Any, vectors: Tensor, rows: Rows, all_states: bool, pack: Pack | None = None) -> list[Tensor]:
    """Return the last layer's states (B, L, D), or the first block's input and the output of every block.

    The last state includes the model's final normalization.

    Padding can be on either side.
    """
    known = inspect.signature(model.forward).parameters
    given: dict[str, Any] = {"attention_mask": rows.mask, "position_ids": rows.positions, "use_cache": False}
    given = {key: value for key, value in given.items() if key in known}
    if pack is not None:
        given["pack"] = pack
    with embedded(model, vectors):
        made = model(inputs_embeds=vectors, output_hidden_states=all_states, **given)
    # In transformers 5.0, the last of ModernBERT's hidden states is not normalized.
    return [*(made.hidden_states[:-1] if all_states else ()), made.last_hidden_state]


def prepended(blocks: tuple[int, int], tokens: Tokens, placeholder: int) -> Prepended:
    """Return the replacement of the first placeholder's state by the last token's state."""
    found = (tokens.ids == placeholder) & (tokens.mask == 1)
    if not bool(found.any(dim=1).all()):
        raise CseError(
            "prepend: a sentence has no placeholder",
            "add the placeholder to the encoder's template, before {text}",
            code="encoders.no_placeholder",
        )
    return Prepended(blocks, last_places(tokens.mask), found.int().argmax(dim=1))


@contextmanager
def states_replaced(model: Any, replaced: Prepended | None) -> Iterator[None]:
    """Replace a state of each sentence before some blocks of a model."""
    if replaced is None:
        yield
        return

    def before(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
        if arguments:
            return (replaced.replace(arguments[0]), *arguments[1:]), named
        return (), {**named, "hidden_states": replaced.replace(named["hidden_states"])}

    with ExitStack() as hooks:
        for block in blocks(model)[slice(*replaced.blocks)]:
            hooks.enter_context(block.register_forward_pre_hook(before, with_kwargs=True))
        yield


def position_offset(model: Any) -> int:
    """Return the offset that the model adds to positions: padding_idx + 1 in the RoBERTa family and MPNet, else 0."""
    embeddings = getattr(model, "embeddings", None)
    counts = hasattr(embeddings, "create_position_ids_from_inputs_embeds")
    return int(embeddings.padding_idx) + 1 if counts else 0  # type: ignore[union-attr]


def is_decoder(model: Any) -> bool:
    """Return whether a model is built with causal attention."""
    return any(getattr(part, "is_causal", None) is True for part in model.modules())
