"""What several tests share: small models, recorded runs, other processes, the command line."""
