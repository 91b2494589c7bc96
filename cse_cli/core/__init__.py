"""Parts that all features share: console, statistics, devices, processes and paths."""
