"""Correlations over subsets, in the three ways the field aggregates them. Registers nothing."""

from __future__ import annotations

from collections.abc import Sequence

AGGREGATES = ("all", "mean", "wmean")


def aggregates(subsets: Sequence[str], gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """Return "spearman_all", "spearman_mean", …, "pearson_wmean" × 100 of pairs that belong to subsets."""
    members: dict[str, list[int]] = {}
    for index, subset in enumerate(subsets):
        members.setdefault(subset, []).append(index)
    parts = [correlations([gold[i] for i in part], [predicted[i] for i in part]) for part in members.values()]
    sizes = [len(part) for part in members.values()]
    values: dict[str, float] = {}
    for name, whole in correlations(gold, predicted).items():
        values[f"{name}_all"] = 100 * whole
        values[f"{name}_mean"] = 100 * sum(part[name] for part in parts) / len(parts)
        values[f"{name}_wmean"] = 100 * sum(n * part[name] for n, part in zip(sizes, parts, strict=True)) / sum(sizes)
    return values


def correlations(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, float]:
    """Return Spearman's ρ (ties share their mean rank) and Pearson's r; 0 where one side is constant."""
    from scipy.stats import pearsonr, spearmanr

    if min(gold) == max(gold) or min(predicted) == max(predicted):
        return {"spearman": 0.0, "pearson": 0.0}
    return {
        "spearman": float(spearmanr(gold, predicted).statistic),
        "pearson": float(pearsonr(gold, predicted).statistic),
    }
