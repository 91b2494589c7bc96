"""Figures of a study: our numbers in the axes of the paper's. Imports matplotlib: import it inside functions."""

from cse_cli.figures.study.drawing import draw_study

__all__ = ["draw_study"]
