"""p-values where more than one thing is tested at once: several metrics, several comparisons, the cells of a row.

The level of 5 % is that of all of them together: of 100 outputs about equal methods at most five show any difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cse_cli.core.stats import Score


def correct_together(families: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
    """Return p-values corrected for all hypotheses of all families; None stays None and counts for nothing.

    Each family has an equal share of the level. In it the first hypothesis is tested by itself; only where that is
    rejected are the others, by Holm's procedure. A family in which all are rejected leaves its share to the others.
    The chance of any false rejection is at most the level, whichever of the hypotheses are true and however they
    depend on each other. With families of one hypothesis this is Holm's procedure; a family whose first has no p-value
    is tested by Holm's.

    Source: Bretz, Maurer, Brannath and Posch (2009), Statistics in Medicine 28, Algorithm 1 and its adjusted p-values;
    Holm (1979), Scandinavian Journal of Statistics 6.

    Args:
        families: The metrics of a comparison, or the cells of a row, the primary one first.
    """
    corrected: list[list[float | None]] = [[None] * len(family) for family in families]
    left = [{place: p for place, p in enumerate(family) if p is not None} for family in families]
    reached = 0.0
    while open_ := [number for number, family in enumerate(left) if family]:
        weighted: list[tuple[float, int, int]] = []
        for number in open_:
            family = left[number]
            tested = {0: family[0]} if 0 in family else family
            weighted += [(p * len(open_) * len(tested), number, place) for place, p in tested.items()]
        smallest, number, place = min(weighted)
        reached = max(reached, min(1.0, smallest))
        corrected[number][place] = reached
        del left[number][place]
    return corrected


def correct_named(values: Mapping[str, float | None], primary: str) -> dict[str, float | None]:
    """Return the p-values of one family by name, corrected together; its primary one needs no place in the order."""
    others = [name for name in values if name != primary]
    ((first, *rest),) = correct_together([[values.get(primary), *(values[name] for name in others)]])
    corrected = {primary: first, **dict(zip(others, rest, strict=True))}
    return {name: corrected[name] for name in values}


def correct_row(scores: Mapping[str, Score], primary: str) -> dict[str, Score]:
    """Return the cells of one row with p-values corrected together, and with the significance that is left.

    Args:
        scores: Column → cell.
        primary: The column that the row is judged by.
    """
    corrected = correct_named({name: score.p for name, score in scores.items()}, primary)
    return {name: score.with_p(corrected[name]) for name, score in scores.items()}
