"""The registered encoders, one component a file; found by scan."""
