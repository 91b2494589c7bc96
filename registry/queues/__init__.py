"""The registered queues, one component a file; found by scan."""
