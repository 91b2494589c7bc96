"""The frozen language model that replaces tokens for a discriminator. Registers nothing."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from registry.device import attention_mask
from registry.errors import CseError, MissingError
from registry.losses.language_model import load_language_model
from registry.tokens import Tokens
from registry.types import Component, Encoder
from registry.vocabulary import HubVocabulary


class FrozenGenerator(Component, nn.Module):
    """Scores of every id at every place; never trained, loaded by name, left out of checkpoints.

    Args:
        model: A masked language model.
        head: "checkpoint" uses its own prediction head, "embeddings" the product of last layer and word embeddings.
        dropout: Whether its dropout is on while the rest trains.

    Raises:
        MissingError: The head is to come from the checkpoint, which has none.
    """

    stateful: ClassVar[bool] = False

    def __init__(self, model: str, head: Literal["checkpoint", "embeddings"], dropout: bool) -> None:
        super().__init__()
        loaded, complete = load_language_model(model)
        if head == "checkpoint" and not complete:
            raise MissingError(
                f"generator {model!r} has no prediction head: what it predicts would be random",
                'name a masked language model, or set generator_head = "embeddings" to decode by its word embeddings',
            )
        self.model = model
        self.dropout = dropout
        self.network: Any = loaded if head == "checkpoint" else loaded.base_model
        self.decodes = head == "checkpoint"
        self.segments = int(getattr(loaded.config, "type_vocab_size", 0)) > 1
        self.longest = _positions(loaded.config)
        self.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> FrozenGenerator:
        """Follow the training only where dropout is wanted."""
        return super().train(mode and self.dropout)

    @torch.no_grad()
    def forward(self, ids: Tensor, tokens: Tokens) -> Tensor:
        """Return (B, L, V).

        Args:
            ids: (B, L) partly hidden.
            tokens: Their mask and segments.

        Raises:
            CseError: There are more tokens than it has positions.
        """
        if tokens.length > self.longest:
            raise CseError(
                f"generator {self.model!r} takes {self.longest} tokens, the batch has {tokens.length}",
                f"--set data.max_length={self.longest}, or another generator",
            )
        segments = {"token_type_ids": tokens.types} if self.segments else {}
        found = self.network(input_ids=ids, attention_mask=attention_mask(tokens.mask), **segments)
        if self.decodes:
            scores: Tensor = found.logits
            return scores
        words: Tensor = self.network.get_input_embeddings().weight
        return nn.functional.linear(found.last_hidden_state, words)


def _positions(config: Any) -> int:
    """Return the most tokens a model takes; the RoBERTa family counts positions from the padding id on."""
    offset = int(config.pad_token_id or 0) + 1 if config.model_type in ("roberta", "xlm-roberta", "camembert") else 0
    return int(config.max_position_embeddings) - offset


def demand_same_ids(model: str, encoder: Encoder) -> None:
    """Check that a model gives every token the id that the encoder gives it.

    Digests of whole tokenizers would refuse DistilBERT beside BERT: they differ in segments, not in ids.

    Raises:
        CseError: It does not.
    """
    theirs, ours = HubVocabulary(model), encoder.vocabulary
    own = getattr(ours, "tokenizer", None)
    same = theirs.fingerprint == ours.fingerprint if own is None else theirs.tokenizer.get_vocab() == own.get_vocab()
    if not same:
        raise CseError(
            f"model {model!r} ({theirs.size} ids) and the encoder {getattr(encoder, 'model', '')!r} ({ours.size} ids) "
            "have different vocabularies: replaced tokens would be other words",
            "name a model with the encoder's own tokenizer, such as distilbert-base-uncased for bert-base-uncased",
        )
