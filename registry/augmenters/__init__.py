"""Augmenters, one component in each file. Found by a scan of this package."""
