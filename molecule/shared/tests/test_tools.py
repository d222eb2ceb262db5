# SPDX-License-Identifier: Apache-2.0
"""The tools of the scenarios notice what they are there to notice."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from pathlib import Path

import audit
import interrupt
import measure
import pytest
import snapshot

TOOLS = Path(snapshot.__file__).parent
#: Much longer than anything takes on a busy machine.
IN_VAIN_SECONDS = 300


def _object(kind, name, **more):
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "a", "uid": "u"}, **more}


def _encoded(value):
    return base64.b64encode(value.encode()).decode()


def _differences(before, after, *, by_structure=False):
    return list(
        snapshot.differences(*({"host": snapshot.collect(each, by_structure=by_structure)} for each in (before, after)))
    )


def test_a_snapshot_tells_what_came_went_and_changed():
    before = [_object("ConfigMap", "goes"), _object("ConfigMap", "changes", data={"a": "1"})]
    after = [_object("ConfigMap", "comes"), _object("ConfigMap", "changes", data={"a": "2"})]
    assert _differences(before, after) == [
        '~ host: ConfigMap a/changes: data.a: "1" -> "2"',
        "+ host: ConfigMap a/comes",
        "- host: ConfigMap a/goes",
    ]


def test_an_object_that_was_made_anew_is_a_change():
    again = _object("ConfigMap", "same")
    again["metadata"]["uid"] = "other"
    assert _differences([_object("ConfigMap", "same")], [again]) != []
    assert _differences([_object("ConfigMap", "same")], [again], by_structure=True) == []


def test_status_leases_and_events_are_no_difference():
    before = [_object("Node", "n", status={"a": 1}), _object("Lease", "l", spec={"renewTime": "now"})]
    after = [_object("Node", "n", status={}), _object("Lease", "l", spec={"renewTime": "then"}), _object("Event", "e")]
    assert _differences(before, after) == []


def test_an_api_server_that_was_away_is_no_difference():
    def identity(uid):
        found = _object("Lease", "apiserver-x")
        found["metadata"].update(uid=uid, labels={"apiserver.kubernetes.io/identity": "kube-apiserver"})
        return found

    assert _differences([identity("1")], [identity("2")]) == []
    other = _object("Lease", "other")
    assert _differences([other], [{**other, "metadata": {**other["metadata"], "uid": "2"}}]) != []


def test_a_snapshot_holds_no_values_of_secrets():
    secret = _object("Secret", "s", data={"tls.key": _encoded("-----BEGIN PRIVATE KEY-----")})
    for by_structure in (False, True):
        assert secret["data"]["tls.key"] not in json.dumps(snapshot.collect([secret], by_structure=by_structure))


def test_structure_keeps_names_and_specs_and_drops_chance():
    def install(chance, replicas=1):
        labels = {"pod-template-hash": chance}
        owner = {"kind": "ReplicaSet", "name": f"api-{chance}", "uid": chance}
        pod = _object("Pod", f"api-{chance}-{chance[:5]}", spec={"replicas": replicas})
        pod["metadata"] |= {"labels": labels, "ownerReferences": [owner]}
        service = _object("Service", "api", spec={"clusterIP": chance, "ports": [{"port": 443, "nodePort": chance}]})
        state = _object("Secret", "state", data={
            "journal.json": _encoded(json.dumps({"operation": "install", "run": chance})),
            "owned.json": _encoded(json.dumps({"host": {"Namespace a": "0e984725-c51c-4bf4-9960-e1c80e27aba0"}})),
            "ca.key": _encoded(chance),
        })  # fmt: skip
        return [pod, service, state]

    assert _differences(install("7d4b9"), install("5f6c8"), by_structure=True) == []
    assert _differences(install("7d4b9"), install("5f6c8", replicas=2), by_structure=True) == [
        "~ host: Pod a/api-<hash>-<chance>: spec.replicas: 1 -> 2"
    ]


def test_a_missing_key_of_a_secret_is_a_difference_of_structure():
    one, two = (_object("Secret", "s", data=dict.fromkeys(keys, "")) for keys in (["a", "b"], ["a"]))
    assert _differences([one], [two], by_structure=True) != []


def test_keys_have_to_stay_the_same():
    before = {"s/tls.key": "1", "s/ca.key": "2"}
    assert snapshot.lost(before, {**before, "new/tls.key": "3"}) == []
    assert snapshot.lost(before, {"s/tls.key": "other"}) == ["gone: s/ca.key", "changed: s/tls.key"]
    assert snapshot.lost(before, {**before, "s/tls.key": "other"}, ["s/tls.key"]) == []
    assert snapshot.lost(before, before, ["s/tls.key"]) == ["not made anew: s/tls.key"]
    assert snapshot.lost(before, {"s/ca.key": "2"}, ["s/tls.key"]) == ["gone: s/tls.key"]


@pytest.mark.parametrize(
    ("changed", "counted"),
    [
        ({}, True),
        ({"verb": "get"}, False),
        ({"requestURI": "/api/v1/secrets?dryRun=All"}, False),
        ({"userAgent": "kubectl/v1"}, False),
        ({"objectRef": {"apiGroup": "authorization.k8s.io"}}, False),
        ({"objectRef": {"resource": "pods", "subresource": "portforward"}}, False),
        ({"responseStatus": {"code": 403}}, True),
    ],
)
def test_writes_are_told_from_questions(changed, counted):
    event = {
        "verb": "patch", "stage": "ResponseComplete", "requestURI": "/api/v1/secrets", "userAgent": "karmada-installer",
        "objectRef": {"resource": "secrets"}, "requestReceivedTimestamp": "now",
    } | changed  # fmt: skip
    assert bool(list(audit.writes([json.dumps(event) + "\n"], audit.OUR_AGENT))) is counted


@pytest.mark.parametrize(("namespace", "counted"), [("karmada-cluster", False), ("shop", True), (None, True)])
def test_writes_in_one_namespace_are_left_out(namespace, counted):
    event = {
        "verb": "delete", "stage": "ResponseComplete", "requestURI": "/x", "userAgent": "karmada-agent/v1",
        "objectRef": {"resource": "pods", "namespace": namespace}, "requestReceivedTimestamp": "now",
    }  # fmt: skip
    assert bool(list(audit.writes([json.dumps(event) + "\n"], "karmada", "karmada-cluster"))) is counted


def test_a_log_is_read_from_its_mark_or_anew(tmp_path):
    log = tmp_path / "audit.log"
    log.write_text("old\n")
    mark = audit.mark(log)
    log.write_text("old\nnew\n")
    assert list(audit.lines_since(log, mark)) == ["new\n"]
    (tmp_path / "other").write_text("rotated\n")
    (tmp_path / "other").rename(log)
    assert list(audit.lines_since(log, mark)) == ["rotated\n"]


def test_a_user_has_nothing_of_the_ansible_that_runs_the_scenario():
    assert measure.users_environment({"ANSIBLE_CONFIG": "x", "HOME": "/h", "KUBECONFIG": "k"}, {"A": "b"}) == {
        "HOME": "/h",
        "A": "b",
    }


def test_the_memory_of_a_run_is_that_of_its_largest_process(tmp_path):
    """Here of one that another one started, as forks of Ansible are."""
    large = f"x = b'a' * {150 * 2**20}"
    command = [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {large!r}])"]
    found = []
    for name, each in (("small", ["true"]), ("large", command)):
        told = tmp_path / name
        subprocess.run([sys.executable, measure.__file__, "run", "--memory", told, "--", *each], check=True)
        found.append(int(told.read_text()))
    assert found[0] < 100
    assert 150 < found[1] < 250


def test_the_newest_time_is_shown():
    lines = [json.dumps({"scenario": "s", "step": "install", "seconds": seconds}) for seconds in (9, 7)]
    assert [line.split() for line in measure.table(lines, "s")] == [["s", "install", "7.0", "s"]]


_ESCAPES = """
import os, subprocess, sys, time
middle = subprocess.Popen([sys.executable, "-c", '''
import subprocess, sys
orphan = subprocess.Popen(["sleep", "600"], start_new_session=True)
print("pid", orphan.pid, flush=True)
'''])
middle.wait()
print("ready", flush=True)
time.sleep(600)
"""


def test_a_killed_command_takes_everything_with_it(tmp_path):
    report = tmp_path / "report"
    interrupted = [sys.executable, TOOLS / "interrupt.py", "--at-line", "ready", "--report", report, "--"]
    done = subprocess.run(
        [*interrupted, sys.executable, "-c", _ESCAPES],
        capture_output=True, text=True, timeout=IN_VAIN_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 137
    orphan = int(done.stdout.split("pid ")[1].split()[0])
    found = json.loads(report.read_text())
    assert (found["killed"], found["processes"]) == (True, 2)
    deadline = time.monotonic() + IN_VAIN_SECONDS
    while orphan in interrupt.parents() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert orphan not in interrupt.parents()


#: Has a child in a session of its own, which ends with it or goes on.
_FORKS = """
import ctypes, os, signal, sys, time
first = os.getpid()
if os.fork() == 0:
    os.setsid()
    if sys.argv[1] == "ends":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("child", "but", "code", "survivors"),
    [("ends", "", 137, 0), ("goes-on", "", 98, 1), ("goes-on", "^ssh", 98, 1), ("goes-on", "goes-on", 137, 0)],
)
def test_a_first_process_that_is_killed_alone_shows_what_goes_on_without_it(tmp_path, child, but, code, survivors):
    report = tmp_path / "report"
    words = [sys.executable, TOOLS / "interrupt.py", "--at-line", "ready", "--report", report, "--first-alone"]
    words += ["--but", but, "--"]
    # The default is for ansible-playbook on a busy machine.
    patient = f"import interrupt, sys; interrupt.kill_first.__defaults__ = ({1.0 if survivors else IN_VAIN_SECONDS},)"
    words[1:2] = ["-c", f"{patient}; sys.exit(interrupt.main())"]
    done = subprocess.run(
        [*words, sys.executable, "-c", _FORKS, child], cwd=TOOLS,
        capture_output=True, text=True, timeout=IN_VAIN_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    found = json.loads(report.read_text())
    assert (found["processes"], len(found["survivors"])) == (2, survivors)
    assert ("It went on when its first process was gone" in done.stdout) is bool(survivors)


#: Ends in order when it is asked to, and its child with it.
_OBEYS = """
import os, signal, sys, time
child = os.fork()
if child == 0:
    time.sleep(600)
def end(number, frame):
    open("in-order", "w").close()
    os.kill(child, signal.SIGKILL)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
signal.signal(getattr(signal, "SIG" + sys.argv[1]), end)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("HUP", 129)])
def test_a_first_process_may_be_asked_to_end(tmp_path, name, code):
    words = [sys.executable, TOOLS / "interrupt.py", "--at-line", "ready", "--first-alone", "--signal", name, "--"]
    done = subprocess.run(
        ["nohup", *words, sys.executable, "-c", _OBEYS, name], cwd=tmp_path,
        capture_output=True, text=True, timeout=IN_VAIN_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert (tmp_path / "in-order").exists()


@pytest.mark.parametrize(("command", "code"), [("echo one; touch there; sleep 600", 137), ("exit 5", 5)])
def test_a_command_is_killed_when_its_witness_says_so(tmp_path, command, code):
    words = [sys.executable, TOOLS / "interrupt.py", "--when", "sh -c 'test -e there'", "--", "sh", "-c", command]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=IN_VAIN_SECONDS, check=False)
    assert done.returncode == code


@pytest.mark.parametrize(
    ("pattern", "beside", "code"),
    [("two", ["touch", "there"], 5), ("three", ["touch", "there"], 97), ("two", ["false"], 97)],
)
def test_something_happens_when_a_line_was_printed(tmp_path, pattern, beside, code):
    words = [sys.executable, TOOLS / "at_line.py", pattern, "--run", *beside, "--", "sh", "-c", "echo one two; exit 5"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=IN_VAIN_SECONDS, check=False)
    assert done.returncode == code
    assert (tmp_path / "there").exists() == (code == 5)


def test_descendants_are_found_over_generations():
    assert interrupt.descendants({2: 1, 3: 2, 4: 3, 9: 8}, 1) == [2, 3, 4]


COURSE = [(1.0, "PLAY [p] *"), (2.0, "TASK [a] *"), (8.0, "TASK [b] *"), (10.0, "TASK [c] *"), (11.0, "PLAY RECAP *")]


@pytest.mark.parametrize(
    ("share", "expected"), [(0, ("PLAY [p] *", 0)), (0.5, ("TASK [a] *", 3.0)), (0.9, ("TASK [b] *", 1.0))]
)
def test_a_share_of_a_course_is_a_task_and_a_time_in_it(share, expected):
    assert interrupt.within_course(COURSE, share) == expected


def test_a_task_that_is_faster_now_is_killed_at_its_end():
    trigger = interrupt.Trigger(task="TASK [a] *", after=60)
    for line, due in (("PLAY [p] *", False), ("TASK [a] *", False), ("ok: [x]", False), ("TASK [b] *", True)):
        trigger.see(line + "\n")
        assert trigger.due() is due


def test_the_lease_of_an_api_server_is_named_by_its_pod():
    def lease(chance):
        found = _object("Lease", f"apiserver-{chance}")
        found["metadata"]["labels"] = {
            "apiserver.kubernetes.io/identity": "kube-apiserver",
            "kubernetes.io/hostname": f"restless-apiserver-{chance}",
        }
        return [found]

    assert _differences(lease("cc7f8-thbmj"), lease("868d8-cfhtx"), by_structure=True) == []
    assert _differences(lease("cc7f8-thbmj"), lease("868d8-cfhtx")) != []


def test_ids_of_etcd_are_chance_and_whether_there_are_any_is_not():
    def state(identity, cluster="24db58a394e63213"):
        etcd = {"cluster": cluster, "members": [{"name": "prod-etcd-0", "id": identity}]}
        content = json.dumps({"etcd": etcd}).encode()
        return snapshot._secret_part("instance.json", base64.b64encode(content).decode())

    assert state("1cead8061d1aa455") == state("6d39c4cc6cb56415")
    assert state("1cead8061d1aa455") != state("")
    assert state("", "24db58a394e63213") == state("", "ac8b1b012e93e5f5")
    assert state("", "24db58a394e63213") != state("", "")
