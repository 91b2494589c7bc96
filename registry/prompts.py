"""Prompts: text in front of sentences, by name, as in the settings of sentence-transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from registry.errors import CseError

PROMPTS = "config_sentence_transformers.json"
"""File with the prompts of a model."""

Side = Literal["query", "document"]
"""Role of sentences in retrieval."""

SIDES: Mapping[Side, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""Side → names of its prompt, the first of which is used."""


@dataclass(frozen=True)
class Prompts:
    """Prompts of a model.

    Args:
        named: Name → text.
        default: Name of the prompt for sentences without a side, or None.
        notes: Remarks about templates that cannot be prompts.
    """

    named: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None
    notes: Sequence[str] = ()

    @classmethod
    def read(cls, folder: Path) -> Prompts:
        """Return the prompts in the settings of a model, without empty ones."""
        file = folder / PROMPTS
        settings = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        named = {name: text for name, text in (settings.get("prompts") or {}).items() if text}
        return cls(named, settings.get("default_prompt_name"))

    def choose(self, side: Side | None = None, names: Sequence[str] = ()) -> tuple[str, str]:
        """Return name and text of the prompt for sentences. Both are empty if there is no prompt.

        Args:
            side: Side of the sentences, or None.
            names: Names that have priority, best first.
        """
        candidates = (*names, *((self.default,) if side is None else SIDES[side]))
        return next(((name, self.named[name]) for name in candidates if name in self.named), ("", ""))

    def replaced(self, given: Mapping[str, str]) -> Prompts:
        """Return the prompts with those of a user. If there are some, other names of the model are not used."""
        if not given:
            return self
        texts = {kind: self.named.get(text, text) for kind, text in given.items()}
        own = self._chosen()
        chosen = {**(dict.fromkeys(own, texts.pop("all")) if "all" in texts else own), **texts}
        return Prompts({name: text for name, text in chosen.items() if text}, "default")

    def after(self, text: str) -> Prompts:
        """Return the prompts with a text in front of each, which is also the prompt of sentences without one."""
        if not text:
            return self
        own = {**self.named, **self._chosen()}
        return replace(self, named={name: text + prompt for name, prompt in own.items()}, default="default")

    def write(self, folder: Path) -> None:
        """Write the settings of a model that sentence-transformers opens."""
        default = {} if self.default is None else {"default_prompt_name": self.default}
        settings = {"prompts": dict(self.named), **default, "similarity_fn_name": "cosine"}
        (folder / PROMPTS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

    def _chosen(self) -> dict[str, str]:
        return {"default": self.choose()[1], **{side: self.choose(side)[1] for side in SIDES}}


def parse_prompts(given: Sequence[str]) -> dict[str, str]:
    """Return "all", "query" or "document" → name or text of the prompt.

    Args:
        given: Names or texts of prompts for all sentences, or "query=…" and "document=…" for one side.
    """
    found: dict[str, str] = {}
    for each in given:
        side, equals, text = each.partition("=")
        kind, value = (side, text) if equals and side in SIDES else ("all", each)
        if kind in found:
            raise CseError(
                f"two prompts are for {kind} sentences: {found[kind]!r} and {value!r}",
                'use one prompt, or --prompt "query=…" --prompt "document=…"',
                code="prompts.two_prompts",
            )
        found[kind] = value
    return found
