"""The command line of cse: doing what recipes describe."""

__version__ = "0.1.0"
