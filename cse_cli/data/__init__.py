"""From a recipe's `[data]` to batches of tokens: read, tokenise once, draw by seed and step."""

from __future__ import annotations

from cse_cli.data.batches import Batches, ViewPlan
from cse_cli.data.text import Text, open_text

__all__ = ["Batches", "Text", "ViewPlan", "open_text"]
