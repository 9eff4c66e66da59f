"""Ends a server when the one who started it is gone, however it went (SIGKILL included).

Run as a script: `leash.py PID SIGNAL`; standard input is a pipe that only the owner holds, so its end means
that the owner is gone. It must not end anything but the one server it was given.
"""

from __future__ import annotations

import signal
import sys

import psutil

GRACE_S = 8.0  # what a broker needs to close its logs; after that it is killed


def main(pid: int, stop_signal: int) -> None:
    """Wait for the end of standard input, then end the server if it still runs.

    The server is looked up at once, while it is certainly alive; psutil then refuses a pid given to another.
    """
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    try:
        server = psutil.Process(pid)
        sys.stdin.buffer.read()
        server.send_signal(stop_signal)
        try:
            server.wait(GRACE_S)
        except psutil.TimeoutExpired:
            server.kill()
    except psutil.NoSuchProcess:
        return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
