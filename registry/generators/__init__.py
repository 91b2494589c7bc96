"""The registered generators, one component a file; found by scan."""
