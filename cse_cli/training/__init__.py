"""Minimizing a method's objective: the loop, its checkpoints, its selection of a state, its watch on health."""
