"""Registered training heads, one component per file."""
