"""Search for better values of a recipe's parameters. The only place that imports Optuna."""
