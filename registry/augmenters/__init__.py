"""The registered augmenters, one component a file; found by scan."""
