"""The registered training heads, one component a file; found by scan."""
