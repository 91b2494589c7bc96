"""`cse data mine`: hard negatives for pairs."""
