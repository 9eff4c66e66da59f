"""Does a server of ours send an answer at once, whatever the client has acknowledged."""

from __future__ import annotations

import asyncio
import socket

from compose.serving import listening


def test_the_second_packet_of_an_answer_does_not_wait_for_the_client() -> None:
    """With Nagle's algorithm on it waits for the client's delayed acknowledgement: 40 ms on every call."""
    assert asyncio.run(_is_sent_at_once(listening(0)))


async def _is_sent_at_once(listener: socket.socket) -> bool:
    asked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    class Connected(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            raw = transport.get_extra_info("socket")
            asked.set_result(bool(raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))

    server = await asyncio.get_running_loop().create_server(Connected, sock=listener)
    async with server:
        _, writer = await asyncio.open_connection(*listener.getsockname())
        found = await asked
        writer.close()
    return found
