"""Results of finished runs and papers: `cse leaderboard`, `cse compare`, `cse report`, and the figures."""
