"""What the window's HTTP clients share."""

from __future__ import annotations

from typing import Final

import msgspec
from PySide6.QtCore import QObject, QUrl
from PySide6.QtNetwork import QNetworkAccessManager, QNetworkProxy, QNetworkReply, QNetworkRequest

INSTANCE_HEADER: Final = "X-Batchscope-Instance"
STRANGER: Final = "Another program answers at the service's address."


def manager(parent: QObject) -> QNetworkAccessManager:
    """A manager that goes to the service directly, whatever proxies the system has."""
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
    """Whether the service that drew the name `instance` when it started gave this answer."""
    return bytes(reply.rawHeader(INSTANCE_HEADER).data()).decode("latin-1") == instance


class Refusal(msgspec.Struct):
    """Why the service did not do what it was asked for; `param` names the field that is to blame."""

    message: str
    param: str | None = None


def refusal(body: bytes) -> Refusal | None:
    """What an answer in the shape of the service's errors, which is OpenAI's, says; ``None`` for another answer."""
    try:
        return msgspec.json.decode(body, type=_Error).error
    except msgspec.MsgspecError:
        return None


class _Error(msgspec.Struct):
    error: Refusal
