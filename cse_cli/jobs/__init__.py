"""Execution of runs: the commands `cse run` and `cse plan`, child processes, clusters and studies."""
