"""When a certificate expires: the one date of it that a user needs, read without a library for X.509."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path

from liverl.util.regular_file import read_regular

_LARGEST = 1 << 20  # bytes of a file
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]{1,100000}-----END CERTIFICATE-----")
_SEQUENCE, _VERSION, _UTC_TIME, _TIME = 0x30, 0xA0, 0x17, 0x18  # tags of DER


def expires(path: Path) -> datetime | None:
    """When the first certificate in a PEM file expires (RFC 5280, 4.1.2.5); None if the file has none that can be
    read."""
    try:
        match = _PEM.search(read_regular(path, _LARGEST).decode("ascii", "replace"))
        return _not_after(ssl.PEM_cert_to_DER_cert(match[0])) if match is not None else None
    except (OSError, ValueError, IndexError):
        return None


def _not_after(der: bytes) -> datetime | None:
    """Certificate -> tbsCertificate -> [version], serial, algorithm, issuer, validity -> notBefore, notAfter."""
    tag, body, _ = _item(der)
    tag, tbs, _ = _item(body)
    if tag != _SEQUENCE:
        return None
    tag, _, rest = _item(tbs)
    for _ in range(3 if tag == _VERSION else 2):
        _, _, rest = _item(rest)
    _, validity, _ = _item(rest)
    _, _, rest = _item(validity)
    tag, text, _ = _item(rest)
    form = {_UTC_TIME: "%y%m%d%H%M%SZ", _TIME: "%Y%m%d%H%M%SZ"}.get(tag)
    return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC) if form else None


def _item(data: bytes) -> tuple[int, bytes, bytes]:
    """The first item of DER: its tag, what is in it, and what follows it."""
    tag, size, at = data[0], data[1], 2
    if size & 0x80:
        count = size & 0x7F
        size, at = int.from_bytes(data[2 : 2 + count], "big"), 2 + count
    if at + size > len(data):
        raise ValueError("it is cut off")
    return tag, data[at : at + size], data[at + size :]
