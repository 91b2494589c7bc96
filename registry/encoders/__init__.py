"""Registered encoders, one component in each file. The registry finds them by a scan."""
