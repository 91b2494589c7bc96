"""Long texts of a data set: the others become empty cells, whose rows are skipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field

from registry import GENERATORS
from registry.resources.models import load_tokenizer, locate, settings_sha256
from registry.types import ColumnGenerator, ModelName


@GENERATORS.register("long_texts")
class LongTexts(ColumnGenerator):
    """Keep the texts with more than n tokens, and make an empty cell of each other text.

    Rows with an empty cell are skipped, so a view of this column trains on long texts only. White space is reduced to
    single spaces. Special tokens do not count.

    Source: DeCLUTR (Giorgi et al. 2021, section 4.1; JohnGiorgi/DeCLUTR @1ad868d, scripts/preprocess_openwebtext.py
    lines 79 to 99).

    Args:
        model: Model whose tokenizer counts.
        tokens: Number n of tokens that a text must exceed.
        lower: Whether the texts are converted to lower case.
        column: Column that is read.

    Example:
        [data.columns.document]
        name = "long_texts"
        model = "roberta-base"
        tokens = 2048
    """

    def __init__(
        self, model: ModelName, tokens: Annotated[int, Field(ge=1)] = 2048, lower: bool = False, column: str = "text"
    ) -> None:
        self.model, self.tokens, self.lower, self.column = model, tokens, lower, column
        self._tokenizer = load_tokenizer(model)

    @property
    def action(self) -> str:
        """Description for the progress line."""
        return f"selecting long cells of {self.column}"

    def identity(self) -> str:
        """Return the digest of the tokenizer, and the parameters."""
        return repr((settings_sha256(locate(self.model)), self.tokens, self.lower))

    def make(self, cells: Sequence[str], count: Callable[[int], None] | None = None) -> list[str]:
        """Return each text, or "" if it is too short. `count` gets 1 for each text."""
        made = []
        for cell in cells:
            text = " ".join((cell.lower() if self.lower else cell).split())
            enough = len(text.encode("utf-8", "surrogatepass")) > self.tokens  # a token has at least one byte
            long = enough and len(self._tokenizer(text, add_special_tokens=False)["input_ids"]) > self.tokens
            made.append(text if long else "")
            if count is not None:
                count(1)
        return made
