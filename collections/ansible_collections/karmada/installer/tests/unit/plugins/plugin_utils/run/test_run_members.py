# SPDX-License-Identifier: Apache-2.0
"""Members and Secrets as a run reads them: each problem is of one member, and shows nothing secret."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import (
    Connection,
    cluster_from_secret,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.lease import LockLost
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members.plan import Clusters
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import (
    FakeCluster,
    fake_run,
)
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    document,
    state,
)
from ansible_collections.karmada.installer.tests.unit.support.writing_runs import fresh

# -- Secrets -----------------------------------------------------------------------------------------------------------


def test_a_directory_stands_for_the_secrets_of_a_file_run(tmp_path: Path) -> None:
    (tmp_path / "m1").mkdir()
    (tmp_path / "m1" / "kubeconfig").write_text("content")
    run = fresh()
    run.connection = Connection(secrets=str(tmp_path))
    assert run.secret("m1", "here") == {"kubeconfig": b"content"}
    for name in ("m2", "../m1", "m1/../m1", "/etc", "m1/kubeconfig"):
        with pytest.raises(ProblemsError, match=r"there is no directory|is not a name that a Secret can have"):
            run.secret(name, "here")


def test_without_a_directory_a_secret_that_is_not_there_is_told_with_its_field(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = {"name": "m1", "namespace": "karmada-system"}
    there = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"kubeconfig": "Y29udGVudA=="}}
    monkeypatch.setattr(Run, "home", FakeCluster("home cluster", there))
    run = fresh()
    run.deployment["metadata"]["namespace"] = "karmada-system"
    assert run.secret("m1", "here") == {"kubeconfig": b"content"}
    with pytest.raises(ProblemsError, match=r"spec\.x: there is no Secret karmada-system/m2"):
        run.secret("m2", "spec.x")


def test_a_directory_stands_for_the_config_maps_of_a_file_run(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "policy.yaml").write_text("text")
    for name, expected in (("own", {"own": {"policy.yaml": "text"}}), ("other", {})):
        run = fake_run(document({"audit": {"configMapRef": {"name": name}}}), FakeCluster("host"))
        run.connection = Connection(config_maps=str(tmp_path))
        assert run.config_maps == expected
    assert fresh().config_maps == {}


def test_without_a_directory_config_maps_are_read_where_the_document_is(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own", "namespace": "karmada"}}
    home = FakeCluster("home cluster", {**there, "data": {"policy.yaml": "text"}})
    monkeypatch.setattr(Run, "home", home)
    for name, expected in (("own", {"own": {"policy.yaml": "text"}}), ("other", {})):
        run = fake_run(document({"audit": {"configMapRef": {"name": name}}}), FakeCluster("host"))
        assert run.config_maps == expected


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"kubeconfig": b"\xff"},
        {"kubeconfig": b"- 1"},
        {"kubeconfig": b"{"},
        {"server": b"https://x", "token": b"t"},
    ],
)
def test_a_secret_that_describes_no_cluster_is_refused_without_showing_it(files: dict[str, bytes]) -> None:
    with pytest.raises(ProblemsError) as refused:
        cluster_from_secret(files, None, "member m1", "spec.members[m1].secretRef")
    assert refused.value.problems[0].where.startswith("spec.members[m1].secretRef")


def _open(run: Run, who: str) -> Any:
    """Connect with the host cluster, or with the member m1."""
    if who == "host":
        run.place.__dict__.pop("host_cluster", None)
        return run.host_cluster
    with member_join.connected(run, run.spec.member_by_name["m1"]) as found:
        return found


def _refused(run: Run, who: str) -> str:
    with pytest.raises(ProblemsError) as refused:
        _open(run, who)
    (problem,) = refused.value.problems
    return str(problem)


@pytest.mark.parametrize(
    ("who", "field"), [("host", "spec.hostCluster.secretRef"), ("m1", "spec.members[m1].secretRef")]
)
def test_a_kubeconfig_that_cannot_be_used_is_named_by_its_file_or_its_secret(
    who: str, field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {
        "hostCluster": {"namespace": "karmada", "secretRef": {"name": "host"}},
        "members": [{"name": "m1", "mode": "Push", "secretRef": {"name": "m1"}}],
    }
    run = fake_run(document(spec), FakeCluster("host"))
    run.deployment["metadata"]["namespace"] = "site"
    (tmp_path / who).mkdir()
    (tmp_path / who / "kubeconfig").write_text("Hello, world")
    run.connection = Connection(secrets=str(tmp_path))
    assert f"{field} ({tmp_path}/{who}/kubeconfig): this is not a kubeconfig" in _refused(run, who)

    # Without that directory it is an object beside the document, wherever the control plane runs.
    run = fake_run(document(spec), FakeCluster("host"))
    run.deployment["metadata"]["namespace"] = "site"
    metadata = {"name": who, "namespace": "site"}
    home = FakeCluster("home", {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"kubeconfig": ""}})
    monkeypatch.setattr(Run, "home", home)
    assert f"{field} (Secret site/{who}, key kubeconfig): the kubeconfig is empty" in _refused(run, who)


# -- members -----------------------------------------------------------------------------------------------------------


def registered(**ids: str) -> Clusters:
    return Clusters.of({"metadata": {"name": name}, "spec": {"id": each}} for name, each in ids.items())


def test_one_cluster_has_one_name_and_one_name_one_cluster() -> None:
    here = registration.Registration("id-1", "https://192.0.2.1")
    member_join.check_identity("m1", here, Clusters())
    member_join.check_identity("m1", here, registered(m1="id-1", m2="id-2"))
    with pytest.raises(ProblemsError, match="registered already, as m2"):
        member_join.check_identity("m1", here, registered(m2="id-1"))
    with pytest.raises(ProblemsError, match="belongs to another cluster"):
        member_join.check_identity("m1", here, registered(m1="id-2"))


def test_one_member_that_fails_spoils_no_other() -> None:
    def work(entry: Any, outcome: member_join.Outcome) -> None:
        outcome.on_member.append(member_join.Change(Any, "created"))  # type: ignore[arg-type]
        if entry.name == "m2":
            raise ProblemsError(member_join.Problem("no answer", "m2", "mend it", reason=Reason.MEMBER_UNREACHABLE))

    found = member_join.of_each([MemberEntry({"name": f"m{number}"}) for number in (1, 2, 3)], work)
    assert [outcome.name for outcome in found] == ["m1", "m2", "m3"]
    assert [bool(outcome.problem) for outcome in found] == [False, True, False]
    assert all(outcome.changes for outcome in found), "what was changed before it failed stays known"


def test_fifteen_members_that_hang_keep_no_sound_one_waiting() -> None:
    """The guide says so: they end after the last sound one here, which stands behind them in the document."""
    hanging = [f"hangs-{number}" for number in range(15)]
    sound = [f"sound-{number}" for number in range(20)]
    done: list[str] = []
    all_done = threading.Event()

    def work(entry: Any, _outcome: Any) -> None:
        if entry.name in hanging:
            assert all_done.wait(60), f"{len(done)} of {len(sound)} had their turn"
            return
        done.append(entry.name)
        if len(done) == len(sound):
            all_done.set()

    found = member_join.of_each([MemberEntry({"name": name}) for name in (*hanging, *sound)], work)
    assert [outcome.problem for outcome in found] == [""] * len(found)


@pytest.mark.parametrize(
    "error",
    [
        RecursionError("maximum recursion depth exceeded"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        ValueError("month must be in 1..12"),
        KeyError("status"),
        AttributeError("'str' object has no attribute 'get'"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_goes_wrong_with_one_member_is_its_own_problem(error: Exception) -> None:
    traces: list[str] = []

    def work(entry: Any, outcome: member_join.Outcome) -> None:
        outcome.on_member.append(member_join.Change(Any, "created"))  # type: ignore[arg-type]
        if entry.name == "m2":
            raise error

    found = member_join.of_each([MemberEntry({"name": f"m{number}"}) for number in (1, 2, 3)], work, traces.append)
    assert [bool(outcome.problem) for outcome in found] == [False, True, False]
    assert found[1].name == "m2"
    assert found[1].problem.startswith("what it holds or answers"), "who shows it puts the name before it"
    assert type(error).__name__ in found[1].problem
    assert "-vvv" in found[1].next_step
    assert found[1].changes, "what was changed before it failed stays known"
    (trace,) = traces
    assert "in work" in trace, "whoever looks for a defect finds where it is"


def test_what_an_error_quotes_is_shown_without_secrets_and_without_what_a_terminal_obeys() -> None:
    def work(_entry: Any, _outcome: Any) -> None:
        raise ValueError("\x1b]0;owned\x07cannot read password=hunter22\r\n" + "x" * 5000)

    traces: list[str] = []
    (found,) = member_join.of_each([MemberEntry({"name": "m1"})], work, traces.append)
    assert "cannot read password=<redacted>" in found.problem
    assert found.problem.isprintable()
    assert len(found.problem) < 1000
    assert "hunter22" not in traces[0] + found.problem
    assert "\x1b" not in traces[0]


def test_a_lock_that_is_lost_is_of_the_whole_run() -> None:
    def work(_entry: Any, _outcome: Any) -> None:
        raise LockLost("somebody else has it")

    with pytest.raises(LockLost):
        member_join.of_each([MemberEntry({"name": "m1"})], work)


def test_how_a_member_was_joined_is_remembered() -> None:
    entry = {"name": "m1", "mode": "Push", "secretRef": {"name": "s"}, "context": "c", "labels": {"a": "b"}}
    reference = member_join.Ref("v1", "Secret", "x", "karmada-cluster")
    after = member_join.recorded(state(), MemberEntry(entry), [member_join.Change(reference, "created", "uid-1")])
    assert after.members == {"m1": {"mode": "Push", "secretRef": {"name": "s"}, "context": "c", "onLeave": "Retain"}}
    assert after.uids("member/m1") == {"uid-1"}
    assert json.dumps(after.members)


def test_a_cluster_is_known_by_its_system_namespace() -> None:
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "id-1"}}
    found = member_join.registration_of(FakeCluster("m1", system, server="https://192.0.2.9:6443"))  # type: ignore[arg-type]
    assert found == registration.Registration("id-1", "https://192.0.2.9:6443")
    with pytest.raises(ProblemsError, match="no namespace kube-system"):
        member_join.registration_of(FakeCluster("m1"))  # type: ignore[arg-type]
