"""One connection under Twisted, with or without TLS: that of a pump, or of one of its links."""

from __future__ import annotations

from time import monotonic
from typing import Any, Generic, TypeVar

from twisted.internet.base import DelayedCall, ReactorBase
from twisted.internet.interfaces import IHalfCloseableProtocol, IPushProducer, ISSLTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from culm.pump import ConnectionState, StreamPump

__all__ = ["ConnectionProtocol"]

Stream_co = TypeVar("Stream_co", bound=StreamPump, covariant=True)

_LEAVE_S = 10.0


@implementer(IHalfCloseableProtocol, IPushProducer)
class ConnectionProtocol(Protocol, Generic[Stream_co]):
    """Carries the bytes of `pump`."""

    pump: Stream_co
    transport: Any  # interfaces of zope say nothing to type checkers

    def __init__(self, reactor: ReactorBase) -> None:
        self.half_close = False  # whether our half can be ended by itself
        self._reactor = reactor
        self._congested = False  # the transport still holds bytes
        self._written = False  # it has the outgoing bytes
        self._leaving: DelayedCall | None = None  # the transport may take so long to send the rest

    def connectionMade(self) -> None:
        self.half_close = not ISSLTransport.providedBy(self.transport)
        self.transport.registerProducer(self, True)

    def dataReceived(self, data: bytes) -> None:
        self.pump.receive_data(data, monotonic())

    def readConnectionLost(self) -> None:
        self.pump.receive_eof(monotonic())

    def writeConnectionLost(self) -> None:
        self.pump.eof_sent(monotonic())

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.connected = 0
        if self._leaving is not None and self._leaving.active():
            self._leaving.cancel()
        self.pump.connection_lost(monotonic())

    def pauseProducing(self) -> None:
        self._congested = True

    def resumeProducing(self) -> None:
        self._congested = False
        self._sent()

    def stopProducing(self) -> None:
        """The connection is lost, which is told by itself."""

    def carry(self) -> None:
        """Carry out the pump's requests."""
        if not self.connected or self._leaving is not None:
            return
        pump, transport = self.pump, self.transport
        if pump.hung_up:
            transport.unregisterProducer()  # it would be waited for
            wait = 0 if pump.state is ConnectionState.CUT_OFF else _LEAVE_S
            self._leaving = self._reactor.callLater(wait, transport.abortConnection)
            transport.loseConnection()
            return
        if pump.outgoing and not self._written:
            self._written = True
            transport.write(bytes(pump.outgoing))
            self._reactor.callLater(0, self._sent)  # and not at once: others have their turn
        if pump.eof_to_send:
            transport.loseWriteConnection()
        transport.resumeProducing() if pump.read_size() else transport.pauseProducing()

    def _sent(self) -> None:
        if self._written and not self._congested:
            self._written = False
            self.pump.sent(len(self.pump.outgoing), monotonic())
