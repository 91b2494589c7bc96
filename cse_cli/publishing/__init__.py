"""A trained model on the hub, with a card that says how it was made: `cse push`."""
