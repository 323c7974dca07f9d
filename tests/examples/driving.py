"""Every driver for streams as a function: a machine, a connected socket, perhaps TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import trio
from anyio.streams.tls import TLSStream
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.protocol import Factory
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.ssl import Certificate, PrivateCertificate, optionsForClientTLS
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure

from culm.machine import Closed
from culm.pump import Pump
from culm_io.anyio.driver import StreamDriver
from culm_io.asyncio.driver import MachineProtocol
from culm_io.sockets import driver as socket_driver
from culm_io.trio.driver import MachineDriver
from culm_io.twisted.driver import MachineProtocol as TwistedProtocol

__all__ = [
    "CERTIFICATE",
    "DRIVERS",
    "Drive",
    "OwnTime",
    "Tls",
    "adopt",
    "connected",
    "run_in_own_time",
    "run_reactor",
]

CERTIFICATE = Path(__file__).with_name("localhost.pem")  # with its key


@dataclass(frozen=True)
class Tls:
    """Which end of TLS a connection is."""

    server_side: bool

    @property
    def context(self) -> ssl.SSLContext:
        if not self.server_side:
            return ssl.create_default_context(cafile=CERTIFICATE)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(CERTIFICATE)
        return context

    @property
    def options(self) -> Any:
        """The same, in Twisted's terms."""
        pem = CERTIFICATE.read_bytes()
        if not self.server_side:
            return optionsForClientTLS("localhost", Certificate.loadPEM(pem))
        return PrivateCertificate.loadPEM(pem).options()

    @property
    def host(self) -> str | None:
        return None if self.server_side else "localhost"


Drive = Callable[..., Closed]  # (machine, socket, Tls or None, **handlers)


def drive_socket(
    machine: Any, connection: socket.socket, tls: Tls | None = None, **handlers: Any
) -> Closed:
    if tls is not None:
        connection = tls.context.wrap_socket(
            connection, server_side=tls.server_side, server_hostname=tls.host
        )
    return socket_driver.run(Pump(machine, **handlers), connection)


def drive_asyncio(
    machine: Any, connection: socket.socket, tls: Tls | None = None, **handlers: Any
) -> Closed:
    async def main() -> Closed:
        loop = asyncio.get_running_loop()
        protocol = MachineProtocol(machine, **handlers)
        context = None if tls is None else tls.context
        if tls is not None and tls.server_side:
            await loop.connect_accepted_socket(lambda: protocol, connection, ssl=context)
        else:
            host = None if tls is None else tls.host
            await loop.create_connection(
                lambda: protocol, sock=connection, ssl=context, server_hostname=host
            )
        return await protocol.wait_closed()

    return asyncio.run(main())


def drive_trio(
    machine: Any, connection: socket.socket, tls: Tls | None = None, **handlers: Any
) -> Closed:
    async def main() -> Closed:
        stream: trio.abc.Stream = trio.SocketStream(trio.socket.from_stdlib_socket(connection))
        if tls is not None:
            stream = trio.SSLStream(
                stream, tls.context, server_side=tls.server_side, server_hostname=tls.host
            )
        return await MachineDriver(machine, stream, **handlers).run()

    return trio.run(main)


def drive_anyio(
    machine: Any, connection: socket.socket, tls: Tls | None = None, **handlers: Any
) -> Closed:
    async def main() -> Closed:
        stream: anyio.abc.ByteStream = await anyio.abc.SocketStream.from_socket(connection)
        if tls is not None:
            stream = await TLSStream.wrap(
                stream, ssl_context=tls.context, server_side=tls.server_side, hostname=tls.host
            )
        return await StreamDriver(machine, stream, **handlers).run()

    return anyio.run(main)


def drive_twisted(
    machine: Any, connection: socket.socket, tls: Tls | None = None, **handlers: Any
) -> Closed:
    reactor = SelectReactor()
    protocol = TwistedProtocol(machine, reactor, **handlers)
    factory = Factory.forProtocol(lambda: protocol)
    if tls is not None:
        factory = TLSMemoryBIOFactory(tls.options, not tls.server_side, factory, reactor)
    adopt(reactor, connection, factory)
    return run_reactor(reactor, protocol.closed)


def adopt(reactor: SelectReactor, connection: socket.socket, factory: IProtocolFactory) -> None:
    """Hand a connected socket to a reactor."""
    with connection:  # the reactor takes a copy
        connection.setblocking(False)
        reactor.adoptStreamConnection(connection.fileno(), socket.AF_INET, factory)


class OwnTime(asyncio.SelectorEventLoop):
    """A loop in which time passes when the test says so."""

    now = 1000.0

    def time(self) -> float:
        return self.now


def run_in_own_time(main: Callable[[OwnTime], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=OwnTime) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, OwnTime)
        runner.run(main(loop))


def run_reactor(reactor: SelectReactor, closed: Deferred[Closed]) -> Closed:
    """Run a reactor until `closed` has a result; that result."""
    results: list[Any] = []
    closed.addBoth(results.append)
    closed.addBoth(lambda _: reactor.stop())
    reactor.run(installSignalHandlers=False)
    (result,) = results
    if isinstance(result, Failure):
        result.raiseException()
    assert isinstance(result, Closed)
    return result


DRIVERS: dict[str, Drive] = {
    "sockets": drive_socket,
    "asyncio": drive_asyncio,
    "trio": drive_trio,
    "anyio": drive_anyio,
    "twisted": drive_twisted,
}


@contextmanager
def connected(size: int = 8192) -> Any:
    """Both ends of a TCP connection with little room between them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far = server.accept()[0]
    for end in (near, far):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    try:
        yield near, far
    finally:  # wakes up the waiting side
        for end in (near, far):
            if end.fileno() >= 0:
                end.close()
