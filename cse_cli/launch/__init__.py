"""Several processes: one run on several devices at once, or several runs on a device each."""
