"""Names of models and data sets, and the files behind them: the Hub, downloads, model directories, the catalog."""
