"""`cse plan`: time, disk and memory of runs before they start."""
