"""JSON documents that hold their own CRC-32: a digit that a flipped bit has changed is found when they are read."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, model_validator

KEY = "crc32"


def with_checksum(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as it is to be written."""
    return {**document, KEY: _checksum(document)}


def without_checksum(document: Any) -> Any:
    """Return a document that was read; one of an earlier version, without a checksum, as it is.

    Raises:
        ValueError: The checksum is that of another document.
    """
    if not isinstance(document, Mapping) or KEY not in document:
        return document
    content = {key: value for key, value in document.items() if key != KEY}
    if document[KEY] != _checksum(content):
        raise ValueError("the file is damaged: its checksum is wrong")
    return content


def _checksum(document: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(document, sort_keys=True).encode()):08x}"


class Checked(BaseModel):
    """A model whose documents hold their checksum."""

    def to_json(self) -> str:
        """Return the document that is written."""
        return json.dumps(with_checksum(self.model_dump(mode="json")), indent=1, ensure_ascii=False)

    @model_validator(mode="before")
    @classmethod
    def _check(cls, document: Any) -> Any:
        return without_checksum(document)
