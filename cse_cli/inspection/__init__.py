"""`cse data inspect`: what a training text contains, and what of it is alarming before a run."""
