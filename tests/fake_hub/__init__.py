"""A stand-in for the model hub: the answers of the real one, on the loopback, and the faults of a network."""
