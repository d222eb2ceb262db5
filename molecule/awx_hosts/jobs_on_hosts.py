# SPDX-License-Identifier: Apache-2.0
"""Updates and jobs of an AWX for a control plane on plain hosts, and what is to be seen of them. Exit code 1: it is
not.

    jobs_on_hosts.py WHERE update                       an inventory from a source of the project, of AWX old and new
    jobs_on_hosts.py WHERE refresh                      the inventory, after the document has changed
    jobs_on_hosts.py WHERE workflow                     check, install, join members, report, with artifacts handed on
    jobs_on_hosts.py WHERE job VERB [--answer NAME=VALUE]... [--unchanged]
    jobs_on_hosts.py WHERE strange                      a host that shows another key than the document says is refused
    jobs_on_hosts.py WHERE cancel [--times N] [--seed SEED]
                                                        an install is ended; the next job says whose lock is there, and
                                                        goes on as soon as somebody says that this one is dead

WHERE is --work FOLDER --logs FOLDER --lab LAB --kubeconfig FILE --artifacts FOLDER --document FILE --figures FILE
--folder FOLDER [--machine-key FILE]. With a key, jobs have a machine credential with it and nothing of any cluster;
without, a token of the cluster that the kubeconfig names, where the document's Secrets are. What needs no hosts,
molecule/awx shows.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT / "molecule/shared/tools"), str(PROJECT / "molecule/awx")]

import cancels_on_hosts  # noqa: E402
import command_line  # noqa: E402
import jobs  # noqa: E402
from awx_credentials import Credential, machine  # noqa: E402
from awx_runner import Awx  # noqa: E402
from awx_site import Site, Unseen  # noqa: E402

#: Who logs in to hosts of the lab.
USER = "lab"
#: Fingerprint of a key that no host has.
NOBODYS = f"SHA256:{'A' * 43}"


@dataclass
class SiteOfHosts(Site):
    """AWX whose jobs log in to plain hosts."""

    machine_key: Path | None
    folder: Path

    @property
    def root(self) -> Path:
        """Folder of AWX. Its path is as short as AWX's own: ssh makes sockets below it, whose paths have a limit."""
        return self.folder

    def awx(self, user: str = "jane", *, old: bool = False, bare: bool = False) -> Awx:
        """The AWX, for jobs that this user starts."""
        given = super().awx(user, old=old, bare=bare)
        given.listed = True
        return given

    def credential(self, account: str = "first") -> Credential:
        """The only credential of a job."""
        if self.machine_key is None:
            return super().credential(account)
        return machine(USER, self.machine_key.read_text(encoding="utf-8"))

    def of_update(self) -> Sequence[Credential]:
        """None: AWX allows no machine credential there, and the document is a file of the project."""
        return []


def strange(site: SiteOfHosts) -> None:
    """AWX switches the check of host keys off; a host that has another key is refused all the same."""
    right = site.document
    site.document = site.work / "strange.yaml"
    text, count = re.subn(r"SHA256:[A-Za-z0-9+/]{43}", NOBODYS, right.read_text(encoding="utf-8"))
    if not count:
        raise Unseen(f"{right} names no fingerprint")
    site.document.write_text(text, encoding="utf-8")
    jobs.refresh(site)
    done = site.run("install")
    said = " ".join(done.output.split())
    if done.rc == 0 or done.changed or "its SSH host key is not known" not in said:
        raise Unseen(f"job {done.number} did not refuse the host:\n{done.output[-3000:]}")
    site.document = right
    jobs.refresh(site)


def main() -> int:
    """Run one command."""
    parser, commands = command_line.parser(__doc__, "update", "refresh", "workflow", "strange")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--machine-key", type=Path)
    one = commands.add_parser("cancel")
    one.add_argument("--times", type=int, default=2)
    one.add_argument("--seed", default="1")
    given = parser.parse_args()
    site = SiteOfHosts(**command_line.where(given), machine_key=given.machine_key, folder=given.folder)
    steps: dict[str, Callable[[], None]] = {
        "update": lambda: jobs.update(site),
        "refresh": lambda: jobs.refresh(site),
        "workflow": lambda: jobs.workflow(site),
        "job": lambda: jobs.job(site, given.verb, dict(given.answer), unchanged=given.unchanged),
        "strange": lambda: strange(site),
        "cancel": lambda: cancels_on_hosts.cancel(site, given.times, given.seed),
    }
    return command_line.carried_out(steps[given.command])


if __name__ == "__main__":
    sys.exit(main())
