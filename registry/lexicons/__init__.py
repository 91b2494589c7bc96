"""Word lists in the package, and readers of WordNet."""
