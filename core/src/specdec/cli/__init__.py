"""The command line: `specdec COMMAND`. Commands are plugins, loaded when they run."""
