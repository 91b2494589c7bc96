"""Records of runs: one directory per run is all that other commands read, and `cse runs` manages them."""
