# SPDX-License-Identifier: Apache-2.0
"""Runs leave records that hold for the code that they were made with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from evidence import __main__ as program
from evidence import tree
from evidence.page import page
from evidence.records import Store

COLLECTION = "collections/ansible_collections/karmada/installer"
# Scenarios and checks of the checkout below that an edit of a role reaches; documentation is not read by contract.
EVERY = {"one", "two", "three", "four", "lint", "unit"}
# Checks that look at more than the artifact.
LOOKING = {"lint", "unit", "contract"}


# The tree ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "part"),
    [
        (f"{COLLECTION}/plugins/plugin_utils/kube/apply.py", "plugin_utils/kube"),
        (f"{COLLECTION}/plugins/plugin_utils/kube/patches/merge.py", "plugin_utils/kube"),
        (f"{COLLECTION}/plugins/plugin_utils/report.py", "plugin_utils"),
        (f"{COLLECTION}/plugins/action/join.py", "action"),
        (f"{COLLECTION}/roles/etcd/tasks/main.yml", "roles"),
        (f"{COLLECTION}/roles/etcd/README.md", "documentation"),
        (f"{COLLECTION}/tests/unit/test_pki.py", "tests"),
        (f"{COLLECTION}/galaxy.yml", "collection"),
        ("molecule/shared/tests/test_tools.py", "tests"),
        ("molecule/shared/tools/audit.py", "shared"),
        ("molecule/demo/run", "demo"),
        ("molecule/records/demo.json", ""),
        ("molecule/README.md", "documentation"),
        ("docs/reference/capabilities.md", ""),
        ("docs/guides/backup.md", "documentation"),
        ("docs/images/modes.svg", "documentation"),
        ("docs/reference/host-rights.yaml", "docs/reference/host-rights.yaml"),
        (f"{COLLECTION}/changelogs/fragments/one.yml", "documentation"),
        (f"{COLLECTION}/plugins/doc_fragments/one.py", "documentation"),
        ("tools/helm.py", "tools/helm.py"),
        ("tools/evidence/page.py", "tools/evidence"),
        ("tools/tests/test_site.py", "tests"),
        ("operator/chart/values.yaml", "operator"),
        ("examples/awx/controller/templates.yml", "examples"),
        ("ee/execution-environment.yml", "ee"),
        ("requirements-awx.txt", "requirements-awx.txt"),
        ("lab/karmada_lab/cli.py", "lab"),
        ("inventory_plugins", "inventory"),
        ("requirements-test.txt", "environment"),
        (".config/molecule/config.yml", "environment"),
        ("Makefile", "build"),
    ],
)
def test_each_file_is_of_one_part(path, part):
    assert tree.part_of(path) == part


@pytest.fixture
def checkout(tmp_path):
    """A checkout with four scenarios; two of them are run with tasks of another one, and name what lies elsewhere."""
    files = {
        "molecule/one/molecule.yml": "scenario:\n",
        "molecule/one/tasks/main.yml": "kills: \"{{ lookup('ansible.builtin.env', 'KILLS', default='3') }}\"\n"
        "seed: \"{{ lookup('ansible.builtin.env', 'SEED') }}\"\n"
        "project: \"{{ lookup('ansible.builtin.env', 'MOLECULE_PROJECT_DIRECTORY') }}\"\n",
        "molecule/two/molecule.yml": "SCENARIO_SHARED: one\n",
        "molecule/three/molecule.yml": "scenario:\n",
        "molecule/three/tasks/main.yml": "argv: \"{{ [project ~ '/tools/helm.py', project ~ '/operator/chart'] }}\"\n",
        "molecule/three/site.py": 'import shop\nDEFINITION = PROJECT / "ee/it.yml"\n# Not shared/tools/other.py\n',
        "molecule/four/molecule.yml": "# docs/guide.md\nat: docs/reference/host-rights.yaml\nSCENARIO_SHARED: three\n",
        "molecule/shared/tools/shop.py": 'READ = ROOT / "requirements-awx.txt", ROOT / "examples/awx/types.yml"\n',
        "molecule/shared/tools/unused.py": '"""Reads bench/round.py."""\n',
        "operator/chart/values.yaml": "---\n",
        "operator/program/main.py": "",
        "tools/helm.py": "",
        "tools/other.py": "",
        "tools/publishable.py": "",
        "lab/karmada_lab/cli.py": "",
        "requirements-sanity.txt": "",
        "bench/round.py": "",
        "ee/it.yml": "---\n",
        "examples/awx/types.yml": "---\n",
        "docs/reference/host-rights.yaml": "---\n",
        "requirements-awx.txt": "",
        f"{COLLECTION}/plugins/modules/install.py": 'DOCUMENTATION = """\nmodule: install\n"""\n',
        f"{COLLECTION}/plugins/modules/_host_tree.py": 'DOCUMENTATION = ""\n\ndef main():\n    pass\n',
        f"{COLLECTION}/roles/etcd/tasks/main.yml": "---\n",
        f"{COLLECTION}/tests/unit/test_pki.py": "",
        "docs/guide.md": "text\n",
        ".gitignore": "/build/\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder, *words):
    settings = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *settings, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def commit(folder):
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=some")


def test_a_scenario_takes_along_what_it_is_run_with(checkout):
    assert tree.taken_along(checkout, "two") == {"one", "two"}
    assert tree.taken_along(checkout, "one") == {"one"}
    assert tree.asked_for(checkout, "two") == {"KILLS", "SEED"}
    assert tree.asked_for(checkout, "three") == set()


def test_a_scenario_is_decided_by_what_its_files_name(checkout):
    apart = {"docs/reference/host-rights.yaml", "ee", "examples", "operator", "requirements-awx.txt", "tools/helm.py"}
    assert tree.named(checkout, "one") == set()
    assert tree.named(checkout, "three") == apart - {"docs/reference/host-rights.yaml"}
    assert tree.named(checkout, "four") == apart


def test_a_record_of_a_scenario_says_of_which_operator_chart_rights_and_requirements_it_is():
    parts = tree.contents(program.ROOT)
    decided = {name: set(tree.digests(program.ROOT, name, parts)) for name in tree.scenarios(program.ROOT)}
    with_operator = {name for name in decided if name.startswith("operator_")}
    assert len(with_operator) >= 9
    assert {name for name, found in decided.items() if {"operator", "tools/helm.py"} <= found} >= with_operator
    assert "docs/reference/host-rights.yaml" in decided["pods_least_rights"]
    assert "docs/guides/plain-hosts.sudoers" in decided["hosts_plain"]
    assert {"examples", "requirements-awx.txt"} <= decided["awx"]
    assert {"ee", "examples", "requirements-publish.txt"} <= decided["awx_pod"]
    assert not decided["demo"] & {"operator", "ee", "examples", "tools/helm.py", "documentation", "build"}


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        (f"{COLLECTION}/roles/etcd/tasks/main.yml", {*EVERY, *tree.CHECKS}),
        ("molecule/one/tasks/main.yml", {"one", "two", "unit", "contract", "lint"}),
        (f"{COLLECTION}/tests/unit/test_pki.py", {"unit", "contract", "lint"}),
        ("docs/guide.md", {"unit", "lint", "publishable"}),
        ("molecule/records/one.json", set()),
        ("build/anything", set()),
        (f"{COLLECTION}/roles/etcd/tasks/new.yml", {*EVERY, *tree.CHECKS}),
        ("operator/chart/values.yaml", {"three", "four", *LOOKING}),
        ("operator/program/main.py", {"three", "four", *LOOKING}),
        ("tools/helm.py", {"three", "four", *LOOKING}),
        ("tools/other.py", LOOKING),
        ("bench/round.py", LOOKING),
        ("ee/it.yml", {"three", "four", *tree.CHECKS}),
        ("lab/karmada_lab/cli.py", {*EVERY, "contract"}),
        ("molecule/shared/tools/shop.py", {*EVERY, "contract"}),
        ("tools/publishable.py", set(tree.CHECKS)),
        ("requirements-sanity.txt", set(tree.CHECKS)),
        ("examples/awx/types.yml", {"three", "four", *LOOKING}),
        ("requirements-awx.txt", {"three", "four", *LOOKING}),
        ("docs/reference/host-rights.yaml", {"four", *LOOKING}),
        (f"{COLLECTION}/changelogs/fragments/one.yml", {"unit", "lint", "publishable"}),
        (f"{COLLECTION}/plugins/modules/_host_tree.py", {*EVERY, *tree.CHECKS}),
    ],
)
def test_an_edit_changes_the_tree_of_what_it_decides(checkout, path, changed):
    names = {*EVERY, *tree.CHECKS}
    before = {name: tree.digests(checkout, name) for name in names}
    (checkout / path).parent.mkdir(parents=True, exist_ok=True)
    (checkout / path).write_text("other\n")
    assert {name for name in names if tree.digests(checkout, name) != before[name]} == changed
    assert {name for name in names if tree.edited(checkout, before[name])} == changed
    # A commit changes no content.
    edited = {name: tree.digests(checkout, name) for name in names}
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--allow-empty", "--message=other")
    assert {name: tree.digests(checkout, name) for name in names} == edited
    assert not any(tree.edited(checkout, edited[name]) for name in names)


def test_documentation_of_a_module_decides_no_scenario(checkout):
    before = {name: tree.digests(checkout, name) for name in EVERY}
    stub = checkout / COLLECTION / "plugins/modules/install.py"
    stub.write_text('from __future__ import annotations\n\nDOCUMENTATION = "other"\nRETURN = "more"\n')
    assert {name for name in EVERY if tree.digests(checkout, name) != before[name]} == {"lint", "unit"}
    assert not tree.edited(checkout, before["one"])
    stub.write_text('DOCUMENTATION = "other"\nVERSION = "more"\n')
    assert {name for name in EVERY if tree.digests(checkout, name) != before[name]} == EVERY


def test_a_program_that_may_no_longer_be_run_is_another_one(checkout):
    before = tree.digests(checkout, "one")
    (checkout / "molecule/one/molecule.yml").chmod(0o755)
    assert tree.digests(checkout, "one") != before


# Runs ----------------------------------------------------------------------------------------------------------------


def run(root, *command, name="one", go_on=False, **environment):
    return program.run(root, name, command, go_on=go_on, environment={"PATH": os.environ["PATH"], **environment})


def records(root, name="one"):
    return Store(root / tree.RECORDS).of(name)


def test_a_run_leaves_a_record_without_names_of_the_machine(checkout):
    assert run(checkout, "true", KILLS="20", SEED="4711", USER="somebody") == 0
    [found] = records(checkout)
    assert (found.passed, found.settings, found.seed, found.dirty) == (True, {"KILLS": "20"}, 4711, False)
    assert found.parts == tree.digests(checkout, "one")
    assert found.tree == tree.whole(found.parts)
    text = (checkout / "molecule/records/one.json").read_text()
    assert not [word for word in (str(checkout), "somebody", os.uname().nodename) if word in text]


def test_a_part_that_is_not_there_is_refused_before_anything_runs(checkout, capsys):
    (checkout / "molecule/one/vars").mkdir()
    (checkout / "molecule/one/vars/parts.yml").write_text("parts_by: WHICH\nparts_there_are: [drain, reset]\n")
    assert run(checkout, "sh", "-c", "exit 7", WHICH="drian,reset") == 2
    assert "one: WHICH names what is not there: drian. There are: drain, reset" in capsys.readouterr().out
    assert records(checkout) == []
    for asked, recorded in (("reset", {"WHICH": "reset"}), ("reset drain", {}), ("all", {}), ("", {})):
        assert run(checkout, "true", WHICH=asked) == 0
        assert recorded in [each.settings for each in records(checkout)]


def test_a_choice_that_is_made_anyway_is_none(checkout):
    assert run(checkout, "true", KILLS="3") == 0
    assert [each.settings for each in records(checkout)] == [{}]


def test_a_check_that_draws_does_so_by_a_seed_that_is_recorded(checkout, tmp_path_factory):
    said = tmp_path_factory.mktemp("outside") / "seed"
    assert run(checkout, "sh", "-c", f"echo $FAULTS_SEED >{said}", name="contract") == 0
    assert records(checkout, "contract")[0].seed == int(said.read_text())


def test_tests_that_are_narrowed_by_the_environment_are_not(checkout, tmp_path_factory):
    folder = tmp_path_factory.mktemp("outside")
    (folder / "test_it.py").write_text("def test_one():\n    pass\n\n\ndef test_two():\n    pass\n")
    alone = (sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", f"--rootdir={folder}")
    results = f"--junitxml={checkout}/build/diagnostics/unit/tests.xml"
    narrowed = {"PYTEST_ADDOPTS": "-k test_one", "PYTEST_PLUGINS": "there.is.none"}
    assert run(checkout, *alone, results, str(folder / "test_it.py"), name="unit", **narrowed) == 0
    assert records(checkout, "unit")[0].figures == {"all of it": "2 tests"}
    # What an earlier run left is none of this one's.
    os.utime(checkout / "build/diagnostics/unit/tests.xml", (1, 1))
    assert run(checkout, "true", name="unit") == 0
    assert records(checkout, "unit")[0].figures == {}


def test_passed_is_what_has_a_record_of_this_tree_and_time(checkout):
    def lacking(since="", **environment):
        return program.passed(checkout, ["one", "three"], since, environment)

    assert lacking() == ["one", "three"]
    assert run(checkout, "true") == run(checkout, "true", name="three") == 0
    [began] = [each.began for each in records(checkout)]
    assert lacking() == lacking(began) == []
    assert lacking("9999-01-01T00:00:00Z") == ["one", "three"]
    assert lacking(KILLS="20") == ["one"]
    assert run(checkout, "false", name="three") == 1
    assert lacking() == ["three"]
    (checkout / "molecule/one/tasks/main.yml").write_text("other\n")
    assert lacking() == ["one", "three"]


def test_a_target_has_a_total_when_all_of_it_ran_since_it_began(checkout):
    began = "2026-01-02T03:04:05Z"

    def told(since=began, **environment):
        return program.total(checkout, "test", ["one", "three"], since, environment)

    def totals():
        return Store(checkout / tree.TOTALS).of("test")

    assert run(checkout, "true", KILLS="20") == 0
    assert "1 of 2 parts did not run now" in told(KILLS="20")
    assert run(checkout, "true", name="three") == 0
    assert "2 of 2 parts did not run now" in told("9999-01-01T00:00:00Z", KILLS="20")
    assert totals() == []
    since_then = (datetime.now(UTC) - datetime.fromisoformat(began)).total_seconds()
    said = told(KILLS="20")
    [found] = totals()
    assert said == f"make test: {found.seconds:.0f} s from its beginning to its end"
    # From the time that it was given, so all else that the target did is in it.
    assert found.seconds >= round(since_then, 1)
    assert (found.began, found.settings, found.passed) == (began, {"KILLS": "20"}, True)
    assert found.tree == tree.whole(tree.contents(checkout))
    spent = sum(each.seconds for name in ("one", "three") for each in records(checkout, name))
    assert found.figures == {"its 2 parts together": f"{spent:.0f} s"}
    # A total is part of no tree: what has passed has still passed.
    assert program.passed(checkout, ["one", "three"], "", {"KILLS": "20"}) == []
    assert not tree.edited(checkout, tree.contents(checkout))


def test_a_failed_run_is_recorded_and_run_again(checkout):
    assert run(checkout, "sh", "-c", "exit 3") == 3
    assert [each.passed for each in records(checkout)] == [False]
    assert run(checkout, "true", go_on=True) == 0
    assert [each.passed for each in records(checkout)] == [True]


def test_the_reason_of_a_failure_is_the_last_that_is_said(checkout, capsys):
    folder = checkout / "build/diagnostics/one"
    assert run(checkout, "sh", "-c", f"mkdir -p {folder}; echo 'Failed: this task' >{folder}/why.txt; exit 2") == 2
    assert capsys.readouterr().out.splitlines()[:-1] == ["Failed: this task"]
    # What an earlier run left is none of this one's.
    os.utime(folder / "why.txt", (1, 1))
    assert run(checkout, "sh", "-c", "exit 2") == 2
    assert "this task" not in capsys.readouterr().out


def test_those_that_failed_last_are_named_at_the_end_with_their_reason(checkout):
    assert run(checkout, "true") == 0
    assert program.failed(checkout, ["one", "lint"]).startswith("None of them failed by itself")
    folder = checkout / "build/diagnostics/one"
    assert run(checkout, "sh", "-c", f"mkdir -p {folder}; echo 'Failed: this task' >{folder}/why.txt; exit 2") == 2
    assert program.failed(checkout, ["lint", "one"]) == "one failed after 0 s:\nFailed: this task"
    assert run(checkout, "true") == 0
    assert program.failed(checkout, ["one"]).startswith("None of them failed by itself")


def test_tests_that_failed_are_named_with_what_they_expected(checkout, tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n\n@pytest.fixture\ndef gone():\n    raise OSError('no disk')\n\n\n"
        "def test_one():\n    assert 1 == 2\n\n\ndef test_two(gone):\n    pass\n\n\ndef test_three():\n    pass\n"
    )
    pytest_alone = (sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", f"--rootdir={tmp_path}")
    results = checkout / "build/diagnostics/one/tests.xml"
    assert run(checkout, *pytest_alone, f"--junitxml={results}", str(tmp_path / "test_it.py")) == 1
    told = program.failed(checkout, ["one"]).splitlines()[1:]
    assert told == ["test_it::test_one", "E       assert 1 == 2", "test_it::test_two", "E       OSError: no disk"]
    # pytest was killed while it wrote.
    results.write_text(results.read_text()[:100])
    assert "the tests ended before they wrote their results" in program.failed(checkout, ["one"])


def test_what_has_passed_is_run_again_only_where_all_is_run(checkout, capsys, tmp_path_factory):
    count = tmp_path_factory.mktemp("outside") / "count"
    command = ("sh", "-c", f"echo >>{count}")
    for go_on in (True, True, False):
        assert run(checkout, *command, go_on=go_on) == 0
    assert len(count.read_text()) == 2
    assert "one: not run again: it passed on this tree" in capsys.readouterr().out
    (checkout / COLLECTION / "roles/etcd/tasks/main.yml").write_text("other\n")
    assert run(checkout, *command, go_on=True) == 0
    assert len(count.read_text()) == 3
    assert records(checkout)[0].dirty
    # Moments drawn anew are another run.
    assert run(checkout, *command, go_on=True, SEED="1") == 0
    assert len(count.read_text()) == 4


def test_a_seed_is_drawn_for_those_that_take_one(checkout, tmp_path_factory):
    said = tmp_path_factory.mktemp("outside") / "seed"
    assert run(checkout, "sh", "-c", f"echo $SEED >{said}") == 0
    assert records(checkout)[0].seed == int(said.read_text())
    assert run(checkout, "true", name="three") == 0
    assert records(checkout, "three")[0].seed is None


def test_a_tree_that_changed_meanwhile_gives_no_record(checkout, capsys):
    assert run(checkout, "sh", "-c", f"echo other >{checkout}/molecule/one/tasks/main.yml") == 0
    assert records(checkout) == []
    assert "one: no record, because the tree changed while it ran: one" in capsys.readouterr().out


def test_a_run_that_is_killed_leaves_no_record(checkout):
    assert run(checkout, "sh", "-c", "kill -9 $$") == 128 + 9
    assert records(checkout) == []


def test_a_command_comes_to_its_own_end_when_this_program_is_stopped(tmp_path):
    said = tmp_path / "said"
    command = f"trap 'echo ended >{said}; exit 7' TERM; touch {tmp_path}/begun; while :; do sleep 0.05; done"
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from evidence.__main__ import _to_its_end\n"
        "sys.exit(_to_its_end(['sh', '-c', sys.argv[2]], {'PATH': '/usr/bin:/bin'}))"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(program.ROOT / "tools"), command]) as running:
        while not (tmp_path / "begun").exists():
            assert running.poll() is None
        running.send_signal(signal.SIGTERM)
        assert running.wait() == 7
    assert said.read_text() == "ended\n"


def test_what_a_scenario_has_measured_goes_on_record_and_onto_the_page(checkout):
    file = checkout / "build/figures/one.json"
    file.parent.mkdir(parents=True)
    # What an earlier run left is none of this one's.
    file.write_text('{"to 7": "gone"}')
    assert run(checkout, "sh", "-c", f'test ! -e {file} && echo \'{{"to 3": "0 failed | none lost"}}\' >{file}') == 0
    [found] = records(checkout)
    assert found.figures == {"to 3": "0 failed | none lost"}
    assert "| `one` | to 3 | 0 failed \\| none lost |" in page((), {"one": [found]}, {"one": {}}, {})
    assert run(checkout, "sh", "-c", f"rm {file}; exit 1") == 1
    assert [each.figures for each in records(checkout)] == [found.figures, {}]
