"""The registered losses, one component a file; found by scan."""
