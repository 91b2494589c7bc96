"""Corrected p-values if one output tests several hypotheses: metrics, comparisons, or the cells of a row.

The level of 5 % is that of the whole output: of 100 outputs about equal methods, at most five show any difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cse_cli.core.stats import LEVEL


@dataclass(frozen=True)
class Corrected:
    """Result of one hypothesis among several.

    Args:
        p: Adjusted p-value. It is below `LEVEL` exactly if the hypothesis is rejected.
        level: Level at which the hypothesis was rejected, or at which it is tested when nothing more can be rejected.
            For a hypothesis that waits for the first of its family, the level that it would get first.
        tested: Whether the hypothesis is tested. If it is, the unadjusted p-value is below `level` exactly if the
            hypothesis is rejected, so an interval at this level excludes 0 exactly then.
    """

    p: float
    level: float
    tested: bool


def judge_together(families: Sequence[Sequence[float | None]]) -> list[list[Corrected | None]]:
    """Return p-values and levels that are corrected for all hypotheses of all families. None has no effect.

    Each family has an equal share of the level. Its first hypothesis is tested first. If it is rejected, the others are
    tested by Holm's procedure. A family in which all are rejected leaves its share to the others. The probability of
    any false rejection is at most the level, for any set of true hypotheses and however they depend on each
    other. With families of one hypothesis this is Holm's procedure, and so is a family whose first has no p-value.

    Source: Bretz, Maurer, Brannath and Posch (2009), Statistics in Medicine 28, Algorithm 1 and its adjusted p-values;
    Holm (1979), Scandinavian Journal of Statistics 6.

    Args:
        families: p-values of the metrics of each comparison, or of the cells of a row, the primary one first.
    """
    corrected: list[list[Corrected | None]] = [[None] * len(family) for family in families]
    left = [{place: p for place, p in enumerate(family) if p is not None} for family in families]
    final: dict[tuple[int, int], tuple[float, bool]] = {}
    reached = 0.0
    while open_ := [number for number, family in enumerate(left) if family]:
        levels = {(number, place): one for number in open_ for place, one in _levels(left[number], len(open_)).items()}
        tested = [key for key, (_, tests) in levels.items() if tests]
        smallest, number, place = min((left[n][i] * LEVEL / levels[n, i][0], n, i) for n, i in tested)
        reached = max(reached, min(1.0, smallest))
        if reached >= LEVEL and not final:  # nothing more is rejected
            final = levels
        level, is_tested = final.get((number, place), levels[number, place])
        corrected[number][place] = Corrected(reached, level, is_tested)
        del left[number][place]
    return corrected


def _levels(family: Mapping[int, float], families: int) -> dict[int, tuple[float, bool]]:
    """Return place → level, and whether it is tested now, of the hypotheses of one family that are not rejected yet."""
    share = LEVEL / families
    if 0 not in family:
        return dict.fromkeys(family, (share / len(family), True))
    others = dict.fromkeys((place for place in family if place != 0), (share / max(1, len(family) - 1), False))
    return {0: (share, True), **others}


def correct_together(families: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
    """Return the adjusted p-values of `judge_together`."""
    return [[None if one is None else one.p for one in family] for family in judge_together(families)]


def correct_named(values: Mapping[str, float | None], primary: str) -> dict[str, float | None]:
    """Return the p-values of one family by name, corrected together. The primary one may be at any place."""
    others = [name for name in values if name != primary]
    ((first, *rest),) = correct_together([[values.get(primary), *(values[name] for name in others)]])
    corrected = {primary: first, **dict(zip(others, rest, strict=True))}
    return {name: corrected[name] for name in values}
