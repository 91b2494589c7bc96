"""`cse list`: what can be composed and run, and which recipes run on this machine."""
