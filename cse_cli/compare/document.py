"""What `cse compare` says, as data."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from cse_cli.compare.pairs import OnPairs
from cse_cli.compare.recipes import Change
from cse_cli.compare.seeds import Paired
from cse_cli.compare.verdict import Finding


class SideDocument(BaseModel):
    """One of those compared, as `Side`."""

    model_config = ConfigDict(frozen=True)

    letter: str
    name: str
    recipe: str
    recipe_hash: str
    model: str
    seeds: tuple[int, ...]
    run_ids: tuple[str | None, ...]
    notes: tuple[str, ...]


class MetricDocument(BaseModel):
    """One metric of one comparison.

    Args:
        more_is_better: Whether higher is known to be better; where it is not, nothing is called better.
        pairs_note: Why the sentence pairs are not compared, or not of every seed.
        finding: See `verdict.Verdict`.
    """

    model_config = ConfigDict(frozen=True)

    metric: str
    more_is_better: bool
    over_seeds: Paired
    on_pairs: OnPairs | None = None
    pairs_note: str | None = None
    finding: Finding = "undecided"
    verdict: str = ""


class Comparison(BaseModel):
    """Two of those compared; differences are the second's less the first's.

    Args:
        left_out: Letter → seeds that the other does not have.
    """

    model_config = ConfigDict(frozen=True)

    first: str
    second: str
    seeds: tuple[int, ...]
    left_out: dict[str, tuple[int, ...]]
    metrics: tuple[MetricDocument, ...]


class Document(BaseModel):
    """All that `cse compare` says.

    Args:
        changes: Keys of the resolved recipes that are not the same in all; None where a recipe cannot be read.
        circumstances: What else was not the same.
        corrected_for: Comparisons made together; Holm's correction is for those of them that have a p.
    """

    model_config = ConfigDict(frozen=True)

    schema_version: Literal[1] = 1
    sides: tuple[SideDocument, ...]
    changes: tuple[Change, ...] | None
    circumstances: tuple[Change, ...]
    resamples: int
    corrected_for: int
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...] = ()
