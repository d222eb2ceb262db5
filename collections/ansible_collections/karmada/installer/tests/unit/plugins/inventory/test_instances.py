# SPDX-License-Identifier: Apache-2.0
"""``instances: all``: every control plane of a namespace or of a cluster, and the one that a run works on."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import inventory_source
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.shared_clients import SharedClients
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registered
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi

OBJECTS = "apis/installer.karmada.io/v1alpha1/karmadadeployments"
CANARY = Path("/tmp/karmada-installer-was-here-instances")
ON_HOSTS = {
    "mode": "Binary",
    "hosts": [{"name": "cp1", "address": "192.0.2.1"}],
    "endpoint": {"type": "External", "host": "karmada.example.com"},
    "ssh": {"user": "karmada", "privateKeySecretRef": {"name": "ssh"}},
    "members": [{"name": "m3", "secretRef": {"name": "a"}}],
}
#: Notes which hosts a play finds, and what they have.
PLAY = """\
- name: Read the document
  ansible.builtin.import_playbook: {begin}
- name: Use it
  hosts: karmada_in_pods:karmada_on_hosts
  gather_facts: false
  tasks:
    - name: Show it
      ansible.builtin.debug:
        msg: "found {{{{ inventory_hostname }}}}; {{{{ groups_of_it }}}}; {{{{ name }}}}; {{{{ all }}}}; {{{{ key }}}}"
      vars:
        groups_of_it: "{{{{ group_names | join(' ') }}}}"
        name: "{{{{ karmada_deployment.metadata.name | default('') }}}}"
        all: "{{{{ groups.karmada_hosts | join(' ') }}}}"
        key: "{{{{ ansible_ssh_private_key_file | default('') }}}}"
