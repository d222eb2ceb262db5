# SPDX-License-Identifier: Apache-2.0
"""A web server of a site: serves a folder by https while a command runs, and ends with it and its exit code.

    serve.py --folder FOLDER --authority FILE --port PORT [--log FILE] -- COMMAND...

The certificate is for 127.0.0.1, of an authority of its own that is written to the file. The log has a line for each
request.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import http.server
import ipaddress
import ssl
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ADDRESS = "127.0.0.1"


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files, and who asked for which."""

    requests: list[str] = []  # noqa: RUF012 - one for all requests

    def log_message(self, message: str, *words: object) -> None:
        """Keep it."""
        self.requests.append(message % words)


def certificates() -> tuple[bytes, bytes]:
    """An authority, and a certificate of it with its key, as PEM."""
    now = datetime.datetime.now(datetime.UTC)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("mirror authority", "mirror")]
    authority, leaf = (
        x509.CertificateBuilder()
        .subject_name(names[number])
        .issuer_name(names[0])
        .public_key(keys[number].public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=number == 0, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(ADDRESS))]), critical=False)
        .sign(keys[0], hashes.SHA256())
        for number in range(2)
    )
    pem = serialization.Encoding.PEM
    key = keys[1].private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return authority.public_bytes(pem), leaf.public_bytes(pem) + key


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--authority", required=True, type=Path)
    parser.add_argument("--port", required=True, type=int)
    parser.add_argument("--log", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    authority, leaf = certificates()
    options.authority.write_bytes(authority)
    server = http.server.ThreadingHTTPServer(
        (ADDRESS, options.port), functools.partial(Handler, directory=options.folder)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(leaf)
        file.flush()
        context.load_cert_chain(file.name)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    try:
        return subprocess.call(command)
    finally:
        server.shutdown()
        if options.log:
            with options.log.open("a") as log:
                log.writelines(f"{line}\n" for line in Handler.requests)


if __name__ == "__main__":
    sys.exit(main())
