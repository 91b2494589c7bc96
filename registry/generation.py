"""Base classes of generators, which make training text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from registry.component import Component


class Generator(Component):
    """Base class of generators, which make training text: the rows of a data set, or a column of one."""


class RowGenerator(Generator):
    """Base class of generators of the rows of a data set. The same parameters give the same rows.

    Examples:
        >>> class Counting(RowGenerator):
        ...     '''Sentences with a number.'''
        ...
        ...     def rows(self, split):
        ...         return ({"text": f"Number {number}."} for number in range(3))
        >>> next(Counting().rows("train"))
        {'text': 'Number 0.'}
    """

    def rows(self, split: str) -> Iterator[dict[str, str]]:
        """Yield rows as column → cell: `text` for training, or `subset`, `score`, `sentence1` and `sentence2`."""
        raise NotImplementedError


class ColumnGenerator(Generator):
    """Base class of generators of a column from another one. Equal cells get equal results, in any order.

    Examples:
        >>> class Backwards(ColumnGenerator):
        ...     '''The words of each sentence in reverse order.'''
        ...
        ...     def make(self, cells, count=None):
        ...         return [" ".join(reversed(cell.split())) for cell in cells]
        >>> Backwards().make(["a red house"])
        ['house red a']
    """

    column: str = "text"
    """Column that is read."""
    warning: str = ""
    """Warning for the user about the parameters, or ""."""

    @property
    def action(self) -> str:
        """Description for the progress line, such as "translating text to de"."""
        return f"reading {self.column}"

    def identity(self) -> str | None:
        """Return everything that decides a cell apart from the code, or None if that is only the parameters."""
        return None

    def use(self, device: torch.device, dtype: torch.dtype, batch_tokens: int | None = None) -> None:
        """Move to a device.

        Args:
            device: Device.
            dtype: Data type of weights and activations.
            batch_tokens: Maximum number of tokens in a batch. None chooses a size for the device.
        """

    def make(self, cells: Sequence[str], count: Callable[[int], None] | None = None) -> list[str]:
        """Return one cell for each cell, on one line. `count` gets the number of cells finished since then."""
        raise NotImplementedError
