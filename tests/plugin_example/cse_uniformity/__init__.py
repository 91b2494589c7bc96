"""An example plug-in of cse."""
