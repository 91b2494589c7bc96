"""Tokenizers of transformers as a `Vocabulary`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from string import ascii_letters, digits, punctuation
from typing import Any, ClassVar, Literal

import torch

from registry.errors import CseError
from registry.resources.models import load_tokenizer
from registry.tokens import Pieces, Sample, Tokens


@dataclass(frozen=True)
class _Frame:
    """Special tokens around the sides of a text.

    Args:
        before: ID and segment of the tokens before each side, and after the last one.
        sides: Segment of each side.
    """

    before: tuple[tuple[tuple[int, int], ...], ...]
    sides: tuple[int, ...]

    def around(self, sides: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
        """Return IDs and segments of a whole row."""
        row: list[tuple[int, int]] = [*self.before[0]]
        for side, segment, after in zip(sides, self.sides, self.before[1:], strict=True):
            row += [(piece, segment) for piece in side]
            row += after
        return [piece for piece, _ in row], [segment for _, segment in row]

    @property
    def length(self) -> int:
        """Number of tokens of a row with empty sides."""
        return sum(map(len, self.before))

    def places(self, length: int) -> list[int]:
        """Return 1 for each token of a side and 0 for others, for a row of `length` with sides of equal length."""
        side = [1] * ((length - self.length) // len(self.sides))
        first, *others = ([0] * len(part) for part in self.before)
        return first + [place for other in others for place in (*side, *other)]


def _frame(encoding: Any) -> _Frame:
    """Return the frame of an encoding by the tokenizer."""
    before: list[list[tuple[int, int]]] = [[]]
    sides: list[int] = []
    last = None
    for piece, segment, side in zip(encoding.ids, encoding.type_ids, encoding.sequence_ids, strict=True):
        if side is None:
            before[-1].append((piece, segment))
        elif side != last:
            sides.append(segment)
            before.append([])
        last = side if side is not None else last
    return _Frame(tuple(map(tuple, before)), tuple(sides))


GAP, MASK = "{text}", "{mask}"
"""Placeholders of a template for the sentence and for the mask token."""


SAMPLES = (
    *("", "The cat sees 12 dogs.", "MASK", "don't", "1,000.5 km", '"(yes)" -- no?!', "...", "under_score @me #1"),
    *("Größe, déjà vu", "猫在树上。", "Ёлка", "🙂 ok"),
    *(f"{first}e" for first in f"{digits}{ascii_letters}{punctuation}"),
)
"""Sentences that show whether a tokenizer gives the same tokens for a prefix and a sentence as for one text."""

Ending = Literal["stop", "spaced_stop", "stop_only"]
"""Rule for the end of a sentence in a template: see `ended`."""

_FINAL = ".?\"'"
_UNCUT = 2**31


def ended(text: str, ending: Ending) -> str:
    """Return a sentence with a full stop at its end, by one of three rules. An empty sentence does not change.

    "stop" appends "." to a sentence that does not end in a full stop, a question mark or a straight quotation mark.
    "spaced_stop" appends " ." to a sentence whose last character, apart from spaces, is not ASCII punctuation.
    "stop_only" is "stop". Then each double quotation mark becomes a single one, and a final question mark a full stop.

    Source: "stop", kongds/Prompt-BERT @690ba6e evaluation.py:201 and ZBWpro/CoT-BERT @3aa7bb4
    code-for-BERT/evaluation.py:227. "spaced_stop", Sense-GVT/SNCSE @faa013e SNCSE/train_SNCSE.py:511 and
    bert_prediction.py:68. "stop_only", kongds/scaling_sentemb @8567aa0 evaluation.py:198-200.
    """
    if ending == "spaced_stop":
        return text if text.strip()[-1:] in punctuation else f"{text} ."
    if text[-1:] not in _FINAL:
        text += "."
    if ending == "stop_only":
        text = text.replace('"', "'")
        text = f"{text[:-1]}." if text.endswith("?") else text
    return text


def in_evaluation(vocabulary: object, texts: Sequence[str]) -> Sequence[str]:
    """Return sentences as evaluation tokenizes them, with the ending of the vocabulary if it has one."""
    ending: Ending | None = getattr(vocabulary, "end_with", None)
    return texts if ending is None else [ended(text, ending) for text in texts]


class HubVocabulary:
    """Tokenizer of a model, loaded at first use.

    Args:
        model: Name or directory of a model.
        template: Text around every sentence, with `{text}` in place of the sentence, or None.
        end_with: Rule of `ended` for evaluation, or None. `in_evaluation` applies it.
        end_in_training: Whether `ids` and `pieces` apply the rule.

    Raises:
        CseError: If the template has no `{text}`, only some of several follow a space, or a rule has no template.
    """

    framed: ClassVar[bool] = True
    """Whether the model's special tokens are around a sentence."""
    form: ClassVar[str] = ""
    """Mark of a subclass in the fingerprint."""

    def __init__(
        self, model: str, template: str | None = None, end_with: Ending | None = None, end_in_training: bool = False
    ) -> None:
        self.model = model
        self.template = template
        self.end_with: Ending | None = end_with
        self.end_in_training = end_in_training
        if (end_with is not None and template is None) or (end_in_training and end_with is None):
            raise CseError(
                "end_with requires a template, and end_in_training requires end_with",
                'set template, and end_with = "stop"',
                code="vocabulary.no_ending",
            )
        parts = [] if template is None else template.split(GAP)
        spaced = {part.endswith(" ") for part in parts[:-1]}
        if template is not None and len(spaced) != 1:
            wrong = f"has a space before only some of its {GAP}" if spaced else f"does not contain {GAP}"
            raise CseError(
                f"template {template!r} {wrong}",
                f"write {GAP} in place of the sentence",
                code="vocabulary.invalid_template",
            )
        self._space = " " if spaced == {True} else ""
        """Space before the sentence. Byte-level tokenizers treat it as part of the first word."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the parameters, without the loaded tokenizer and what follows from it."""
        return {key: one for key, one in vars(self).items() if not hasattr(getattr(type(self), key, None), "func")}

    def with_template(self, template: str | None) -> HubVocabulary:
        """Return the tokenizer with another template."""
        if MASK in (self.template or "") and MASK not in (template or ""):
            raise CseError(
                f"template {template!r} does not contain {MASK}, which the encoder can pool",
                f"add {MASK}",
                code="vocabulary.invalid_template",
            )
        if template == self.template:
            return self
        return HubVocabulary(self.model, template, self.end_with, self.end_in_training)

    @cached_property
    def tokenizer(self) -> Any:
        """The transformers tokenizer."""
        return load_tokenizer(self.model)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the tokenizer's serialized form."""
        if self.form:
            settings = f"{HubVocabulary(self.model, self.template).fingerprint}|{self.form}"
        else:
            settings = f"{self._backend.to_str()}|{self.padding}|{self._segments}"
            settings += "" if self.template is None else f"|{self.template}"
            settings += f"|{self.end_with}" if self.end_in_training else ""
        return hashlib.sha256(settings.encode()).hexdigest()[:16]

    @property
    def prefix(self) -> str | None:
        """Text that the template has before the sentence, or None if it has more than that."""
        before, _, after = (self.template or GAP).partition(GAP)
        return None if after or MASK in before or self.end_with is not None else before

    @cached_property
    def prompt(self) -> str | None:
        """Prefix that gives the same tokens if it is one text with the sentence, or None."""
        if not self.prefix:
            return self.prefix
        texts = [self.prefix + text for text in SAMPLES]
        together = self._backend.encode_batch_fast(texts, add_special_tokens=self.framed)
        return self.prefix if [each.ids for each in together] == self.ids(SAMPLES, _UNCUT) else None

    @property
    def prompt_length(self) -> int:
        """Number of tokens of the prompt."""
        return self._single.length - self._plain.length

    def ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Return token IDs of sentences with special tokens, truncated to `max_length` plus the template."""
        if self.template is not None:
            pieces = self.pieces([Sample(text) for text in texts], max_length)
            return [self._single.around([piece.first] * self.gaps)[0] for piece in pieces]
        self._backend.enable_truncation(max_length)
        try:
            encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=self.framed)
            return [encoding.ids for encoding in encodings]
        finally:
            self._backend.no_truncation()

    def pad(self, rows: Sequence[Sequence[int]]) -> Tokens:
        """Return sentences padded to the longest."""
        return self._marked(self._padded(rows, [[0] * len(row) for row in rows]), rows)

    def inside(self, tokens: Tokens) -> Tokens:
        """Return the tokens of sentences with a mask that leaves out the special tokens around each sentence."""
        before, after = map(len, self._plain.before)
        place, count = tokens.mask.cumsum(dim=1), tokens.mask.sum(dim=1, keepdim=True)
        return replace(tokens, mask=tokens.mask * ((place > before) & (place <= count - after)))

    @property
    def size(self) -> int:
        """Number of token IDs."""
        return len(self.tokenizer)

    @cached_property
    def specials(self) -> frozenset[int]:
        """IDs of special tokens."""
        return frozenset(self.tokenizer.all_special_ids)

    @property
    def mask(self) -> int | None:
        """ID of [MASK], or None."""
        found = self.tokenizer.mask_token_id
        return None if found is None else int(found)

    @cached_property
    def continued(self) -> frozenset[int]:
        """IDs of sub-words that continue a word, such as "##ing" of WordPiece. Empty for other tokenizers."""
        mark = getattr(self._backend.model, "continuing_subword_prefix", None)
        known = self._backend.get_vocab() if mark else {}
        return frozenset(number for token, number in known.items() if token.startswith(mark))

    def id_of(self, token: str) -> int:
        """Return the ID of a token."""
        found = self.tokenizer.convert_tokens_to_ids(token)
        if found is None or (found == self.tokenizer.unk_token_id and token != self.tokenizer.unk_token):
            raise CseError(
                f"the tokenizer of {self.model!r} has no token {token!r}",
                f"use an existing token, such as {self.tokenizer.unk_token!r}",
                code="vocabulary.unknown_token",
            )
        return int(found)

    @cached_property
    def padding(self) -> int:
        """ID of [PAD], or 0."""
        pad = self.tokenizer.pad_token_id
        return 0 if pad is None else int(pad)

    @property
    def gaps(self) -> int:
        """Number of copies of the sentence in a row."""
        return 1 if self.template is None else self.template.count(GAP)

    def longest(self, tokens: int) -> int:
        """Return the largest `max_length` with which no row is longer than `tokens`."""
        return (tokens - self._single.length) // self.gaps + self._plain.length

    def room(self, max_length: int) -> int:
        """Return the maximum number of sub-words of a sentence for `max_length`."""
        return max_length - self._plain.length

    def pieces(self, samples: Sequence[Sample], max_length: int) -> list[Pieces]:
        """Return samples as sub-words. Each side of a pair fits `max_length` as a single sentence.

        So a pair of a sentence with itself consists of the sub-words of the single sentence, twice.
        """
        sides = (side for sample in samples for side in (sample.text, sample.pair) if side is not None)
        if self.end_in_training and self.end_with is not None:
            sides = (ended(side, self.end_with) for side in sides)
        texts = [self._space + side for side in sides]
        encoded = iter(self._backend.encode_batch_fast(texts, add_special_tokens=False))
        room = self.room(max_length)
        found = []
        for sample in samples:
            first = tuple(next(encoded).ids)
            second = None if sample.pair is None else tuple(next(encoded).ids)
            if sample.joint and second is not None:
                together = 2 * max_length - self._backend.num_special_tokens_to_add(is_pair=True)
                while len(first) + len(second) > max(together, 0):
                    first, second = (first[:-1], second) if len(first) > len(second) else (first, second[:-1])
            else:
                first, second = first[:room], None if second is None else second[:room]
            found.append(Pieces(first, second, sample.label))
        return found

    def assemble(self, pieces: Sequence[Pieces]) -> Tokens:
        """Return padded tokens with the special tokens and segments of the model."""
        rows, types = [], []
        for piece in pieces:
            if piece.second is None:
                ids, segments = self._single.around([piece.first] * self.gaps)
            elif self.template is None:
                ids, segments = self._pair.around((piece.first, piece.second))
            else:
                raise CseError(
                    "an augmenter creates pairs, but a template supports only single sentences",
                    "remove the template or the augmenter",
                    code="vocabulary.pair_in_template",
                )
            rows.append(ids)
            types.append(segments if self._segments else [0] * len(ids))
        padded = self._marked(self._padded(rows, types), rows)
        labels = [piece.label for piece in pieces if piece.label is not None]
        return padded if len(labels) < len(pieces) else replace(padded, labels=torch.tensor(labels))

    def tokens(self, samples: Sequence[Sample], max_length: int) -> Tokens:
        """Tokenize samples: `assemble` of `pieces`."""
        return self.assemble(self.pieces(samples, max_length))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token IDs, including special tokens."""
        return str(self.tokenizer.decode(list(ids)))

    @cached_property
    def _backend(self) -> Any:
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise CseError(
                f"the tokenizer of model {self.model!r} does not use the tokenizers library",
                "convert it to a tokenizer.json",
                code="vocabulary.slow_tokenizer",
            )
        backend.no_padding()
        backend.no_truncation()
        return backend

    @cached_property
    def _segments(self) -> bool:
        return "token_type_ids" in self.tokenizer.model_input_names

    @cached_property
    def _plain(self) -> _Frame:
        """Special tokens around one sentence."""
        return _frame(self._backend.encode("a", add_special_tokens=self.framed))

    @cached_property
    def _pair(self) -> _Frame:
        """Special tokens around a pair."""
        return _frame(self._backend.encode("a", "b", add_special_tokens=self.framed))

    @cached_property
    def _single(self) -> _Frame:
        """Special tokens and template around one sentence."""
        if self.template is None:
            return self._plain
        if MASK in self.template and self.mask is None:
            raise CseError(
                f"the tokenizer of {self.model!r} has no mask token for the template {self.template!r}",
                f"remove {MASK} from the template",
                code="vocabulary.no_mask",
            )
        text = self.template.replace(MASK, self.tokenizer.mask_token or "")
        parts = [part.removesuffix(" ") if self._space else part for part in text.split(GAP)[:-1]]
        encoded = [
            self._backend.encode(part, add_special_tokens=False).ids for part in (*parts, text.rpartition(GAP)[2])
        ]
        (segment,) = self._plain.sides
        before, *between = [tuple((piece, segment) for piece in ids) for ids in encoded]
        first, last = self._plain.before
        return _Frame((first + before, *between[:-1], between[-1] + last), (segment,) * self.gaps)

    def _marked(self, tokens: Tokens, rows: Sequence[Sequence[int]]) -> Tokens:
        """Return the tokens with `text` set, if there is a template."""
        if self.template is None:
            return tokens
        places = [self._single.places(len(row)) for row in rows]
        text = [[*row, *[0] * (tokens.length - len(row))] for row in places]
        return replace(tokens, text=torch.tensor(text, dtype=torch.long).reshape(tokens.ids.shape))

    def _padded(self, rows: Sequence[Sequence[int]], types: Sequence[Sequence[int]]) -> Tokens:
        length = max(map(len, rows), default=0)
        ids = [[*row, *[self.padding] * (length - len(row))] for row in rows]
        segments = [[*row, *[0] * (length - len(row))] for row in types]
        mask = [[1] * len(row) + [0] * (length - len(row)) for row in rows]
        shape = (len(rows), length)
        return Tokens(
            ids=torch.tensor(ids, dtype=torch.long).reshape(shape),
            mask=torch.tensor(mask, dtype=torch.long).reshape(shape),
            types=torch.tensor(segments, dtype=torch.long).reshape(shape),
            positions=torch.arange(length).repeat(len(rows), 1),
        )


