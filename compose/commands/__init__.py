"""One module a group of commands; each command has its help, an example and its exit codes."""
