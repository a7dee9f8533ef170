"""Functions that the window's HTTP clients share."""

from __future__ import annotations

from typing import Final

import msgspec
from PySide6.QtCore import QObject, QUrl
from PySide6.QtNetwork import QNetworkAccessManager, QNetworkProxy, QNetworkReply, QNetworkRequest

INSTANCE_HEADER: Final = "X-Batchscope-Instance"
STRANGER: Final = "Another program answers at the service's address."


def manager(parent: QObject) -> QNetworkAccessManager:
    """A network manager that ignores the system's proxies."""
    made = QNetworkAccessManager(parent)
    made.setProxy(QNetworkProxy(QNetworkProxy.ProxyType.NoProxy))
    return made


def request(url: QUrl) -> QNetworkRequest:
    made = QNetworkRequest(url)
    made.setAttribute(QNetworkRequest.Attribute.Http2AllowedAttribute, False)
    made.setAttribute(
        QNetworkRequest.Attribute.CacheLoadControlAttribute, QNetworkRequest.CacheLoadControl.AlwaysNetwork
    )
    return made


def status(reply: QNetworkReply) -> int | None:
    """The status code, once there is one."""
    code = reply.attribute(QNetworkRequest.Attribute.HttpStatusCodeAttribute)
    return code if isinstance(code, int) else None


def is_from(reply: QNetworkReply, instance: str) -> bool:
    """Whether this answer comes from the service with the name `instance`, drawn at its start."""
    return bytes(reply.rawHeader(INSTANCE_HEADER).data()).decode("latin-1") == instance


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
