"""Functions that the window's HTTP clients share."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from PySide6.QtCore import QObject, QUrl
from PySide6.QtNetwork import QNetworkAccessManager, QNetworkProxy, QNetworkReply, QNetworkRequest

INSTANCE_HEADER: Final = "X-Batchscope-Instance"
STRANGER: Final = "Another program answers at the service's address."


class Address(NamedTuple):
    """Where a service answers, and how it and the window know each other.

    Attributes:
        url: without a trailing slash.
        instance: drawn at its start and on each of its answers; empty where any may answer.
        token: that every request carries; empty for none.
    """

    url: str
    instance: str = ""
    token: str = ""

    def request(self, path: str) -> QNetworkRequest:
        """A request of that path, which asks for what is true now."""
        made = QNetworkRequest(QUrl(f"{self.url}{path}"))
        made.setAttribute(QNetworkRequest.Attribute.Http2AllowedAttribute, False)
        made.setAttribute(
            QNetworkRequest.Attribute.CacheLoadControlAttribute, QNetworkRequest.CacheLoadControl.AlwaysNetwork
        )
        if self.token:
            made.setRawHeader(b"Authorization", f"Bearer {self.token}".encode())
        return made

    def has_sent(self, reply: QNetworkReply) -> bool:
        """Whether this answer comes from that service."""
        stamp = bytes(reply.rawHeader(INSTANCE_HEADER).data()).decode("latin-1")
        return self.instance in ("", stamp)


def manager(parent: QObject) -> QNetworkAccessManager:
    """A network manager that ignores the system's proxies."""
    made = QNetworkAccessManager(parent)
    made.setProxy(QNetworkProxy(QNetworkProxy.ProxyType.NoProxy))
    return made


def status(reply: QNetworkReply) -> int | None:
    """The status code, once there is one."""
    code = reply.attribute(QNetworkRequest.Attribute.HttpStatusCodeAttribute)
    return code if isinstance(code, int) else None


def give_up(reply: QNetworkReply) -> None:
    """Close the connection of an answer that is no longer wanted.

    Not by `abort`: Qt reports an error some events before the end, and an abort in between ends the answer twice.
    """
    reply.deleteLater()


class Refusal(msgspec.Struct):
    """An error of the service; `param` names the field that caused it."""

    message: str
    param: str | None = None


def refusal(body: bytes) -> Refusal | None:
    """The error in `body`, in OpenAI's format; ``None`` if `body` is none."""
    try:
        return msgspec.json.decode(body, type=_Error).error
    except msgspec.MsgspecError:
        return None


class _Error(msgspec.Struct):
    error: Refusal
