"""Tables of papers, results of reproductions, and the recipes that reproduce them. Does not import torch."""

from __future__ import annotations

from registry.papers.audits import Badge, DoubtfulPoint, badge_of, doubtful_points, method_keys
from registry.papers.results import (
    COMMUNITY,
    LISTS,
    FieldRow,
    MeasuredRow,
    Reproduction,
    distribution,
    field_rows,
    listed_rows,
    measured_rows,
    reported_averages,
    reported_difference,
    reproductions,
)
from registry.papers.tables import AVERAGE, Answer, Column, Figure, Flag, PaperTables, Quoted, Row, Table, load, names

__all__ = [
    "AVERAGE", "COMMUNITY", "LISTS", "Answer", "Badge", "Column", "DoubtfulPoint", "FieldRow", "Figure", "Flag",
    "MeasuredRow", "PaperTables", "Quoted", "Reproduction", "Row", "Table", "badge_of", "distribution",
    "doubtful_points", "field_rows", "listed_rows", "load", "measured_rows", "method_keys", "names",
    "reported_averages", "reported_difference", "reproductions",
]  # fmt: skip
