# SPDX-License-Identifier: Apache-2.0
"""Figures of the benchmark in the guide that compares ways to install Karmada."""

from __future__ import annotations

import json
from typing import Any

from .sources import ROOT, row

PAGE = ROOT / "docs/guides/which-tool.md"
BEGIN, END = "<!-- begin of what `make reference` writes -->", "<!-- end of what `make reference` writes -->"

#: Case of bench/results.json → what the guide calls it.
CASES = {
    "install until the same is proved for both": "install, until all of it is proved to work",
    "install again, as a share of our own first": "install again, with nothing to do",
    "join a member until it is Ready": "join a member",
    "95 simulated members and 5 broken ones at once; karmadactl: the 95 one by one": "join 95 members (simulated)",
    "uninstall with the member, until the namespace is gone": "remove all of it, on the member, too",
    "one plain host from bare to ready": "one plain host, from bare to ready",
    "three plain hosts from bare to ready": "three plain hosts with a virtual IP",
    "memory of the install, at most": "memory of the machine that installs, at most",
}


def page() -> str:
    """Text of the guide, with the figures of bench/results.json. Raises KeyError for a case that is no longer there."""
    found = {each["case"]: each for each in json.loads((ROOT / "bench/results.json").read_text(encoding="utf-8"))}
    rows = ["| | this collection | karmadactl |", "|---|--:|--:|"]
    for case, name in CASES.items():
        one = found[case]
        rows.append(row(name, _figure(one["ours"], one["unit"]), _figure(one["peer"], one["unit"])))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n" + "\n".join(rows) + f"\n\n{END}{rest.partition(END)[2]}"


def _figure(value: Any, unit: str) -> str:
    return "not measured" if value is None else f"{value:.1f} {unit}"
