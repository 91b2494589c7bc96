"""Records of runs, and the commands that read them: `cse runs`."""
