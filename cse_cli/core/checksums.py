"""JSON documents with their own CRC-32, so that a reader detects a flipped bit."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, model_validator

KEY = "crc32"


def with_checksum(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with its checksum added."""
    return {**document, KEY: _checksum(document)}


def without_checksum(document: Any) -> Any:
    """Return a document with its checksum verified and removed. A document without a checksum is returned unchanged.

    Raises:
        ValueError: If the checksum is wrong.
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
    """Model whose JSON documents contain a checksum."""

    def to_json(self) -> str:
        """Return the JSON document with its checksum."""
        return json.dumps(with_checksum(self.model_dump(mode="json")), indent=1, ensure_ascii=False)

    @model_validator(mode="before")
    @classmethod
    def _check(cls, document: Any) -> Any:
        return without_checksum(document)
