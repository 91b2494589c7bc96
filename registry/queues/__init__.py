"""Registered queues, one component per file."""
