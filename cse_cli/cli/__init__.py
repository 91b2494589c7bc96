"""The commands: options, one call, printing. Nothing imports them but `cse_cli.app`."""
