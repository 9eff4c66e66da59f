"""The entry point `backstop`: light, so that Ctrl-C means the same before the commands are loaded.

It must not import a command at module level: that takes two seconds, in which people change their mind.
"""

from __future__ import annotations

import sys

STOPPED = 130  # what shells give for SIGINT; the other exit codes are in `compose.output`


def main() -> None:
    """Load the commands and run the one asked for."""
    try:
        from compose.app import run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(STOPPED)


if __name__ == "__main__":
    main()
