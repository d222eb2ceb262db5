# SPDX-License-Identifier: Apache-2.0
"""The router of an OpenShift for this scenario, which can do nothing but pass TLS through.

    router.py --kubeconfig FILE --apps DOMAIN [--port 443]

It reads the server name of each TLS handshake and connects the client with the Service to which a Route leads this
name, without having any key itself. As a router of OpenShift does, it says in a Route's status under which name the
Route is served. A name that nobody has is refused by closing the connection.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import subprocess
import sys
from typing import Any

Object = dict[str, Any]
POLL_SECONDS = 0.5
HELLO_BYTES = 65536


class Router:
    """``backends`` is where a name leads: (address, port)."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.backends: dict[str, tuple[str, int]] = {}

    # -- what the host cluster says --------------------------------------------------------------------------------

    async def follow(self) -> None:
        """Look at the cluster again and again."""
        while True:
            try:
                found = await self._observed()
                if found != self.backends:
                    print(f"names: {found}", flush=True)
                self.backends = found
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                print(f"could not look: {error}", flush=True)
            await asyncio.sleep(POLL_SECONDS)

    async def _observed(self) -> dict[str, tuple[str, int]]:
        services, routes = await asyncio.gather(self._list("services"), self._list("routes"))
        addresses = {
            (one["metadata"]["namespace"], one["metadata"]["name"]): one["spec"].get("clusterIP", "")
            for one in services
        }
        ports = {
            (one["metadata"]["namespace"], one["metadata"]["name"], port["name"]): port["port"]
            for one in services
            for port in one["spec"]["ports"]
            if "name" in port
        }
        found: dict[str, tuple[str, int]] = {}
        for one in routes:
            namespace, service = one["metadata"]["namespace"], one["spec"]["to"]["name"]
            if one["spec"].get("tls", {}).get("termination") == "passthrough":
                host = await self._admit(one)
                found[host] = (
                    addresses[namespace, service],
                    ports[namespace, service, one["spec"]["port"]["targetPort"]],
                )
        return found

    async def _admit(self, route: Object) -> str:
        namespace, name = route["metadata"]["namespace"], route["metadata"]["name"]
        host = route["spec"].get("host") or f"{name}-{namespace}.{self.options.apps}"
        condition = {"type": "Admitted", "status": "True"}
        ingress = [{"host": host, "routerName": "default", "conditions": [condition]}]
        if (route.get("status") or {}).get("ingress") != ingress:
            patch = json.dumps({"status": {"ingress": ingress}})
            await self._kubectl(
                "patch",
                "routes",
                name,
                f"--namespace={namespace}",
                "--subresource=status",
                "--type=merge",
                f"--patch={patch}",
            )
        return host

    async def _list(self, kind: str) -> list[Object]:
        found: list[Object] = json.loads(await self._kubectl("get", kind, "--all-namespaces", "--output=json"))["items"]
        return found

    async def _kubectl(self, *arguments: str) -> bytes:
        command = [self.options.kubectl, f"--kubeconfig={self.options.kubeconfig}", *arguments]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, said = await process.communicate()
        if process.returncode:
            raise ValueError(said.decode(errors="replace").strip())
        return out

    # -- connections -----------------------------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client, from its first byte to its last."""
        try:
            hello, name = await _hello(reader)
            backend = self.backends.get(name)
            if backend is None:
                print(f"refused: {name or 'no name'}", flush=True)
                return
            there_reader, there_writer = await asyncio.open_connection(*backend)
            there_writer.write(hello)
            await asyncio.gather(_pump(reader, there_writer), _pump(there_reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass  # one of the two has gone
        finally:
            writer.close()


async def _hello(reader: asyncio.StreamReader) -> tuple[bytes, str]:
    """The bytes up to the end of the ClientHello, and the server name in it; OpenSSL reads it for us."""
    names: list[str] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda _connection, name, _context: names.append(name or "")
    incoming = ssl.MemoryBIO()
    handshake = context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    hello = b""
    while not names and len(hello) < HELLO_BYTES:
        part = await reader.read(HELLO_BYTES)
        if not part:
            break
        hello += part
        incoming.write(part)
        try:
            handshake.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            break  # it has no certificate, and by now it has the name
    return hello, names[0] if names else ""


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while part := await source.read(65536):
            sink.write(part)
            await sink.drain()
    finally:
        sink.close()


async def run(options: argparse.Namespace) -> None:
    """Serve until the time is over."""
    router = Router(options)
    server = await asyncio.start_server(router.serve, port=options.port)
    async with server:
        await asyncio.wait_for(router.follow(), options.seconds)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--kubectl", default="kubectl")
    parser.add_argument("--apps", required=True, metavar="DOMAIN", help="of Routes without a name")
    parser.add_argument("--port", type=int, default=443)
    parser.add_argument("--seconds", type=float, default=1800.0, help="after which it ends by itself")
    try:
        asyncio.run(run(parser.parse_args()))
    except TimeoutError:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