"""


def instance(namespace: str, name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "installer.karmada.io/v1alpha1",
        "kind": "KarmadaDeployment",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": spec or {},
    }


def member(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "secretRef": {"name": name}, **more}


@pytest.fixture
def api() -> Iterator[StubApi]:
    with StubApi() as stub:
        stub.types["installer.karmada.io/v1alpha1"] = [
            {"name": "karmadadeployments", "kind": "KarmadaDeployment", "namespaced": True, "verbs": ["list", "get"]}
        ]
        yield stub


@pytest.fixture
def three(api: StubApi) -> StubApi:
    """Two in pods in two namespaces, one on hosts, and one that is not valid."""
    one = instance("team-a", "prod", {"members": [member("m1", region="eu"), member("m2")]}, labels={"tier": "prod"})
    api.put(OBJECTS, {**one, "status": {"phase": "Completed", "karmadaVersion": "v1.18.2"}})
    api.put(OBJECTS, instance("team-b", "prod", {"members": [member("m1")]}, labels={"tier": "test"}))
    api.put(OBJECTS, instance("team-b", "hosts", ON_HOSTS))
    api.put(OBJECTS, instance("team-b", "odd", {"mode": "Sideways"}))
    return api


def site(directory: Path, api: StubApi, **options: Any) -> str:
    (directory / "kubeconfig").write_text(json.dumps(api.kubeconfig()), encoding="utf-8")
    path = directory / "site.karmada.yml"
    source = {"plugin": "karmada.installer.karmada", "instances": "all", "kubeconfig": "kubeconfig", **options}
    path.write_text(yaml.safe_dump(source), encoding="utf-8")
    return str(path)


def ran(directory: Path, source: str) -> subprocess.CompletedProcess[str]:
    return ansible_commands.run("ansible-inventory", "-i", source, "--list", "--export", directory=directory)


def listed(directory: Path, source: str, *, warned: bool = False) -> dict[str, Any]:
    done = ran(directory, source)
    assert done.returncode == 0, done.stderr
    assert ("WARNING" in done.stderr) is warned, done.stderr
    found: dict[str, Any] = json.loads(done.stdout, object_hook=_without_marks)
    return found


def _without_marks(value: dict[str, Any]) -> Any:
    return value["__ansible_unsafe"] if set(value) == {"__ansible_unsafe"} else value


def hosts(found: dict[str, Any], group: str) -> list[str]:
    return sorted(found.get(group, {}).get("hosts", []))


def refusal(path: str) -> str:
    with pytest.raises(ProblemsError) as error:
        inventory_source.read_options(path)
    return str(error.value)


# -- the inventory -----------------------------------------------------------------------------------------------------


def test_every_object_is_a_host_with_its_groups_by_one_list(tmp_path: Path, three: StubApi) -> None:
    found = listed(tmp_path, site(tmp_path, three))
    lists = [path for _, path in three.requests if "karmadadeployments" in path]
    assert len(lists) == 1
    assert hosts(found, "karmada_instances") == ["team-a.prod", "team-b.hosts", "team-b.prod"]
    assert hosts(found, "karmada_broken") == ["team-b.odd"]
    assert hosts(found, "karmada_namespace_team_b") == ["team-b.hosts", "team-b.prod"]
    assert hosts(found, "karmada_mode_container") == ["team-a.prod", "team-b.prod"]
    assert hosts(found, "karmada_mode_binary") == ["team-b.hosts"]
    assert hosts(found, "karmada_phase_completed") == hosts(found, "karmada_version_v1_18_2") == ["team-a.prod"]
    assert hosts(found, "karmada_label_tier_test") == ["team-b.prod"]
    assert hosts(found, "karmada_all_members") == [
        *("m1@team-a.prod", "m1@team-b.prod", "m2@team-a.prod", "m3@team-b.hosts"),
    ]
    assert hosts(found, "karmada_all_hosts") == ["cp1@team-b.hosts"]
    assert hosts(found, "karmada_instance_team_b_hosts") == ["cp1@team-b.hosts", "m3@team-b.hosts", "team-b.hosts"]
    for group in ("karmada_in_pods", "karmada_on_hosts", "karmada_hosts", "karmada_members"):
        assert hosts(found, group) == [], "no play of a verb works on any by itself"
    variables = found["_meta"]["hostvars"]
    assert variables["team-a.prod"]["karmada_deployment"]["metadata"]["name"] == "prod"
    assert variables["team-a.prod"]["karmada_connection"]["object_uid"]
    assert variables["team-a.prod"]["karmada_connection"]["beside"].endswith("team-a.prod")
    assert variables["m1@team-a.prod"]["karmada_member"]["region"] == "eu"
    assert 'mode: is "Sideways"' in variables["team-b.odd"]["karmada_broken_reason"]
    assert {each["reason"] for each in variables["team-b.odd"]["karmada_problems"]} == {"InvalidDocument"}


def test_a_namespace_and_a_selector_choose(tmp_path: Path, three: StubApi) -> None:
    found = listed(tmp_path, site(tmp_path, three, namespace="team-b", label_selector="tier=test"))
    assert hosts(found, "karmada_instances") == ["team-b.prod"]
    assert hosts(found, "karmada_broken") == []
    assert any("namespaces/team-b/karmadadeployments" in path for _, path in three.requests)


@pytest.mark.parametrize(
    "query",
    [
        "[?member.region=='eu']",
        "[?instance=='prod' && namespace=='team-a' && name=='m1']",
        "[?namespace=='team-a'] | [0:1]",
    ],
)
def test_a_query_chooses_members_by_what_they_are(query: str, tmp_path: Path, three: StubApi) -> None:
    found = listed(tmp_path, site(tmp_path, three, members_query=query))
    assert hosts(found, "karmada_all_members") == ["m1@team-a.prod"]


@pytest.mark.parametrize("query", ["[?member.region]", "[?member.region].name"])
def test_a_query_chooses_members_of_one_document_too_where_names_say_enough(query: str, tmp_path: Path) -> None:
    document = instance("karmada", "prod", {"members": [member("m1", region="eu"), member("m2")]})
    (tmp_path / "prod.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    source = {"plugin": "karmada.installer.karmada", "manifest": "prod.yaml", "members_query": query}
    (tmp_path / "site.karmada.yml").write_text(yaml.safe_dump(source), encoding="utf-8")
    found = listed(tmp_path, str(tmp_path / "site.karmada.yml"))
    assert hosts(found, "karmada_members_join") == ["m1"]
    assert len(found["_meta"]["hostvars"]["karmada_control"]["karmada_deployment"]["spec"]["members"]) == 2


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("[?", "'[?' cannot be evaluated"),
        ("length(@)", "gives int, and no list"),
        ("[].member", "gives a list of something else"),
        ("nothing(@)", "cannot be evaluated"),
        ("@.x", "gives NoneType, and no list"),
        # One of this name has a region, and another one, of another control plane, has none.
        ("[?member.region].name", "gives names, and members of several control planes may have the same one"),
        ("[?member.region].name", "Have it give the members themselves: [?ready] in place of [?ready].name."),
    ],
    ids=["syntax", "number", "others", "function", "null", "names", "in place of names"],
)
def test_a_query_that_cannot_be_used_is_refused(query: str, told: str, tmp_path: Path, three: StubApi) -> None:
    done = ran(tmp_path, site(tmp_path, three, members_query=query))
    assert done.returncode != 0
    assert told in " ".join(done.stderr.split())
    assert "site.karmada.yml: members_query" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"name": "prod"}, "names all objects (instances), and what is said of one only (name)"),
        ({"manifest": "prod.yaml"}, "what is said of one only (manifest)"),
        ({"kubeconfig_output": "x"}, "what is said of one only (kubeconfig_output)"),
        ({"uid": "x", "generation": "1"}, "what is said of one only (uid, generation)"),
        ({"instances": "some"}, 'instances is "some"'),
    ],
    ids=["name", "manifest", "kubeconfig", "decided", "some"],
)
def test_what_is_said_of_one_is_not_said_of_all(
    options: dict[str, Any], told: str, tmp_path: Path, api: StubApi
) -> None:
    assert told in refusal(site(tmp_path, api, **options))


def test_a_selector_needs_instances(tmp_path: Path, api: StubApi) -> None:
    source = site(tmp_path, api, namespace="a", name="b", label_selector="tier=prod")
    text = Path(source).read_text(encoding="utf-8").replace("instances: all\n", "")
    Path(source).write_text(text, encoding="utf-8")
    assert "label_selector is of no use without instances" in refusal(source)


def test_a_selector_that_is_none_is_refused_here_or_by_the_server(tmp_path: Path, three: StubApi) -> None:
    done = ran(tmp_path, site(tmp_path, three, label_selector="tier;prod"))
    assert done.returncode != 0
    assert "'tier;prod' is no selector of labels" in done.stderr
    three.faults.append(Fault("status", path="karmadadeployments", status=400, times=9))
    done = ran(tmp_path, site(tmp_path, three, label_selector="tier in"))
    assert done.returncode != 0
    assert "'tier in' is no selector of labels" in done.stderr


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (403, "Write the namespace that may be read"),
        (401, "cannot be read"),
        # One that is not asked again, as 500 would be for a minute and a half.
        (400, "cannot be read"),
    ],
)
def test_a_server_that_gives_no_list_fails_the_inventory(
    status: int, told: str, tmp_path: Path, three: StubApi
) -> None:
    three.faults.append(Fault("status", path="karmadadeployments", status=status, times=99))
    done = ran(tmp_path, site(tmp_path, three))
    assert done.returncode != 0
    assert told in " ".join(done.stderr.split())
    assert "_meta" not in done.stdout


def test_a_server_that_is_away_or_has_no_such_kind_fails_the_inventory(tmp_path: Path, api: StubApi) -> None:
    api.types.clear()
    done = ran(tmp_path, site(tmp_path, api))
    assert done.returncode != 0
    assert "it does not know the kind KarmadaDeployment" in done.stderr


def test_no_object_is_no_error_and_is_said(tmp_path: Path, api: StubApi) -> None:
    done = ran(tmp_path, site(tmp_path, api))
    assert done.returncode == 0
    assert "there is no KarmadaDeployment that it asks for" in " ".join(done.stderr.split())


def test_strings_of_objects_are_never_templates(tmp_path: Path, api: StubApi) -> None:
    CANARY.unlink(missing_ok=True)
    hostile = "{{ lookup('pipe', 'touch " + str(CANARY) + "') }}"
    spec = {"hostCluster": {"context": hostile}, "members": [member("m1", context=hostile)]}
    api.put(OBJECTS, instance("a", "prod", spec, annotations={"x": hostile}))
    api.put(OBJECTS, instance("a", "odd", {"mode": hostile}))
    source = site(tmp_path, api)
    arguments = ("-i", source, "-m", "ansible.builtin.debug", "-a", "msg={{ hostvars[inventory_hostname] }}")
    shown = ansible_commands.run("ansible", "a.prod,m1@a.prod", *arguments, directory=tmp_path)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "lookup('pipe', 'touch" in shown.stdout
    for chosen, code in (("a/prod", 0), ("a/odd", 2), (hostile, 2)):
        done = played(tmp_path, source, "-e", json.dumps({"karmada_instance": chosen}))
        assert done.returncode == code, done.stdout + done.stderr
    assert not CANARY.exists()


def test_names_that_meet_as_names_of_groups_are_no_group(tmp_path: Path, api: StubApi) -> None:
    api.put(OBJECTS, instance("a-b", "c", labels={"tier": "x.y", "one": "1"}))
    api.put(OBJECTS, instance("a", "b-c", labels={"tier": "x-y"}))
    done = ran(tmp_path, site(tmp_path, api))
    said = " ".join(done.stderr.split())
    assert "a-b/c and a/b-c would both be the group karmada_instance_a_b_c, so there is none" in said
    assert "tier/x-y and tier/x.y would both be the group karmada_label_tier_x_y" in said
    found = json.loads(done.stdout)
    assert "karmada_instance_a_b_c" not in found
    assert "karmada_label_tier_x_y" not in found
    assert hosts(found, "karmada_label_one_1") == ["a-b.c"]


# -- members as they are registered ------------------------------------------------------------------------------------


def test_registered_members_of_all_are_asked_for_at_once_and_all_that_fail_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources = [inventory_source.Source(instance("a", name), {}, "live") for name in ("one", "two", "three")]

    def live(source: inventory_source.Source, _clients: SharedClients) -> registered.Registered:
        name = source.deployment["metadata"]["name"]
        if name != "one":
            raise ProblemsError(
                Problem(f"{name} does not answer", "control plane", reason=Reason.API_SERVER_UNREACHABLE)
            )
        return registered.Registered(owner=name)

    monkeypatch.setattr(registered, "live", live)
    clients = SharedClients()
    with pytest.raises(ProblemsError) as error:
        registered.live_of_all(sources, clients, at_once=8)
    assert {str(each) for each in error.value.problems} == {
        "a/two: control plane: two does not answer",
        "a/three: control plane: three does not answer",
    }
    assert [each.owner for each in registered.live_of_all(sources[:1] * 2, clients, at_once=8)] == ["one", "one"]


@pytest.mark.parametrize("installed", [True, False])
def test_a_control_plane_on_hosts_is_reached_by_the_secret_beside_its_object(
    installed: bool, tmp_path: Path, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubeconfig of the environment may be that of another one."""
    monkeypatch.setenv("KARMADA_KUBECONFIG", "/nowhere")
    api.types["v1"] = [
        {"name": "secrets", "kind": "Secret", "namespaced": True, "verbs": ["get"]},
        {"name": "namespaces", "kind": "Namespace", "namespaced": False, "verbs": ["list", "get"]},
    ]
    api.types["cluster.karmada.io/v1alpha1"] = [
        {"name": "clusters", "kind": "Cluster", "namespaced": False, "verbs": ["list", "get"]}
    ]
    api.put(OBJECTS, {**instance("b", "hosts", ON_HOSTS, labels={"a": "b"}), "status": {"installed": installed}})
    source = site(tmp_path, api, membership="live")
    if not installed:
        assert hosts(listed(tmp_path, source), "karmada_all_members") == ["m3@b.hosts"]
        return
    done = ran(tmp_path, source)
    assert done.returncode != 0
    assert "Secret b/hosts-admin-config: it is not there" in " ".join(done.stderr.split())
    kubeconfig = base64.b64encode(json.dumps(api.kubeconfig()).encode()).decode()
    secret = {"metadata": {"name": "hosts-admin-config", "namespace": "b"}, "data": {"kubeconfig": kubeconfig}}
    api.put("api/v1/secrets", {"apiVersion": "v1", "kind": "Secret", **secret})
    other = {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "other"}, "spec": {}}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    api.put("apis/cluster.karmada.io/v1alpha1/clusters", {**other, "status": ready})
    found = listed(tmp_path, source)
    assert hosts(found, "karmada_all_members") == ["m3@b.hosts", "other@b.hosts"]
    assert found["_meta"]["hostvars"]["other@b.hosts"]["karmada_member_ready"] is True
    assert "t0ps3cret" not in json.dumps(found)
    chosen = listed(tmp_path, site(tmp_path, api, membership="live", members_query="[?ready]"))
    assert hosts(chosen, "karmada_all_members") == ["other@b.hosts"]
    cache = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": str(tmp_path / "cache")}
    asked = []
    for more in ({}, {}, {"label_selector": "a=b"}):
        before = sum("clusters" in path for _, path in api.requests)
        listed(tmp_path, site(tmp_path, api, membership="live", **cache, **more))
        asked.append(sum("clusters" in path for _, path in api.requests) - before)
    assert asked[1] == 0, "it is in the cache"
    assert asked[0] == asked[2] > 0, "another selector asks for others"
    assert "t0ps3cret" not in "".join(path.read_text() for path in (tmp_path / "cache").iterdir())


