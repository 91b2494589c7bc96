"""Reproduction of a reported result: seeds, and the verdict on the reported number."""
