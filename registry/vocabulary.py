"""A hub model's tokenizer as a `Vocabulary`: text → ids → padded tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from registry.errors import CseError
from registry.models import load_tokenizer
from registry.tokens import Pieces, Sample, Tokens


@dataclass(frozen=True)
class _Frame:
    """Special tokens around the sides of a text, and the segment of every place.

    Args:
        before: Before each side, and after the last: ids and segments.
        sides: Segment of each side.
    """

    before: tuple[tuple[tuple[int, int], ...], ...]
    sides: tuple[int, ...]

    def around(self, sides: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
        """Return ids and segments of a whole row."""
        row: list[tuple[int, int]] = [*self.before[0]]
        for side, segment, after in zip(sides, self.sides, self.before[1:], strict=True):
            row += [(piece, segment) for piece in side]
            row += after
        return [piece for piece, _ in row], [segment for _, segment in row]

    @property
    def length(self) -> int:
        """Tokens of a row whose sides are empty."""
        return sum(map(len, self.before))

    def places(self, length: int) -> list[int]:
        """Return, for each token of a row of `length` whose sides are equally long, 1 where it is of a side."""
        side = [1] * ((length - self.length) // len(self.sides))
        first, *others = ([0] * len(part) for part in self.before)
        return first + [place for other in others for place in (*side, *other)]


def _frame(encoding: Any) -> _Frame:
    """Read a frame off an encoding made by the tokenizer itself."""
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


def _cut_together(
    first: tuple[int, ...], second: tuple[int, ...], room: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return both sides cut until they fit `room` together, the longer one first."""
    extra = len(first) + len(second) - room
    while extra > 0:
        if len(first) > len(second):
            first = first[:-1]
        else:
            second = second[:-1]
        extra -= 1
    return first, second


GAP, MASK = "{text}", "{mask}"
"""What stands in a template for the sentence and for the tokenizer's own mask token."""


