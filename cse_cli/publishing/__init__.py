"""Upload of a trained model with a model card: `cse push`."""
