"""Encoding of sentences, scores of encoders on tasks, and `cse evaluate`."""
