"""Templates of an encoder: checks, and the embedding of a template without its sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from registry.encoders.pooling import last_copies, reads_mask
from registry.errors import CseError
from registry.tokens import Pieces, Tokens
from registry.vocabulary import MASK, HubVocabulary, JoinedVocabulary

_EXAMPLE = "set template, for example 'This sentence : \"{text}\" means {mask}.'"


def vocabularies(
    model: str, templates: Sequence[str | None], ending: tuple[str | None, bool], joined: bool
) -> list[HubVocabulary]:
    """Return the tokenizer of each template.

    Args:
        model: Name of the model.
        templates: Templates, or [None].
        ending: Values of `end_with` and `end_in_training`.
        joined: Whether template and sentence are tokenized as one string.
    """
    if joined:
        return [JoinedVocabulary(model, str(each), ending[0]) for each in templates]  # type: ignore[arg-type]
    return [HubVocabulary(model, each, *ending) for each in templates]  # type: ignore[arg-type]


def check(templates: Sequence[str | None], poolings: Sequence[str], joined: bool, denoise: tuple[bool, bool]) -> None:
    """Check that the templates of an encoder fit its poolings, tokenization and denoising.

    Args:
        templates: Templates, or [None].
        poolings: Poolings in training and evaluation.
        joined: Whether template and sentence are tokenized as one string.
        denoise: Whether the template's embedding is subtracted in training, and in evaluation.

    Raises:
        CseError: If they do not fit.
    """
    masked = [each for each in poolings if reads_mask(each)]
    if masked and any(MASK not in (each or "") for each in templates):
        raise CseError(
            f'pooling "{masked[0]}" requires a template with {{mask}}', _EXAMPLE, code="encoders.no_template"
        )
    if None in templates and any(denoise):
        raise CseError("denoise and denoise_at_eval require a template", _EXAMPLE, code="encoders.no_template")
    if denoise == (False, True):
        raise CseError(
            "denoise_at_eval = true requires denoise", 'set denoise = "positions"', code="encoders.no_denoise"
        )
    reads_text = "text" in poolings
    if joined and (reads_text or None in templates or len(templates) > 1 or denoise[0]):
        raise CseError(
            'template_joined = true requires exactly one template, no denoise, and a pooling other than "text"',
            "remove template_joined, or set template to one string and pooling = 'last'",
            code="encoders.joined_template",
        )
    if denoise[0] and len(templates) > 1:
        raise CseError("denoise requires a single template", "set template to one string", code="encoders.no_denoise")
    if reads_text and None in templates:
        raise CseError(
            'pooling "text" requires a template, and template is not set',
            "set template = 'This sentence : \"{text}\" means'",
            code="encoders.no_template",
        )
    if reads_text and any(re.search(r"\{text\}\s*\{text\}", each or "") for each in templates):
        raise CseError(
            'pooling "text" cannot separate two copies of a sentence: template has "{text}" next to "{text}"',
            "add other text between the two {text}",
            code="encoders.ambiguous_template",
        )


def several(count: int, what: str, action: str) -> CseError:
    """Return the error for several templates where only one is possible."""
    return CseError(f"{what} {count} templates", action, code="encoders.several_templates")


def in_others(tokens: Tokens, others: Sequence[HubVocabulary]) -> list[Tokens]:
    """Return the sentences of the rows in each of the other templates."""
    if not others:
        return []
    assert tokens.text is not None
    places = (last_copies(tokens) * tokens.text).bool()
    sentences = [Pieces(tuple(ids[at].tolist())) for ids, at in zip(tokens.ids, places, strict=True)]
    return [each.assemble(sentences).to(tokens.ids.device) for each in others]


def alone(tokens: Tokens, padding: int, attends: bool, counts_real: bool, embed: Callable[[Tokens], Tensor]) -> Tensor:
    """Return the (B, D) embeddings of each row's template without its sentence. Equal rows are encoded once.

    Args:
        tokens: Rows with a template.
        padding: ID of [PAD].
        attends: Whether the template attends to padding tokens in place of the sentence. Otherwise, the mask hides
            them, and positions do not change.
        counts_real: Whether the model counts positions without padding tokens, as RoBERTa does.
        embed: Function that returns the embeddings of rows.
    """
    assert tokens.text is not None
    text = tokens.text == 1
    mask = tokens.mask if attends else tokens.mask.masked_fill(text, 0)
    ids = tokens.ids.masked_fill(text, padding)
    rows, places = torch.unique(torch.cat([ids, mask], dim=1), dim=0, return_inverse=True)
    ids, mask = rows[:, : tokens.length], rows[:, tokens.length :]
    order = torch.arange(tokens.length, device=ids.device).expand(ids.shape)
    if attends and counts_real:
        real = ids != padding
        order = real.cumsum(dim=1) * real - 1
    return embed(Tokens(ids, mask, torch.zeros_like(ids), order, text=torch.zeros_like(ids)))[places]
