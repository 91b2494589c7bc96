"""PCL's four edits of a sentence: its tokens shuffled, reversed, some of them deleted or repeated."""

from __future__ import annotations

from random import Random
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from registry import AUGMENTERS, Tune
from registry.tokens import Pieces
from registry.types import Augmenter


@AUGMENTERS.register("edit_tokens")
class EditTokens(Augmenter):
    """Change the sub-words of a sentence by one edit; special tokens keep their places.

    "shuffle": any order, all equally likely; "reverse": last first; "delete": round(rate·n) of n times a sub-word is
    drawn and its first occurrence goes, but one always stays; "repeat": as often a sub-word of those there are by then
    is inserted anywhere, up to `longest`. Each side of a pair is edited by itself.

    Views of a step with the same `edit` and `number`, of one encoder or of two, are edited alike.

    Source: PCL (Wu et al. 2022, section 3.1) and its code (`train.py`). Both networks read the same edited sentences.

    Args:
        edit: Which edit.
        rate: Share of the sub-words deleted or repeated.
        longest: Sub-words, specials not counted, up to which repetition goes; without limit if left out.
        number: Tells views with the same edit apart, that are to be edited differently.
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
        """Return every sentence edited."""
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
