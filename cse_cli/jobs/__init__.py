"""Execution of runs: the command `cse run`, executors, child processes and studies."""
