"""PCL's four edits of a sentence: shuffle, reverse, delete and repeat."""

from __future__ import annotations

from random import Random
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from registry import AUGMENTERS, Tune
from registry.tokens import Pieces
from registry.types import Augmenter


@AUGMENTERS.register("edit_tokens")
class EditTokens(Augmenter):
    """Shuffle, reverse, delete or repeat sub-words of a sentence.

    "shuffle" and "reverse" change the order. "delete" draws a sub-word round(rate·n) of n times and removes its first
    occurrence. At least one stays. "repeat" inserts a random sub-word of the current sentence at a random place, as
    many times, up to `longest`. Special tokens do not move. The two segments of a pair are edited separately.

    Views of a step with the same `edit` and `number` get the same edited sentences, also with different encoders.

    Source: PCL (Wu et al. 2022, section 3.1) and its code (`train.py`). Both networks read the same edited sentences.

    Args:
        edit: Kind of edit.
        rate: Share of sub-words that is deleted or repeated.
        longest: Maximum number of sub-words after repetition, without special tokens. Default: no limit.
        number: Number that distinguishes views with the same edit but different random numbers.

    Example:
        [views.shuffled]
        encoder = "online"
        augment = [{ name = "edit_tokens", edit = "shuffle" }]
    """

    draws_alike: ClassVar[bool] = True

    def __init__(
        self,
        edit: Literal["shuffle", "reverse", "delete", "repeat"],
        rate: Annotated[float, Field(ge=0, le=1), Tune(0.05, 0.5)] = 0.2,
        longest: Annotated[int, Field(gt=0)] | None = None,
        number: Annotated[int, Field(ge=0)] = 0,
    ) -> None:
        self.edit, self.rate, self.longest, self.number = edit, rate, longest, number

    def on_pieces(self, pieces: list[Pieces], rng: Random) -> list[Pieces]:
        """Return the edited sentences."""
        own = Random(f"{rng.getrandbits(64)}:{self.edit}:{self.number}")
        return [row.changed(lambda ids: self._edited(ids, own)) for row in pieces]

    def _edited(self, ids: tuple[int, ...], rng: Random) -> tuple[int, ...]:
        edited, wanted = list(ids), round(self.rate * len(ids))
        if self.edit == "shuffle":
            rng.shuffle(edited)
        elif self.edit == "reverse":
            edited.reverse()
        elif self.edit == "delete":
            for _ in range(min(wanted, len(ids) - 1)):
                edited.remove(rng.choice(edited))
        else:
            room = wanted if self.longest is None else max(0, self.longest - len(ids))
            for _ in range(min(wanted, room)):
                repeated = rng.choice(edited)
                edited.insert(rng.randint(0, len(edited)), repeated)
        return tuple(edited)
