"""DiffCSE's second loss: detect, given the sentence embedding, the tokens that a language model replaced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from registry import LOSSES
from registry.distributed import all_devices, sum_devices, world_size
from registry.encoders import architectures
from registry.encoders import backbone as halves
from registry.encoders.blocks import padded_states, run_blocks
from registry.encoders.packing import Rows
from registry.errors import CseError, MissingError
from registry.masking import Masking, Rate, Share
from registry.poolings import needs_all_states, pool
from registry.resources.models import load_language_model, load_model
from registry.tokens import Encoded, Tokens, attention_mask
from registry.types import Component, Encoder, Loss, ModelName
from registry.vocabulary import HubVocabulary


@LOSSES.register("replaced_token_detection")
class ReplacedTokenDetection(Loss):
    """Detect the tokens that a frozen language model replaced, given the sentence embedding.

    x″ = argmax G(mask(x)), x″₀ = [CLS];  r_l = [x″_l ≠ x_l];  ℓ = 1/(2NL) Σ CE( D(x″, h)_l, r_l ),
    with G the generator, without gradient, and D a second encoder whose first token vector is h, the embedding of the
    original sentence, with gradient. The two copies of a sentence are masked independently.

    Shapes: tokens (B, L) and sentence (B, D) of two views → 2B rows, scores (2B, L, 2) → a scalar.

    Source: DiffCSE (Chuang et al. 2022) §3 and its code. Doubtful and settled in methods/diffcse.md: D1 `decode`, D2
    `edit`, D3 `pads`, D4 `condition`, D5 `generator_dropout`. The defaults are those of the released code.

    Args:
        generator: Masked language model G. Its tokenizer must give the same ids as the encoder's.
        discriminator: Initial checkpoint of D. D is trained, and only checkpoints of the run contain it.
        encoder: Encoder of the two views.
        masking: Share of masked tokens among those that are not special tokens.
        mask_share: Share of masked tokens that become [MASK].
        random_share: Share of masked tokens that become a random id. The others are unchanged.
        decode: Replacement by G: its "argmax", or a "sample" of its distribution.
        edit: Places of the replacements: "all" places, or "masked_only".
        condition: Embedding h: after the heads ("projected"), or before them ("pooled").
        pads: Whether padding counts, as not replaced.
        generator_head: Scores of G: "checkpoint" for its prediction head, or "embeddings" for the product of last layer
            and word embeddings, for a checkpoint without a head.
        generator_dropout: Whether G uses dropout in training.

    Example:
        [losses.replaced_token_detection]
        weight = 0.005
        generator = "mini_en"
        generator_head = "embeddings"
        discriminator = "mini_en"
        masking = 0.3

        >>> import torch
        >>> from registry import ENCODERS, LOSSES
        >>> encoder = ENCODERS["transformer"].build({"model": "mini_en", "pooling": "mean"}).eval()
        >>> tokens = encoder.vocabulary.pad(encoder.vocabulary.ids(["a red house", "two dogs run"], 16))
        >>> view = encoder.encode(tokens, encoder.embed(tokens))
        >>> models = {"generator": "mini_en", "discriminator": "mini_en"}
        >>> values = {**models, "generator_head": "embeddings", "masking": 0.0}
        >>> loss = LOSSES["replaced_token_detection"].build(values, {"online": encoder}).eval()
        >>> _ = torch.nn.init.zeros_(loss.discriminator.head.weight)  # so that both answers are as probable
        >>> _ = torch.nn.init.zeros_(loss.discriminator.head.bias)
        >>> round(loss(view, view).item(), 4)
        0.6931
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
        self.pooling = getattr(encoder, "pooling", None) if condition == "pooled" else None
        if condition == "pooled" and (self.pooling is None or needs_all_states(self.pooling)):
            raise CseError(
                f'replaced_token_detection: condition = "pooled" requires a pooling of the last layer, not '
                f"{self.pooling!r}",
                'set condition = "projected", or pooling = "cls" or "mean"',
                code="losses.unsupported_pooling",
            )
        self.reads_hidden = self.pooling is not None
        self.masking = Masking("replaced_token_detection", encoder.vocabulary, masking, mask_share, random_share)
        self.generator = FrozenGenerator(generator, generator_head, generator_dropout)
        self.discriminator = Discriminator(discriminator, pads)
        if condition == "projected":
            self.discriminator.require_width(encoder.dim)
        self._counts = torch.zeros(4)

    def forward(self, anchor: Encoded, positive: Encoded) -> Tensor:
        """Return the loss of the batch."""
        tokens = Tokens.stack({"anchor": anchor.tokens, "positive": positive.tokens})
        if world_size() > 1:  # padding counts, so all devices need the same length
            lengths = all_devices(torch.full((1,), tokens.length, device=tokens.ids.device))
            tokens = tokens.padded_to(int(lengths.max()))
        edited, replaced = self.edited(tokens)
        scores = self.discriminator(edited, torch.cat([self._condition(anchor), self._condition(positive)]))
        counted = torch.ones_like(replaced) if self.pads else tokens.mask == 1
        with torch.no_grad():
            detected, real = scores.argmax(dim=-1) == 1, tokens.mask == 1
            groups = (replaced, ~replaced & real, replaced & detected, ~replaced & real & ~detected)
            self._counts = torch.stack([group.sum() for group in groups])
        labels = replaced.long().masked_fill(~counted, -100)
        total = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=-100)
        return total * world_size() / sum_devices(counted.sum())

    @torch.no_grad()
    def edited(self, tokens: Tokens) -> tuple[Tokens, Tensor]:
        """Return the tokens with the generator's replacements, and (B, L) booleans of replaced places."""
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
        """Return the share of replaced tokens in the last batch, and the accuracy for replaced and original tokens."""
        replaced, kept, found, left = self._counts.tolist()
        return {
            "replaced": replaced / max(1.0, replaced + kept),
            "accuracy_replaced": found / max(1.0, replaced),
            "accuracy_kept": left / max(1.0, kept),
        }

    def _condition(self, view: Encoded) -> Tensor:
        vectors = view.sentence if self.pooling is None else pool(self.pooling, [view.hidden], view.tokens.mask)
        self.discriminator.require_width(vectors.shape[1])
        return vectors


