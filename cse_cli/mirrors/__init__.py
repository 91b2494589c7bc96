"""Mirrors of records: trackers such as MLflow that show the contents of `runs/<id>/`."""