# -- the one that a run works on ---------------------------------------------------------------------------------------


def played(directory: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    begin = ansible_commands.CHECKOUT / "collections/ansible_collections/karmada/installer/playbooks/_begin.yml"
    (directory / "play.yml").write_text(PLAY.format(begin=begin), encoding="utf-8")
    return ansible_commands.run(
        *("ansible-playbook", "-i", source, "play.yml", *arguments),
        directory=directory,
        ANSIBLE_CALLBACK_RESULT_FORMAT="yaml",
    )


@pytest.mark.parametrize("arguments", [(), ("--check",)], ids=["run", "check"])
def test_a_run_finds_the_chosen_one_under_the_names_of_one(
    arguments: tuple[str, ...], tmp_path: Path, three: StubApi
) -> None:
    done = played(tmp_path, site(tmp_path, three), "-e", "karmada_instance=team-b/prod", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert said.count("found ") == 1
    assert "found karmada_control; karmada_in_pods; prod;" in said
    assert "changed=0" in said


def test_a_run_on_hosts_finds_them_under_their_own_names(tmp_path: Path, three: StubApi) -> None:
    (tmp_path / "secrets/ssh").mkdir(parents=True)
    (tmp_path / "secrets/ssh/ssh-privatekey").write_text("none", encoding="utf-8")
    source = site(tmp_path, three, secrets="secrets")
    done = played(tmp_path, source, "-e", "karmada_instance=team-b/hosts")
    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert "found karmada_control; karmada_on_hosts; hosts; cp1;" in said
    assert "found cp1; karmada_control_plane karmada_etcd karmada_hosts karmada_on_hosts; ; cp1; " in said
    assert "; cp1; secrets/ssh/ssh-privatekey" in said


def test_files_of_a_run_are_those_of_that_run(tmp_path: Path, three: StubApi) -> None:
    """Where they are is a template in the inventory."""
    three.types["v1"] = [{"name": "secrets", "kind": "Secret", "namespaced": True, "verbs": ["get"]}]
    key = base64.b64encode(b"a key\n").decode()
    secret = {"metadata": {"name": "ssh", "namespace": "team-b"}, "data": {"ssh-privatekey": key}}
    three.put("api/v1/secrets", {"apiVersion": "v1", "kind": "Secret", **secret})
    done = played(tmp_path, site(tmp_path, three), "-e", "karmada_instance=team-b/hosts")
    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert re.search(r"; cp1; /\S+/ssh-privatekey", said), said
    assert "{{" not in said


def test_the_report_without_a_choice_is_a_table_of_all(tmp_path: Path, three: StubApi) -> None:
    source = site(tmp_path, three)
    done = ansible_commands.run("ansible-playbook", "-i", source, "karmada.installer.report", directory=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    first = lines.index(next(each for each in lines if each.startswith("team-b/odd")))
    assert lines[first].startswith("team-b/odd    cannot be read  ")
    assert 'mode: is "Sideways"' in lines[first]
    assert lines[first + 1 : first + 4] == [
        "team-a/prod   Completed       v1.18.2, Container, 2 members",
        "team-b/hosts  no phase yet    newest, Binary, 1 member",
        "team-b/prod   no phase yet    newest, Container, 1 member",
    ]
    assert "changed=0" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            (),
            "has several control planes; it has team-a/prod, team-b/hosts, team-b/prod, team-b/odd (broken)",
        ),
        (("-e", "karmada_instance="), "choose one with -e karmada_instance=<namespace>/<name>, in AWX by the survey"),
        (("-e", "karmada_instance=team-b/prd"), "did you mean team-b/prod?"),
        (("-e", "karmada_instance=team-b/odd"), 'mode: is "Sideways"'),
        (("-e", "karmada_instance=team-b/prod", "--limit", "team-b.prod"), "it chooses among several control planes"),
    ],
    ids=["none", "empty", "unknown", "broken", "limit"],
)
def test_a_run_without_a_choice_changes_nothing(
    arguments: tuple[str, ...], told: str, tmp_path: Path, three: StubApi
) -> None:
    done = played(tmp_path, site(tmp_path, three), *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert told in " ".join(done.stdout.split())
    assert "found " not in done.stdout


def test_the_only_one_needs_no_choice_and_no_other_is_taken(tmp_path: Path, three: StubApi) -> None:
    source = site(tmp_path, three, namespace="team-a")
    done = played(tmp_path, source)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "found karmada_control; karmada_in_pods; prod;" in " ".join(done.stdout.split())
    other = played(tmp_path, source, "-e", "karmada_instance=team-b/prod")
    assert other.returncode == 2
    assert 'there is no "team-b/prod" in the inventory; it has team-a/prod' in " ".join(other.stdout.split())


def test_the_only_one_that_cannot_be_read_is_told_with_its_reason(tmp_path: Path, three: StubApi) -> None:
    three.objects.pop((OBJECTS, "team-b", "prod"))
    three.objects.pop((OBJECTS, "team-b", "hosts"))
    done = played(tmp_path, site(tmp_path, three, namespace="team-b"))
    assert done.returncode == 2
    assert 'mode: is "Sideways"' in " ".join(done.stdout.split())


def test_an_inventory_of_one_document_refuses_another_choice(tmp_path: Path) -> None:
    (tmp_path / "prod.yaml").write_text(yaml.safe_dump(instance("karmada", "prod")), encoding="utf-8")
    source = tmp_path / "site.karmada.yml"
    source.write_text("plugin: karmada.installer.karmada\nmanifest: prod.yaml\n", encoding="utf-8")
    assert played(tmp_path, str(source), "-e", "karmada_instance=karmada/prod").returncode == 0
    done = played(tmp_path, str(source), "-e", "karmada_instance=karmada/test")
    assert done.returncode == 2
    assert 'it is "karmada/test", and the inventory has karmada/prod' in " ".join(done.stdout.split())


def test_a_cluster_without_objects_is_told_to_a_run(tmp_path: Path, api: StubApi) -> None:
    done = played(tmp_path, site(tmp_path, api))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "the inventory has no control plane" in " ".join(done.stdout.split())
