"""Two methods side by side: what differs in their recipes, over seeds, and on the same sentence pairs."""
