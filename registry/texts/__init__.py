"""Texts in the package, and the script that selects them."""
