# SPDX-License-Identifier: Apache-2.0
"""Journal of a run, wherever the installer's state is stored. Documentation: the module of the same name."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from ansible.plugins.action import ActionBase
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD, KARMADA_APISERVER
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import members_on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.members import former_connections
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import host_preflight
from ansible_collections.karmada.installer.plugins.plugin_utils.run import inventory_variables
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import refusal_of
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_copy import HostCopy
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_observation import Lost
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run

#: States for one copy, on a host. ``released`` is for both: a host has a lock, too.
OF_HOSTS = ("written", "kept", "absent")
EVENTS = ("etcd_bootstrapped", "hosts_left", "restarted")
OPTIONS: dict[str, Any] = {
    "state": {
        "type": "str",
        "required": True,
        "choices": ["chosen", "opened", "noted", "written", "kept", "closed", "released", "absent"],
    },
    "event": {"type": "str", "choices": list(EVENTS)},
    "silence": {"type": "int"},
    "asked": {"type": "bool", "default": False},
    "required": {"type": "bool", "default": True},
    "write": {"type": "bool", "default": False},
}


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core ships no types
    """Journal step, taken with the state of the control plane or with the copy on one host."""

    TRANSFERS_FILES = False
    OPTIONS: ClassVar[dict[str, Any]] = OPTIONS

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the step; a task for a host, or delegated to one, is about the copy and the lock on that host."""
        state = self._task.args.get("state")
        for_host = self._task.delegate_to or inventory_variables.is_plain_host(task_vars or {})
        part = OnHost if state in OF_HOSTS or (state == "released" and for_host) else OfControlPlane
        step = part(
            task=self._task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        found: dict[str, Any] = step.run(tmp, task_vars)
        return found


class OfControlPlane(KarmadaAction):
    """State of the control plane as a whole: which copy a run continues from, and how far it has come."""

    OPTIONS: ClassVar[dict[str, Any]] = OPTIONS

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Take the step; as the journal is bookkeeping, none is a change of the control plane."""
        state, due, found = arguments["state"], False, dict[str, bool]()
        if state == "chosen" and run.store.later:
            _tell_kept_by_few(run)
            run.save(run.state)
        elif state == "opened":
            due = run.begin(asked=arguments["asked"])
            views = [run.on_host(name) for name in run.hosts]
            found = {
                "members_answer": all(each.answers([ETCD.name]) for each in views),
                "api_servers_answer": all(each.answers([KARMADA_APISERVER.name]) for each in views),
            }
        elif state == "noted" and not run.check:
            due = _note(run, str(arguments["event"]))
        elif state in ("closed", "released") and not run.check:
            due = state == "closed" and run.finish()
            run.store.release_lock()
        return {"changed": False, "due": due, **found}


def _tell_kept_by_few(run: Run) -> None:
    """Have the report say which hosts alone had a state, which all hosts have at the end."""
    for name, text in ({} if run.check else host_preflight.kept_by_few(run)).items():
        told = run.observed[name].told
        if text not in told:
            run.handover.note(name, told=(*told, text))


def _note(run: Run, event: str) -> bool:
    """Record a fact that later runs need; other steps write it to the hosts.

    Returns whether the hosts must have it before anything else happens: whoever does not know that etcd has begun its
    life would have it begin another one. All else that is noted, another run would see.
    """
    first = event == "etcd_bootstrapped" and not run.state.etcd.bootstrapped
    if event == "etcd_bootstrapped":
        if first:
            run.etcd_bootstrapped()
        members_on_hosts.note(run)
    elif event == "hosts_left":
        run.hosts_left()
    elif event == "restarted":
        former_connections.ended(run)
    return first


class OnHost(HostCopy):
    """Copy of the state on one host, and the lock there."""

    OPTIONS: ClassVar[dict[str, Any]] = OPTIONS

    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Write the state of this run, delete the copy, renew the lock, or release it."""
        if arguments["state"] == "kept":
            return {"changed": False, **self.keep_lock(arguments.get("silence"))}
        return self._carried(arguments)

    def _carried(self, arguments: dict[str, Any]) -> dict[str, Any]:
        run, state = self.karmada, str(arguments["state"])
        if state == "absent" and not self.leaves and run.spec.deletion_policy == "Retain":
            # It stays with the data, and includes what this run has learnt.
            state = "written"
        seen = self.seen
        if state == "written" and not self.leaves and run.hosts[self.host_name].is_of_members:
            # It contains keys of authorities. A host that was part of the control plane before may still have it.
            if not seen.stored.serial:
                return {"changed": False}
            state = "absent"
        releases = state == "released"
        writes = state == "written" or (releases and arguments.get("write", False))
        # A host is also released where no state counts: that is why the run has ended.
        stored = self.state_of_run(needed=arguments["required"]) if writes or not releases else None
        if self._task.check_mode or (not releases and stored is None):
            return {"changed": False}
        lacks = writes and self.state_to_write(needed=arguments["required"]) is not None
        if stored and state == "written" and not lacks:
            return {"changed": False}
        if seen.refusal:
            # It was unreachable when this run began, or belonged to somebody else.
            return {"changed": False}
        more = self.written(stored) if stored and lacks else {}
        act = partial(self.on_host, "_host_state", name=run.name, state=state, holder=run.holder, **more)
        if arguments["required"]:
            found = act()
        else:
            found, refusal = refusal_of(act)
            if refusal:
                self.note(lost=Lost(self._task.name, refusal))
                return {"changed": False}
        if stored and lacks and not found.get("failed"):
            self.note_written(stored)
        return {**found, "changed": bool(found.get("changed")) and state == "absent"}
