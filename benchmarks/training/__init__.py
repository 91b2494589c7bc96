"""Training steps of `cse`, a plain loop and sentence-transformers with the same model, text and batch."""
