"""Runs on the nodes of a Ray cluster: the executor of `--cluster` addresses without another scheme."""
