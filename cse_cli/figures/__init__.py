"""Figures of a finished run. The only place that imports matplotlib, so import this inside functions."""

from cse_cli.figures.drawing import draw

__all__ = ["draw"]
