"""Jobs, the processes that do them, studies, and the command about them: `cse run`."""
