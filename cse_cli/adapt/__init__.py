"""Races of recipes on a corpus without labels, and verdicts about them: `cse adapt`."""