class Discriminator(nn.Module):
    """A complete second encoder with two scores per token: original and replaced."""

    def __init__(self, model: str, pads: bool = True) -> None:
        super().__init__()
        self.pads = pads
        self.model = model
        self.backbone = load_model(model)
        self.dropout = halves.open_halves(self.backbone)
        architectures.require_split(self.backbone, "replaced_token_detection")
        self.width = int(self.backbone.embeddings.word_embeddings.embedding_dim)
        self.head = nn.Linear(int(self.backbone.config.hidden_size), 2)
        self.train()

    def require_width(self, width: int) -> None:
        """Check that sentence embeddings have the width of the token vectors."""
        if width != self.width:
            raise CseError(
                f"replaced_token_detection: sentence embeddings have {width} dimensions, token vectors of "
                f"discriminator {self.model!r} {self.width}",
                "set discriminator to a model of the encoder's width, or use heads that keep the width",
                code="losses.width_mismatch",
            )

    def forward(self, tokens: Tokens, first: Tensor) -> Tensor:
        """Return (B, L, 2) scores.

        Args:
            tokens: Tokens to classify.
            first: (B, W) vectors for the first place, inserted after the embedding layer's norm and dropout.
        """
        vectors = self.dropout(halves.embed_layer(self.backbone, tokens))
        vectors = torch.cat([first.to(vectors.dtype).unsqueeze(1), vectors[:, 1:]], dim=1)
        run = padded_states if self.pads else run_blocks
        states = run(self.backbone, vectors, Rows(tokens.mask), all_states=False)
        scores: Tensor = self.head(states[-1])
        return scores


class FrozenGenerator(Component, nn.Module):
    """Scores of every id at every place. It is not trained, loaded by name, and excluded from checkpoints."""

    stateful: ClassVar[bool] = False

    def __init__(self, model: str, head: Literal["checkpoint", "embeddings"], dropout: bool) -> None:
        super().__init__()
        loaded, complete = load_language_model(model)
        if head == "checkpoint" and not complete:
            raise MissingError(
                f"replaced_token_detection: generator {model!r} has no prediction head",
                'set generator to a masked language model, or set generator_head = "embeddings"',
                code="losses.no_prediction_head",
            )
        self.model = model
        self.dropout = dropout
        self.network: Any = loaded if head == "checkpoint" else loaded.base_model
        self.decodes = head == "checkpoint"
        self.segments = int(getattr(loaded.config, "type_vocab_size", 0)) > 1
        config = loaded.config
        first = config.model_type in ("roberta", "xlm-roberta", "camembert")  # they count positions from the padding ID
        self.longest = int(config.max_position_embeddings) - (int(config.pad_token_id or 0) + 1 if first else 0)
        self.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> FrozenGenerator:
        """Set training mode if `dropout` is true, else evaluation mode."""
        return super().train(mode and self.dropout)

    @torch.no_grad()
    def forward(self, ids: Tensor, tokens: Tokens) -> Tensor:
        """Return (B, L, V) scores.

        Args:
            ids: (B, L) partly masked ids.
            tokens: Tokens with the mask and segments of the ids.
        """
        if tokens.length > self.longest:
            raise CseError(
                f"replaced_token_detection: generator {self.model!r} takes at most {self.longest} tokens, but the "
                f"batch has {tokens.length}",
                f"add --set data.max_length={self.longest}, or use another generator",
                code="losses.too_many_tokens",
            )
        segments = {"token_type_ids": tokens.types} if self.segments else {}
        found = self.network(input_ids=ids, attention_mask=attention_mask(tokens.mask), **segments)
        if self.decodes:
            scores: Tensor = found.logits
            return scores
        words: Tensor = self.network.get_input_embeddings().weight
        return nn.functional.linear(found.last_hidden_state, words)


def require_same_ids(model: str, encoder: Encoder) -> None:
    """Check that a model and the encoder give every token the same id.

    Digests of whole tokenizers would reject DistilBERT for BERT, which differ in segments, not in ids.
    """
    other, own = HubVocabulary(model), encoder.vocabulary
    tokenizer = getattr(own, "tokenizer", None)
    if tokenizer is None:
        same = other.fingerprint == own.fingerprint
    else:
        same = other.tokenizer.get_vocab() == tokenizer.get_vocab()
    if not same:
        raise CseError(
            f"replaced_token_detection: model {model!r} ({other.size} ids) and encoder "
            f"{getattr(encoder, 'model', '')!r} ({own.size} ids) have different vocabularies",
            "use a model with the encoder's tokenizer, such as distilbert-base-uncased for bert-base-uncased",
            code="losses.vocabulary_mismatch",
        )