class HubVocabulary:
    """The tokenizer of a model, loaded at first use; pickles as its name.

    Args:
        model: Name or directory, as `registry.models.locate` takes it.
        template: Text around every single sentence, as `Template` describes it; None is none.

    Raises:
        CseError: The template has no gap for the sentence, or gaps of two kinds.
    """

    def __init__(self, model: str, template: str | None = None) -> None:
        self.model = model
        self.template = template
        parts = [] if template is None else template.split(GAP)
        spaced = {part.endswith(" ") for part in parts[:-1]}
        if template is not None and len(spaced) != 1:
            wrong = "has a space before one gap and none before another" if spaced else "has no gap for the sentence"
            raise CseError(f"the template {template!r} {wrong}", f"write {GAP} where the sentence stands")
        self._space = " " if spaced == {True} else ""
        """Belongs to the sentence: byte-level tokenizers know a word by the space before it."""

    def __reduce__(self) -> tuple[type[HubVocabulary], tuple[str, str | None]]:
        return type(self), (self.model, self.template)

    def with_template(self, template: str | None) -> HubVocabulary:
        """Return the same tokenizer with another template."""
        if MASK in (self.template or "") and MASK not in (template or ""):
            raise CseError(f"the template {template!r} has no {MASK}, whose state the encoder may read", f"add {MASK}")
        return self if template == self.template else HubVocabulary(self.model, template)

    @cached_property
    def tokenizer(self) -> Any:
        """The transformers tokenizer."""
        return load_tokenizer(self.model)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the tokenizer's serialised form."""
        settings = f"{self._backend.to_str()}|{self._pad}|{self._segments}"
        settings += "" if self.template is None else f"|{self.template}"
        return hashlib.sha256(settings.encode()).hexdigest()[:16]

    def ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Return token ids of single sentences, specials and template included; `max_length` counts no template."""
        if self.template is not None:
            pieces = self.pieces([Sample(text) for text in texts], max_length)
            return [self._single.around([piece.first] * self.gaps)[0] for piece in pieces]
        self._backend.enable_truncation(max_length)
        try:
            return [encoding.ids for encoding in self._backend.encode_batch_fast(list(texts))]
        finally:
            self._backend.no_truncation()

    def pad(self, rows: Sequence[Sequence[int]]) -> Tokens:
        """Return single sentences padded to the longest."""
        return self._marked(self._padded(rows, [[0] * len(row) for row in rows]), rows)

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self.tokenizer)

    @cached_property
    def specials(self) -> frozenset[int]:
        """Ids that stand for no text."""
        return frozenset(self.tokenizer.all_special_ids)

    @property
    def mask(self) -> int | None:
        """The id of [MASK], where there is one."""
        found = self.tokenizer.mask_token_id
        return None if found is None else int(found)

    def id_of(self, token: str) -> int:
        """Return the id of a token of the vocabulary.

        Raises:
            CseError: There is no such token.
        """
        found = self.tokenizer.convert_tokens_to_ids(token)
        if found is None or (found == self.tokenizer.unk_token_id and token != self.tokenizer.unk_token):
            raise CseError(
                f"the tokenizer of {self.model!r} has no token {token!r}",
                "name one that it has, such as its unknown token",
            )
        return int(found)

    @property
    def padding(self) -> int:
        """The id of [PAD], or 0."""
        return self._pad

    @property
    def gaps(self) -> int:
        """How often the sentence stands in a row."""
        return 1 if self.template is None else self.template.count(GAP)

    def longest(self, tokens: int) -> int:
        """Return the largest `max_length` with which no row is longer than `tokens`."""
        return (tokens - self._single.length) // self.gaps + self._plain.length

    def room(self, max_length: int) -> int:
        """Return how many sub-words of a sentence `max_length` leaves."""
        return max_length - self._plain.length

    def pieces(self, samples: Sequence[Sample], max_length: int) -> list[Pieces]:
        """Return samples as sub-words: each side of a pair fits `max_length` with the specials of a single sentence.

        A pair of one sentence with itself so holds exactly the single sentence's sub-words, twice.
        """
        sides = (side for sample in samples for side in (sample.text, sample.pair) if side is not None)
        texts = [self._space + side for side in sides] if self._space else list(sides)
        encoded = iter(self._backend.encode_batch_fast(texts, add_special_tokens=False))
        room = self.room(max_length)
        found = []
        for sample in samples:
            first = tuple(next(encoded).ids)
            second = None if sample.pair is None else tuple(next(encoded).ids)
            if sample.joint and second is not None:
                first, second = _cut_together(
                    first, second, 2 * max_length - self._backend.num_special_tokens_to_add(is_pair=True)
                )
            else:
                first, second = first[:room], None if second is None else second[:room]
            found.append(Pieces(first, second, sample.label))
        return found

    def assemble(self, pieces: Sequence[Pieces]) -> Tokens:
        """Return padded tokens with the model's own special tokens and segments around sentences and pairs.

        Raises:
            CseError: A pair is to be put into a template.
        """
        rows, types = [], []
        for piece in pieces:
            if piece.second is None:
                ids, segments = self._single.around([piece.first] * self.gaps)
            elif self.template is None:
                ids, segments = self._pair.around((piece.first, piece.second))
            else:
                raise CseError("a template takes one sentence, and an augmenter made a pair", "remove one of the two")
            rows.append(ids)
            types.append(segments if self._segments else [0] * len(ids))
        padded = self._marked(self._padded(rows, types), rows)
        labels = [piece.label for piece in pieces if piece.label is not None]
        return padded if len(labels) < len(pieces) else replace(padded, labels=torch.tensor(labels))

    def tokens(self, samples: Sequence[Sample], max_length: int) -> Tokens:
        """Tokenise samples: `assemble` of `pieces`."""
        return self.assemble(self.pieces(samples, max_length))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text the ids stand for, specials included, for people to check."""
        return str(self.tokenizer.decode(list(ids)))

    @cached_property
    def _backend(self) -> Any:
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise CseError(
                f"the tokenizer of model {self.model!r} has no tokenizers backend", "convert it to a tokenizer.json"
            )
        backend.no_padding()
        backend.no_truncation()
        return backend

    @cached_property
    def _pad(self) -> int:
        pad = self.tokenizer.pad_token_id
        return 0 if pad is None else int(pad)

    @cached_property
    def _segments(self) -> bool:
        return "token_type_ids" in self.tokenizer.model_input_names

    @cached_property
    def _plain(self) -> _Frame:
        """The model's own special tokens around one sentence."""
        return _frame(self._backend.encode("a"))

    @cached_property
    def _pair(self) -> _Frame:
        """Those around a pair."""
        return _frame(self._backend.encode("a", "b"))

    @cached_property
    def _single(self) -> _Frame:
        """What stands around one sentence: special tokens and template."""
        if self.template is None:
            return self._plain
        if MASK in self.template and self.mask is None:
            raise CseError(f"the tokenizer of {self.model!r} has no mask token for the template {self.template!r}")
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
        """Return tokens that say where in the template the sentence stands, if there is one."""
        if self.template is None:
            return tokens
        places = [self._single.places(len(row)) for row in rows]
        text = [[*row, *[0] * (tokens.length - len(row))] for row in places]
        return replace(tokens, text=torch.tensor(text, dtype=torch.long).reshape(tokens.ids.shape))

    def _padded(self, rows: Sequence[Sequence[int]], types: Sequence[Sequence[int]]) -> Tokens:
        length = max(map(len, rows), default=0)
        ids = [[*row, *[self._pad] * (length - len(row))] for row in rows]
        segments = [[*row, *[0] * (length - len(row))] for row in types]
        mask = [[1] * len(row) + [0] * (length - len(row)) for row in rows]
        shape = (len(rows), length)
        return Tokens(
            ids=torch.tensor(ids, dtype=torch.long).reshape(shape),
            mask=torch.tensor(mask, dtype=torch.long).reshape(shape),
            types=torch.tensor(segments, dtype=torch.long).reshape(shape),
            positions=torch.arange(length).repeat(len(rows), 1),
        )


