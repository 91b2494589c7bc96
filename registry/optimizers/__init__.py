"""Optimizers, which update the weights in a step."""
