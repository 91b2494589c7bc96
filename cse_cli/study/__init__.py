"""Studies: a recipe in several settings, the paper's table they answer, and the runs that fill it."""
