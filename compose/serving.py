"""HTTP on loopback: the port, taken before anything starts, and a server in a thread.

It must not know what is served.
"""

from __future__ import annotations

import socket
import threading
from types import TracebackType

import uvicorn

from schemas.errors import SettingsRefused

READY_S = 10.0
_POLL_S = 0.02


def listening(port: int, *, host: str = "127.0.0.1", named: str = "--port") -> socket.socket:
    """The port, taken before anything is started; 0 takes a free one. Raises `SettingsRefused`."""
    # With the protocol said, asyncio switches Nagle off: else the second packet of an answer waits 40 ms.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # else a second process could bind as well, and fail only later
    except OSError as exc:
        listener.close()
        refused = SettingsRefused([f"port: {port} cannot be used ({type(exc).__name__}: {exc.strerror})"])
        refused.remedy = f"End what listens there, or choose another one with {named}."
        raise refused from None
    return listener


class Server:
    """A server in a thread: `with Server(configuration) as url:`. With `listener`, on that socket."""

    def __init__(self, configuration: uvicorn.Config, listener: socket.socket | None = None) -> None:
        self._server = uvicorn.Server(configuration)
        sockets = None if listener is None else [listener]
        self._thread = threading.Thread(target=lambda: self._server.run(sockets), daemon=True)

    def __enter__(self) -> str:
        """Raises `TimeoutError` when nothing listens in time, such as on a port that is taken."""
        self._thread.start()
        waited = threading.Event()
        for _ in range(int(READY_S / _POLL_S)):
            if self._server.started or not self._thread.is_alive():
                break
            waited.wait(_POLL_S)
        if not self._server.started:
            raise TimeoutError("the server did not start; is its port taken?")
        host, port = self._server.servers[0].sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(READY_S)
