"""The registered evaluators, one component a file; found by scan."""
