# SPDX-License-Identifier: Apache-2.0
"""Base of actions that fetch the file which a module makes on a plain host for one user (``host_snapshot``)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from ansible_collections.karmada.installer.plugins.module_utils import host_snapshot

from ..problems import Problem, ProblemsError, Reason
from ..run import host_bounds
from ..run.host_action import HostAction
from . import encryption


class HostFileAction(HostAction):
    """Fetches that file, and tells where it is left. Nobody encrypts it on the host."""

    #: It may have some GB, and be part of an operation that has the Lease of a control plane in pods above its host.
    KEEPS_LOCK: ClassVar[bool] = True

    def fetch(self, path: Path, size: int) -> None:
        """Have the file here, for this user only. Raises ProblemsError if it has not the size that its host told of."""
        with open(path, "xb", opener=encryption.reader_only):
            pass
        with host_bounds.files_up_to(size):
            # Its name is known here: what a host tells is in no command.
            self._connection.fetch_file(host_snapshot.path_of(self.karmada.name), str(path))
        if path.stat().st_size != size:
            raise self.refused(f"the file came with {path.stat().st_size} of {size} bytes")

    def tell_left(self, refusal: str) -> None:
        """Tell that the host did not delete the file, for this reason; the next run there does it."""
        path, why = host_snapshot.path_of(self.karmada.name), refusal.removeprefix(f"{self.host_name}: ")
        what = f"{path} may lie there until the next run that changes this host, and is not encrypted: {why}"
        self.karmada.tell(Problem.warning(what, Reason.HOST_STEP_FAILED, f"host {self.host_name}"))

    def refused(self, what: str) -> ProblemsError:
        """Error for an answer of the host that is not used."""
        remedy = "look after this host, and run again"
        return ProblemsError(Problem(what, f"host {self.host_name}", remedy, reason=Reason.HOST_STEP_FAILED))
