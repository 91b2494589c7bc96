"""Texts shipped with cse, and how they were chosen."""
