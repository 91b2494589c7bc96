"""Doing a study: its runs one after the other here, or shared among processes."""
