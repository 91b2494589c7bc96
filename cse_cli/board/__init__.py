"""The leaderboard's tables: pure data, no store and no rendering."""