class JoinedVocabulary(HubVocabulary):
    """A tokenizer that reads template and sentence as one text, of single sentences in one template.

    Sub-words may then reach over the edges of the sentence, so that where it stands is not marked.

    Args:
        model: Name or directory, as `registry.models.locate` takes it.
        template: As for `HubVocabulary`.
    """

    def __init__(self, model: str, template: str) -> None:
        super().__init__(model, template)
        self._text = template

    def with_template(self, template: str | None) -> HubVocabulary:
        """Return the same tokenizer with another template."""
        return HubVocabulary(self.model) if template is None else JoinedVocabulary(self.model, template)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the tokenizer's serialised form."""
        return hashlib.sha256(f"{HubVocabulary(self.model, self.template).fingerprint}|joined".encode()).hexdigest()[
            :16
        ]

    def ids(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Return token ids of single sentences; each is cut to the sub-words that `max_length` leaves it by itself."""
        room = self.room(max_length)
        alone = self._backend.encode_batch(list(texts), add_special_tokens=False)
        kept = [
            text if len(encoding.ids) <= room else text[: encoding.offsets[room - 1][1]]
            for text, encoding in zip(texts, alone, strict=True)
        ]
        whole = self._text.replace(MASK, self.tokenizer.mask_token or MASK)
        return [row.ids for row in self._backend.encode_batch_fast([whole.replace(GAP, text) for text in kept])]

    def assemble(self, pieces: Sequence[Pieces]) -> Tokens:  # noqa: ARG002 - the hook's form
        """Refuse: there are no sub-words of the sentence alone.

        Raises:
            CseError: Always.
        """
        raise CseError(
            "a template that is tokenised together with the sentence is for evaluation alone",
            "leave template_joined out to train or to change sentences",
        )

    def _marked(self, tokens: Tokens, rows: Sequence[Sequence[int]]) -> Tokens:  # noqa: ARG002 - the hook's form
        return tokens
