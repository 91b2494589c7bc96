"""Registered losses, one component per file."""
