"""Encode sentences, score encoders on tasks, and the command about it: `cse evaluate`."""
