"""Reads the service's telemetry, and resumes a stream that broke off."""

from __future__ import annotations

import time
from typing import Final

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtNetwork import QNetworkAccessManager, QNetworkReply

from gui.session.clients import network
from gui.session.clients.network import Address
from service.messages.event_stream import ERROR, EventReader, EventTooLongError
from service.messages.telemetry import FramesMissed, TelemetryEvent, TelemetryFrame

FIRST_RETRY_MS: Final = 50
LONGEST_RETRY_MS: Final = 2_000
SILENCE_MS: Final = 3_000


class TelemetryClient(QObject):
    """Follows `GET /telemetry`.

    Attributes:
        lost_s: since when nothing is heard, on the clock of `time.monotonic`; ``None`` while the stream is read.
    """

    frame_received = Signal(object)  # a `TelemetryFrame`; each number of a service once, in order
    frames_missed = Signal(object)  # a `FramesMissed`: the service no longer keeps them
    trouble = Signal(str)  # a sentence for the log: the stream broke or could not be read, and is tried again

    def __init__(self, manager: QNetworkAccessManager, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._manager = manager
        self._decoder: msgspec.json.Decoder[TelemetryEvent] = msgspec.json.Decoder(TelemetryEvent)
        self._address: Address | None = None
        self._reply: QNetworkReply | None = None
        self._stream = EventReader()
        self._last_number: int | None = None
        self._service = ""
        self.lost_s: float | None = None
        self._heard_s = 0.0
        self._retry_ms = FIRST_RETRY_MS
        self._retry = QTimer(self, singleShot=True)
        self._retry.timeout.connect(self._connect)
        self._silence = QTimer(self, singleShot=True, interval=SILENCE_MS)
        self._silence.timeout.connect(self._on_silence)

    def follow(self, address: Address) -> None:
        """Read the telemetry of the service at `address` from its next frame on."""
        self.leave()
        self._address, self._heard_s = address, time.monotonic()
        self._last_number = self.lost_s = None
        self._retry_ms = FIRST_RETRY_MS
        self._connect()

    def try_now(self) -> None:
        """Look at once whether a stream that broke off can be taken up again."""
        if self._retry.isActive():
            self._retry.stop()
            self._connect()

    def leave(self) -> None:
        """Read no more."""
        self._address = self.lost_s = None
        self._retry.stop()
        self._drop()

    def _connect(self) -> None:
        assert self._address is not None
        after = "" if self._last_number is None else f"?after={self._last_number}"
        request = self._address.request(f"/telemetry{after}")
        request.setRawHeader(b"Accept", b"text/event-stream")
        request.setRawHeader(b"Accept-Encoding", b"identity")
        self._stream = EventReader()
        self._reply = self._manager.get(request)
        self._reply.readyRead.connect(self._on_reply_ready)
        self._reply.finished.connect(self._on_reply_finished)
        self._silence.start()

    def _on_reply_ready(self) -> None:
        reply = self._reply
        if reply is None or network.status(reply) != 200:
            return
        assert self._address is not None
        if not self._address.has_sent(reply):
            self._try_again(network.STRANGER)
            return
        self._silence.start()
        try:
            for event in self._stream.feed(bytes(reply.readAll().data())):
                if event.name == ERROR:
                    self._try_again("The replica that sent the telemetry ended.")
                    return
                self._take(event.data)
                if self._reply is not reply:  # a receiver of the event has ended the reading
                    return
        except (EventTooLongError, msgspec.MsgspecError) as error:
            self._try_again(f"The telemetry could not be read: {error}.")

    def _take(self, data: bytes) -> None:
        event = self._decoder.decode(data)
        self._retry_ms = FIRST_RETRY_MS
        self.lost_s, self._heard_s = None, time.monotonic()
        match event:
            case FramesMissed():
                self._last_number = event.last
                self.frames_missed.emit(event)
            case TelemetryFrame() if self._is_new(event):
                self._last_number, self._service = event.number, event.service
                self.frame_received.emit(event)

    def _is_new(self, frame: TelemetryFrame) -> bool:
        """Whether it was not received yet; another service at the same address has numbers of its own."""
        return self._last_number is None or frame.number > self._last_number or frame.service != self._service

    def _on_reply_finished(self) -> None:
        reply = self._reply
        assert reply is not None
        status = network.status(reply)
        if status not in (None, 200):
            self._try_again(f"The service answered {status} instead of its telemetry.")
        elif reply.error() is QNetworkReply.NetworkError.NoError:
            self._try_again("The service ended its telemetry.")
        else:
            self._try_again(f"The telemetry broke off: {reply.errorString()}.")

    def _on_silence(self) -> None:
        self._try_again(f"No telemetry for {SILENCE_MS / 1000:.0f} s.")

    def _try_again(self, why: str) -> None:
        self._drop()
        self.lost_s = self._heard_s
        self._retry.start(self._retry_ms)
        self._retry_ms = min(2 * self._retry_ms, LONGEST_RETRY_MS)
        self.trouble.emit(why)

    def _drop(self) -> None:
        self._silence.stop()
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.readyRead.disconnect(self._on_reply_ready)
            reply.finished.disconnect(self._on_reply_finished)
            network.give_up(reply)
