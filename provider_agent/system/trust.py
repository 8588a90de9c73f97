"""Whose certificates the agent believes: those that its computer believes, read when one is needed.

A bundle of all authorities costs some megabytes for as long as the agent stays; a folder with one file each (named by
OpenSSL's hash, as Debian and its relatives have it) costs nothing until a server shows its certificate.
"""

from __future__ import annotations

import os
import re
import ssl

HASHED_NAME = re.compile(r"[0-9a-f]{8}\.\d+")


def tls_context() -> ssl.SSLContext:
    """SSL_CERT_FILE and SSL_CERT_DIR where they are set, else the system's folder, else the bundle that httpx brings.

    Raises OSError where what the variables name cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks names and certificates
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or folder:
        context.load_verify_locations(cafile=file or None, capath=folder or None)
        return context
    usual = ssl.get_default_verify_paths().capath
    if usual and _is_hashed(usual):
        context.load_verify_locations(capath=usual)
    else:
        import certifi

        context.load_verify_locations(cafile=certifi.where())
    return context


def _is_hashed(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(HASHED_NAME.fullmatch(entry.name) for entry in entries)
    except OSError:
        return False
