"""Requests as no library of HTTP sends them, byte by byte: forms of smuggling, broken lines, strange bodies, damage."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Final

BODY: Final = b'{"prompt": "raw", "max_tokens": 1}'
ASKING: Final = b"POST /v1/completions HTTP/1.1"
CUTS, DAMAGES = 60, 150

LINES: Final = (
    *(b"", b" ", b"\0", b"GET", b"GET /healthz", b"GET  /healthz HTTP/1.1", b"GET\t/healthz\tHTTP/1.1"),
    *(b"get /healthz HTTP/1.1", b"G\xc3\x89T /healthz HTTP/1.1", b"BREW /healthz HTTP/1.1", b"PRI * HTTP/2.0"),
    *(b"OPTIONS * HTTP/1.1", b"CONNECT localhost:1 HTTP/1.1", b"TRACE /healthz HTTP/1.1", b"HEAD /healthz HTTP/1.1"),
    *(b"GET /healthz HTTP/1.0", b"GET /healthz HTTP/0.9", b"GET /healthz HTTP/2.0", b"GET /healthz HTTP/1.1.1"),
    *(b"GET /healthz HTTP/1.9", b"GET /healthz HTTP/\xef\xbc\x91.1", b"GET /healthz http/1.1", b"GET / ICAP/1.0"),
    *(b"GET http://evil.example/healthz HTTP/1.1", b"GET //healthz HTTP/1.1", b"GET /../../etc/passwd HTTP/1.1"),
    *(b"GET /%00 HTTP/1.1", b"GET /%zz HTTP/1.1", b"GET /healthz#part HTTP/1.1", b"GET /\xff\xfe HTTP/1.1"),
    *(b"GET /healthz?" + b"a" * 100_000 + b" HTTP/1.1", b"GET /" + b"../" * 10_000 + b" HTTP/1.1"),
    *(b"A" * 100_000 + b" / HTTP/1.1", b"\r\n\r\nGET /healthz HTTP/1.1", b"GET /healthz HTTP/1.1\r", b"\x16\x03\x01"),
)
HEADERS: Final = (
    *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", b"Transfer-Encoding: xchunked"),
    *(b"Transfer-Encoding : chunked", b"Transfer-Encoding:\tchunked", b"Transfer-Encoding: chunked, identity"),
    *(b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
    *(b"Transfer-Encoding: cHuNkEd", b"Transfer-Encoding:\x0bchunked", b"Transfer-Encoding:", b"TE: trailers"),
    *(b"Content-Length: 3", b"Content-Length: 35", b"Content-Length: +34", b"Content-Length: -1"),
    *(b"Content-Length: 0x22", b"Content-Length: 34, 34", b"Content-Length: 34 34", b"Content-Length: 3e1"),
    *(b"Content-Length: \xef\xbc\x93\xef\xbc\x94", b"Content-Length:", b"Content-Length: " + b"9" * 400),
    *(b"Content-Length : 34", b"content_length: 34", b" Content-Length: 34", b"no colon", b": no name"),
    *(b"X\xff: a", b"X Y: a", b"X(): a", b"X: \0", b"X: \r", b"X: a\n b", b"X: a\r\n folded", b"X: " + b"a" * 100_000),
    *(b"X" * 100_000 + b": a", b"\r\n".join(b"X-%d: a" % number for number in range(2_000)), b"Host: evil.example"),
    *(b"Expect: 100-continue", b"Expect: 200-ok", b"Upgrade: websocket\r\nConnection: Upgrade", b"Upgrade: h2c"),
    *(b"Content-Type: text/plain", b"Content-Type: application/json; charset=utf-16", b"Content-Type: \xff"),
    *(b"Content-Encoding: gzip", b"Accept: nothing/at-all", b"Range: bytes=0-1", b"X-Request-Id: \xe2\x80\xa8"),
)
CHUNKS: Final = (
    *(b"", b"0\r\n\r\n", b"22\r\n" + BODY + b"\r\n0\r\n\r\n", b"22;a=b\r\n" + BODY + b"\r\n0\r\nX: trailer\r\n\r\n"),
    *(b"-1\r\n\r\n", b"0x22\r\n" + BODY, b"g\r\n\r\n", b" 22\r\n" + BODY, b"22\n" + BODY + b"\n0\n\n"),
    b"22\r\n" + BODY[:9],
    *(b"f" * 17 + b"\r\n", b"0" * 5_000, b"22;" + b"a" * 100_000, b"22\r\n" + BODY + b"too much\r\n0\r\n\r\n"),
    *(b"1\r\n{\r\n" * 300 + b"0\r\n\r\n", b"0\r\n" + b"X: a\r\n" * 2_000 + b"\r\n", b"\xef\xbc\x92\r\n{}\r\n0\r\n\r\n"),
)
BODIES: Final = (
    *(b"", b"{", b"null", b"[]", b'"text"', b"\xff\xfe", b"\xef\xbb\xbf" + BODY, BODY.decode().encode("utf-16")),
    *(b"[" * 100_000, b'{"a":' * 100_000, b'{"prompt": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", BODY[:-1], BODY * 2),
    *(b'{"prompt": "a", "prompt": 1}', b'{"prompt": "\\u0000\\ud800"}', b'{"prompt": "a", "max_tokens": 1e400}'),
    *(b'{"prompt": NaN}', b'{"prompt": "a", "max_tokens": ' + b"9" * 5_000 + b"}", b'{"prompt": "' + b"\\" * 9 + b'"}'),
    *(b"prompt=a&max_tokens=1", b'{"prompt": "a", "' + b"k" * 100_000 + b'": 1}', b'{"__proto__": {"prompt": "a"}}'),
    json.dumps({"prompt": "a"} | {str(number): number for number in range(20_000)}).encode(),
)


def request(
    host: str, line: bytes = ASKING, header: bytes = b"", body: bytes = BODY, *, is_counted: bool = True
) -> bytes:
    """One after whose answer the connection is closed."""
    length = b"Content-Length: %d" % len(body) if is_counted else b""
    kind = b"" if b"Content-Type" in header else b"Content-Type: application/json"
    headers = (b"Host: " + host.encode(), b"Connection: close", kind, length, header)
    return b"\r\n".join((line, *filter(None, headers), b"", body))


def raw_requests(host: str) -> Iterator[bytes]:
    """More than three hundred, of which some are good and most are not; always the same."""
    whole, drawn = request(host), random.Random(13)
    yield from (request(host, line, body=b"") for line in LINES)
    yield from (request(host, header=header) for header in HEADERS)
    yield from (request(host, header=header, is_counted=False) for header in HEADERS if b"Content" in header)
    chunked = b"Transfer-Encoding: chunked"
    yield from (request(host, header=chunked, body=body, is_counted=False) for body in CHUNKS)
    yield from (request(host, body=body) for body in BODIES)
    yield from (whole + after for after in (whole, b"\0" * 100, b"\r\n" * 1_000, request(host, b"GARBAGE")))
    yield from (whole.replace(b"\r\n", end) for end in (b"\n", b"\r", b"\n\r", b"\r\r\n", b""))
    yield from (whole[: len(whole) * cut // CUTS] for cut in range(CUTS))
    for _ in range(DAMAGES):
        damaged = bytearray(whole)
        for _ in range(drawn.randint(1, 4)):
            at = drawn.randrange(len(damaged))
            damaged[at : at + drawn.randint(0, 2)] = drawn.randbytes(drawn.randint(0, 3))
        if b"\r\nConnection: close\r\n" in damaged:  # else its connection may stay open for a next request
            yield bytes(damaged)
