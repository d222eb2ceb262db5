# SPDX-License-Identifier: Apache-2.0
"""Two operators with disjoint selectors on one API server: each acts on its own objects, on those of nobody none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.tests.contract.test_operator import (
    FINALIZER,
    Site,
    operator,
    server,
    site,
    until,
)

__all__ = ["server", "site"]

#: Writes down whose run it is: the home of a run is below the folder of its operator.
PLAYBOOK = """
- name: Act
  hosts: karmada_control
  gather_facts: false
  tasks:
    - name: Write down who does what
      ansible.builtin.shell: >-
        echo {{{{ karmada_deployment.metadata.name }}}} {{{{ lookup('ansible.builtin.env', 'HOME') }}}} >>{here}/{verb}
{report}
"""
REPORT = """
    - name: Report
      ansible.builtin.copy:
        src: {here}/report.json
        dest: "{{{{ karmada_connection.report_output | realpath }}}}"
        mode: "0600"
"""


def shard(name: str) -> tuple[str, ...]:
    """Options of the operator of a shard, as the chart gives them."""
    return (f"--selector=site={name}", f"--lease-name=operator-{name}")


def create(place: Site, name: str, labels: dict[str, str]) -> None:
    head = {"apiVersion": manifest.API_VERSION, "kind": manifest.KIND, "metadata": {"name": name, "labels": labels}}
    code, answer = place.server.request("POST", place.path, {**head, "spec": {}})
    assert code == 201, answer


def live(place: Site, name: str) -> dict[str, Any]:
    code, found = place.server.request("GET", f"{place.path}/{name}")
    return found if code == 200 else {}


def is_done(place: Site, name: str) -> bool:
    conditions = live(place, name).get("status", {}).get("conditions", ())
    found = {each["type"]: each["status"] for each in conditions}
    return found.get("Ready") == "True" and found.get("Progressing") == "False"


def acted(place: Site, verb: str) -> list[tuple[str, str]]:
    """(object, operator) of each run, in order."""
    words = [line.split() for line in place.lines(verb)]
    return [(name, Path(home).relative_to(place.here).parts[0]) for name, home in words]


def test_each_of_two_operators_acts_on_its_own_objects_only(site: Site) -> None:
    for name, verb, report in (("install.yml", "installs", REPORT), ("remove.yml", "removals", "")):
        text = PLAYBOOK.format(here=site.here, verb=verb, report=report.format(here=site.here))
        (site.here / name).write_text(text)
    with operator(site, "berlin", *shard("berlin")), operator(site, "paris", *shard("paris")):
        create(site, "of-nobody", {})
        create(site, "of-berlin", {"site": "berlin"})
        create(site, "of-paris", {"site": "paris"})
        for name in ("of-berlin", "of-paris"):
            until(lambda name=name: is_done(site, name), name)  # type: ignore[misc]  # a value of the loop
        assert sorted(acted(site, "installs")) == [("of-berlin", "berlin"), ("of-paris", "paris")]
        # An edit is for its own alone, too.
        edit = {"spec": {"components": {"karmadaWebhook": {"replicas": 2}}}}
        site.server.request("PATCH", f"{site.path}/of-paris", edit, "application/merge-patch+json")
        until(lambda: acted(site, "installs")[2:] == [("of-paris", "paris")], "the run of the edit")
        until(lambda: is_done(site, "of-paris"), "its end")
        # With another label an object is handed over as it is: nobody removes it, and the other one looks at it.
        label = {"metadata": {"labels": {"site": "paris"}}}
        site.server.request("PATCH", f"{site.path}/of-berlin", label, "application/merge-patch+json")
        until(lambda: acted(site, "installs")[3:] == [("of-berlin", "paris")], "a look of the other one")
        assert live(site, "of-berlin")["metadata"]["finalizers"] == [FINALIZER]
        until(lambda: is_done(site, "of-berlin"), "its end")
        for name in ("of-berlin", "of-paris"):
            site.server.request("DELETE", f"{site.path}/{name}")
        until(lambda: not live(site, "of-berlin") and not live(site, "of-paris"), "their removal")
        assert sorted(acted(site, "removals")) == [("of-berlin", "paris"), ("of-paris", "paris")]
        # What nobody serves was touched by nobody.
        found = live(site, "of-nobody")
        assert "finalizers" not in found["metadata"]
        assert "status" not in found
        assert len(acted(site, "installs")) == 4
