"""Word lists shipped with cse, and readers of larger ones."""
