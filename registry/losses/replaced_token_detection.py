"""DiffCSE's second loss: the sentence vector must tell which tokens of an edited copy a language model replaced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from registry import LOSSES
from registry.distributed import all_devices, sum_devices, world_size
from registry.encoders import backbone as split
from registry.encoders.blocks import padded_states, run_blocks
from registry.encoders.pooling import needs_all_states, pool
from registry.errors import CseError, MissingError
from registry.masking import Masking, Rate, Share
from registry.models import load_language_model, load_model
from registry.tokens import Encoded, Tokens, attention_mask
from registry.types import Component, Encoder, Loss, ModelName
from registry.vocabulary import HubVocabulary


@LOSSES.register("replaced_token_detection")
class ReplacedTokenDetection(Loss):
    """Find, given the sentence vector, the tokens that a frozen language model replaced.

    x″ = argmax G(mask(x)), x″₀ = [CLS];  r_l = [x″_l ≠ x_l];  ℓ = 1/(2NL) Σ CE( D(x″, h)_l, r_l ),
    with G the generator, without gradient, and D a second encoder whose first token vector is h, the sentence vector of
    the unedited sentence, with gradient. Both copies of a sentence are hidden by themselves.

    Args:
        generator: Masked language model G; its tokenizer must give the encoder's ids.
        discriminator: Checkpoint D starts from; it is trained, and kept in checkpoints of the run only.
        encoder: The encoder of the two views.
        masking: How many tokens that are no special ones are hidden.
        mask_share: Of the hidden, how many become [MASK].
        random_share: Of the hidden, how many become a random id; the rest stay.
        decode: What G puts in: its "argmax", or a "sample" from its distribution.
        edit: Where: at "all" places, hidden or not, or at "masked_only".
        condition: h: the sentence vector after the heads ("projected"), or the one before them ("pooled").
        pads: Whether padding counts, as not replaced.
        generator_head: G's scores: those of the "checkpoint"'s head, or the product of its last layer and its word
            "embeddings", for a checkpoint that has no head.
        generator_dropout: Whether G's dropout is on in training.

    Shapes: tokens (B, L) and sentence (B, D) of two views → 2B rows, scores (2B, L, 2) → a scalar.

    Source: DiffCSE (Chuang et al. 2022) §3 and its code. Doubtful and settled in methods/diffcse.md: D1 `decode`, D2
    `edit`, D3 `pads`, D4 `condition`, D5 `generator_dropout`. The defaults are the released code's.
    """

    def __init__(
        self,
        generator: ModelName,
        discriminator: ModelName,
        encoder: Encoder,
        masking: Rate = 0.30,
        mask_share: Share = 0.8,
        random_share: Share = 0.1,
        decode: Literal["argmax", "sample"] = "argmax",
        edit: Literal["all", "masked_only"] = "all",
        condition: Literal["projected", "pooled"] = "projected",
        pads: bool = True,
        generator_head: Literal["checkpoint", "embeddings"] = "checkpoint",
        generator_dropout: bool = True,
    ) -> None:
        super().__init__()
        for model in (generator, discriminator):
            require_same_ids(model, encoder)
        self.decode, self.edit, self.pads = decode, edit, pads
        self.pooling = _pooling(encoder) if condition == "pooled" else None
        self.reads_hidden = self.pooling is not None
        self.masking = Masking.of("replaced_token_detection", encoder.vocabulary, masking, mask_share, random_share)
        self.generator = FrozenGenerator(generator, generator_head, generator_dropout)
        self.discriminator = Discriminator(discriminator, pads)
        if condition == "projected":
            self.discriminator.require_width(encoder.dim)
        self._counts = torch.zeros(4)

    def forward(self, anchor: Encoded, positive: Encoded) -> Tensor:
        """Return the loss of the batch."""
        tokens = Tokens.stack({"anchor": anchor.tokens, "positive": positive.tokens})
        tokens = tokens.padded_to(_longest(tokens))  # padding counts, so all devices need the same
        edited, replaced = self.edited(tokens)
        scores = self.discriminator(edited, torch.cat([self._condition(anchor), self._condition(positive)]))
        counted = torch.ones_like(replaced) if self.pads else tokens.mask == 1
        self._count(scores, replaced, tokens.mask == 1)
        labels = replaced.long().masked_fill(~counted, -100)
        total = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=-100)
        return total * world_size() / sum_devices(counted.sum())

    @torch.no_grad()
    def edited(self, tokens: Tokens) -> tuple[Tokens, Tensor]:
        """Return the tokens as the generator would have them, and (B, L) which of them are other than they were."""
        ids, hidden = self.masking.hide(tokens)
        scores = self.generator(ids, tokens)
        if self.decode == "argmax":
            found = scores.argmax(dim=-1)
        else:
            found = torch.multinomial(scores.flatten(0, 1).softmax(dim=-1), 1).view(ids.shape)
        if self.edit == "masked_only":
            found = torch.where(hidden, found, tokens.ids)
        found = torch.cat([tokens.ids[:, :1], found[:, 1:]], dim=1)
        real = tokens.mask == 1
        return replace(tokens, ids=found * tokens.mask), (found != tokens.ids) & real

    def report(self) -> dict[str, float]:
        """Return how many real tokens the last batch had replaced, and how many of either kind were recognised."""
        replaced, kept, found, left = self._counts.tolist()
        return {
            "replaced": replaced / max(1.0, replaced + kept),
            "accuracy_replaced": found / max(1.0, replaced),
            "accuracy_kept": left / max(1.0, kept),
        }

    @torch.no_grad()
    def _count(self, scores: Tensor, replaced: Tensor, real: Tensor) -> None:
        said = scores.argmax(dim=-1) == 1
        groups = (replaced, ~replaced & real, replaced & said, ~replaced & real & ~said)
        self._counts = torch.stack([group.sum() for group in groups])

    def _condition(self, view: Encoded) -> Tensor:
        vectors = view.sentence if self.pooling is None else pool(self.pooling, [view.hidden], view.tokens.mask)
        self.discriminator.require_width(vectors.shape[1])
        return vectors


def _longest(tokens: Tokens) -> int:
    """Return the length of the batch over all devices; several of them wait for each other here."""
    if world_size() == 1:
        return tokens.length
    return int(all_devices(torch.full((1,), tokens.length, device=tokens.ids.device)).max())


def _pooling(encoder: Encoder) -> Any:
    """Return how the encoder pools, where its last layer is all that takes.

    Raises:
        CseError: It pools otherwise.
    """
    pooling = getattr(encoder, "pooling", None)
    if pooling is None or needs_all_states(pooling):
        raise CseError(
            f'replaced_token_detection: condition = "pooled" reads the last layer, but the encoder pools {pooling!r}',
            'set condition = "projected", or pooling = "cls" or "mean"',
        )
    return pooling


class Discriminator(nn.Module):
    """A whole second encoder with two scores a token: original, replaced.

    Args:
        model: Checkpoint it starts from.
        pads: Whether the scores of padding are wanted too; else they mean nothing.
    """

    def __init__(self, model: str, pads: bool = True) -> None:
        super().__init__()
        self.pads = pads
        self.model = model
        self.backbone = load_model(model)
        self.dropout = split.take_dropout(self.backbone)
        split.verify(self.backbone)
        self.width = int(self.backbone.embeddings.word_embeddings.embedding_dim)
        self.head = nn.Linear(int(self.backbone.config.hidden_size), 2)
        self.train()

    def require_width(self, width: int) -> None:
        """Check that sentence vectors can stand among its token vectors.

        Raises:
            CseError: Their widths differ.
        """
        if width != self.width:
            raise CseError(
                f"sentence vectors are {width} wide, the token vectors of discriminator {self.model!r} {self.width}",
                "name a discriminator of the encoder's width, or heads that keep the width",
            )

    def forward(self, tokens: Tokens, first: Tensor) -> Tensor:
        """Return (B, L, 2).

        Args:
            tokens: What is judged.
            first: (B, W) stands in the first place, as it is: after the embedding layer's norm and dropout.
        """
        vectors = self.dropout(split.embed_layer(self.backbone, tokens))
        vectors = torch.cat([first.to(vectors.dtype).unsqueeze(1), vectors[:, 1:]], dim=1)
        states = (padded_states if self.pads else run_blocks)(self.backbone, vectors, tokens.mask, all_states=False)
        scores: Tensor = self.head(states[-1])
        return scores


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


def require_same_ids(model: str, encoder: Encoder) -> None:
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
