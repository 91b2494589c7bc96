"""Steps of training: ours, a plain loop's and sentence-transformers', of the same model, text and batch."""