class BareVocabulary(HubVocabulary):
    """Tokenizer without special tokens around a sentence."""

    framed = False
    form = "bare"

    def __init__(self, model: str) -> None:
        super().__init__(model)

    def with_template(self, template: str | None) -> HubVocabulary:
        """Return the tokenizer itself, because it does not support a template."""
        if template is not None:
            raise CseError(
                "a tokenizer without special tokens does not support a template",
                "remove template",
                code="vocabulary.unsupported_template",
            )
        return self


class JoinedVocabulary(HubVocabulary):
    """Tokenizer that reads template and sentence as one text.

    Sub-words can cross the borders of the sentence, so `Tokens.text` is not set.
    """

    form = "joined"

    def __init__(self, model: str, template: str, end_with: Ending | None = None) -> None:
        super().__init__(model, template, end_with)
        self._text = template

    def with_template(self, template: str | None) -> HubVocabulary:
        """Return the tokenizer with another template."""
        return HubVocabulary(self.model) if template is None else JoinedVocabulary(self.model, template, self.end_with)

    def ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Return token IDs of sentences, each truncated to what `max_length` allows without a template."""
        room = self.room(max_length)
        separate = self._backend.encode_batch(list(texts), add_special_tokens=False)
        kept = [
            text if len(encoding.ids) <= room else text[: encoding.offsets[room - 1][1]]
            for text, encoding in zip(texts, separate, strict=True)
        ]
        whole = self._text.replace(MASK, self.tokenizer.mask_token or MASK)
        return [row.ids for row in self._backend.encode_batch_fast([whole.replace(GAP, text) for text in kept])]

    def assemble(self, pieces: Sequence[Pieces]) -> Tokens:  # noqa: ARG002 - the hook's form
        """Raise `CseError`, because template and sentence have no separate sub-words."""
        raise CseError(
            "a template that is tokenized together with the sentence is only for evaluation",
            "remove template_joined to train or to augment sentences",
            code="vocabulary.joined_template",
        )

    def _marked(self, tokens: Tokens, rows: Sequence[Sequence[int]]) -> Tokens:  # noqa: ARG002 - the hook's form
        return tokens
