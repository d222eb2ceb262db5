# SPDX-License-Identifier: Apache-2.0
"""An empty cluster: reads find nothing, writes are refused, and no request leaves this machine.

It stands in for a cluster that an instance does not have, so that callers need not ask whether there is one.
"""

from __future__ import annotations

import ssl
from typing import Any, NoReturn

from .cluster import Cluster
from .credentials import Credential
from .errors import NotFound
from .kubeconfig import Access


class NoCluster(Cluster):
    """Cluster that answers every request with NotFound."""

    def __init__(self, name: str) -> None:
        super().__init__(Access("https://none.invalid", ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), Credential), name)

    def _request(self, verb: str, method: str, path: str, *_: Any, **__: Any) -> NoReturn:
        del verb
        raise NotFound(self.name, method, path, 404, "NotFound", f"there is no {self.name}")
