# SPDX-License-Identifier: Apache-2.0
"""A cluster that is not there: nothing is found in it, and nothing can be put into it. No request leaves this machine.

It stands where a cluster is asked for that an instance does without, so that who reads need not ask whether it does.
"""

from __future__ import annotations

import ssl
from typing import Any, NoReturn

from .cluster import Cluster
from .credentials import Credential
from .errors import NotFound
from .kubeconfig import Access


class NoCluster(Cluster):
    """Answers each request as an API server does that has no such path: what is read is empty, writes are refused."""

    def __init__(self, name: str) -> None:
        super().__init__(Access("https://none.invalid", ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), Credential), name)

    def _request(self, verb: str, method: str, path: str, *_: Any, **__: Any) -> NoReturn:
        del verb
        raise NotFound(self.name, method, path, 404, "NotFound", f"there is no {self.name}")
