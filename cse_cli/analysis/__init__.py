"""What finished runs and the papers say: `cse leaderboard`, `cse compare`, `cse report`, and the figures."""
