"""Schedules of the learning rate after the warm-up."""
