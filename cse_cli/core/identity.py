"""Identity of an experiment, and the plan of its seeds: what may be compared as seeds of one method."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SHORT = 8
"""Characters of a digest that tables and messages show."""


Part = Literal["settings", "text", "weights", "code", "scored"]


@dataclass(frozen=True)
class Difference:
    """One difference between two experiments.

    `name` is that of a component or model, such as "losses.info_nce". Empty for settings and text.
    """

    part: Part
    name: str
    first: str
    second: str

    def __str__(self) -> str:
        if self.part == "code":
            return f"code of {self.name}"
        named = {"weights": f"weights of {self.name}", "scored": f"scored data {self.name}"}.get(self.part, self.part)
        first, second = (digest.removeprefix("rows:")[:SHORT] or "none" for digest in (self.first, self.second))
        return f"{named} {first} / {second}"


class Identity(BaseModel):
    """Everything that makes an experiment: two runs are seeds of the same one exactly if all five parts are equal.

    Args:
        settings: `Recipe.hash()`: the resolved recipe without seed and prose.
        text: SHA-256 of the training text. Empty without training.
        weights: Place in the recipe, such as "encoders.bert" → SHA-256 of the weights it starts from, for every model
            that the recipe names. "encoders.bert.config" is its configuration and vocabulary. Files and data sets that
            parts read, such as "encoders.words.file", have their content here, too.
        code: Component, such as "losses.info_nce" → `registry.machinery.code.code_version`: a number, or for a plug-in
            the SHA-256 of its files.
        scored: Data of the evaluators, such as "stsb/dev" → digest of its content. Empty in records of version 0.1.
    """

    model_config = ConfigDict(frozen=True)

    settings: str
    text: str = ""
    weights: dict[str, str] = Field(default_factory=dict)
    code: dict[str, str] = Field(default_factory=dict)
    scored: dict[str, str] = Field(default_factory=dict)

    @cached_property
    def experiment(self) -> str:
        """ID of the experiment: 16 hexadecimal digits of a digest of all parts."""
        parts = self.model_dump(exclude=None if self.scored else {"scored"})  # the ID of 0.1
        document = json.dumps(parts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(document.encode()).hexdigest()[:16]

    def differences(self, other: Identity) -> list[Difference]:
        """Return the differences. The list is empty if and only if both are the same experiment."""
        parts: tuple[Part, ...] = ("settings", "text", "weights", "code", "scored")
        found = []
        for part in parts:
            one, two = getattr(self, part), getattr(other, part)
            first, second = (each if isinstance(each, dict) else {"": each} for each in (one, two))
            for name in sorted({*first, *second}):
                found.append(Difference(part, name, first.get(name, ""), second.get(name, "")))
        return [each for each in found if each.first != each.second]


Mode = Literal["planned", "incomplete", "assumed", "anytime"]
"""State of the number of seeds of a test.

"planned": fixed by a recorded plan, and all its seeds are finished. "incomplete": fixed by a recorded plan, and seeds
are missing, so that there is no test yet. "assumed": fixed by a plan that was given at analysis time and is not
recorded. "anytime": not fixed, so that the test must hold at any number.
"""


class Plan(BaseModel):
    """Seeds in ascending order that were planned together, before the first of them started.

    A run that started before the plan was made does not belong to it.
    """

    model_config = ConfigDict(frozen=True)

    seeds: tuple[int, ...]
    made: datetime
