"""Recipes: TOML text → a validated, complete, hashable description of an experiment."""
