"""From names of data sets and files to batches of tokens, and the commands about them: `cse data`."""
