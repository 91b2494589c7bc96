"""What a person or a program reads on the terminal: one file a command's answer, as text and as JSON."""
