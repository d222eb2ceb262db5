# SPDX-License-Identifier: Apache-2.0
"""Records hold for the code that they were made with, and the page says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from evidence import __main__ as program
from evidence import tree
from evidence.capabilities import CAPABILITIES, Area, Capability
from evidence.page import page, state
from evidence.records import Record, Store, kept, longest, record_of, still_passed

COLLECTION = "collections/ansible_collections/karmada/installer"
PARTS = {"roles": "aa", "lab": "bb"}
RECORD = Record(
    name="demo", passed=True, began="2026-01-02T03:04:05Z", seconds=61.2, tree="0123456789ab", commit="abcdef0123",
    dirty=False, parts=PARTS, settings={}, seed=None, versions={"etcd": "v3"}, machine={"cores": "2", "load": "1.0"},
)  # fmt: skip


def at(day, **changes):
    return replace(RECORD, began=f"2026-01-{day:02}T00:00:00Z", **changes)


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
        ("docs/reference/host-rights.yaml", "documentation"),
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
    """A checkout with two scenarios, one of which is run with tasks of the other."""
    files = {
        "molecule/one/molecule.yml": "scenario:\n",
        "molecule/one/tasks/main.yml": "kills: \"{{ lookup('ansible.builtin.env', 'KILLS', default='3') }}\"\n"
        "seed: \"{{ lookup('ansible.builtin.env', 'SEED') }}\"\n"
        "project: \"{{ lookup('ansible.builtin.env', 'MOLECULE_PROJECT_DIRECTORY') }}\"\n",
        "molecule/two/molecule.yml": "SCENARIO_SHARED: one\n",
        "molecule/three/molecule.yml": "scenario:\n",
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


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        (f"{COLLECTION}/roles/etcd/tasks/main.yml", {"one", "two", "three", "unit", "contract", "lint"}),
        ("molecule/one/tasks/main.yml", {"one", "two", "unit", "contract", "lint"}),
        (f"{COLLECTION}/tests/unit/test_pki.py", {"unit", "contract", "lint"}),
        ("docs/guide.md", {"unit", "lint"}),
        ("molecule/records/one.json", set()),
        ("build/anything", set()),
        (f"{COLLECTION}/roles/etcd/tasks/new.yml", {"one", "two", "three", "unit", "contract", "lint"}),
    ],
)
def test_an_edit_changes_the_tree_of_what_it_decides(checkout, path, changed):
    names = {"one", "two", "three", *tree.CHECKS}
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


def test_a_program_that_may_no_longer_be_run_is_another_one(checkout):
    before = tree.digests(checkout, "one")
    (checkout / "molecule/one/molecule.yml").chmod(0o755)
    assert tree.digests(checkout, "one") != before


# Records -------------------------------------------------------------------------------------------------------------


def test_what_has_passed_on_this_tree_with_these_settings_is_not_run_again():
    thorough = {"KILLS": "20"}
    records = [at(1), at(2, settings=thorough)]
    assert still_passed(records, PARTS, {}) == records[0]
    assert still_passed(records, PARTS, thorough) == records[1]
    assert still_passed(records, PARTS, {"KILLS": "5"}) is None
    assert still_passed(records, {**PARTS, "roles": "other"}, {}) is None
    assert still_passed(records, {**PARTS, "new": "cc"}, {}) is None
    assert still_passed([at(1), at(2, passed=False)], PARTS, {}) is None


def test_the_last_pass_is_kept_and_a_failure_after_it():
    first, failed, again = at(1), at(2, passed=False), at(3)
    other = at(1, settings={"KILLS": "20"})
    assert kept([other, first], failed) == [first, failed, other]
    assert kept([first, failed, other], again) == [again, other]
    assert kept([first, failed], at(4, passed=False)) == [first, at(4, passed=False)]


def test_records_are_read_as_they_were_written(tmp_path):
    store = Store(tmp_path / "records")
    assert store.of("demo") == []
    store.add(RECORD)
    assert store.of("demo") == [RECORD]
    assert [file.name for file in store.folder.iterdir()] == ["demo.json"]
    with pytest.raises(KeyError):
        record_of({"name": "demo"})


def test_the_longest_are_told_first():
    found = longest([at(1, name="a", seconds=10), at(1, name="b", seconds=30)], number=1)
    assert found == ["      30 s   75%  b", "      40 s        all 2 parts"]


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


# The page ------------------------------------------------------------------------------------------------------------

NOW = {"demo": PARTS, "unit": PARTS}
AREAS = (Area("Pods", (Capability("It installs", ("demo", "unit")),)),)


def test_each_scenario_and_each_check_is_in_a_row_and_no_other():
    shown = {name for area in CAPABILITIES for each in area.capabilities for name in each.shown_by}
    assert shown == {*tree.CHECKS, *tree.scenarios(program.ROOT)}


def test_a_row_says_when_it_passed_and_on_which_tree():
    text = page(AREAS, {"demo": [RECORD], "unit": []}, NOW)
    assert "| It installs | `demo` | 2026-01-02 | `0123456789ab` | 61 |  |" in text
    assert "|  | `unit` | no record |  |  |  |" in text
    assert "| `demo` | 2026-01-02 03:04:05 | `0123456789ab` | abcdef0123 | 61 |  |  |" in text
    assert "- 1 runs: cores 2; etcd v3" in text


def test_a_row_names_what_has_changed_since():
    assert state([RECORD], {"roles": "other", "lab": "bb"})[3] == "changed since: roles"
    assert state([RECORD], {"lab": "bb", "shared": "cc"})[3] == "changed since: roles, shared"
    assert state([RECORD], PARTS)[3] == ""


def test_a_row_names_a_failure_since():
    failed = at(9, passed=False, tree="fedcba987654")
    assert state([RECORD, failed], PARTS) == (
        "2026-01-02", "`0123456789ab`", "61", "**failed** 2026-01-09 on `fedcba987654`",
    )  # fmt: skip
    assert state([failed], PARTS)[0] == "no record"
    assert state([failed, at(10, settings={"KILLS": "20"})], PARTS)[3] == ""


def test_what_a_scenario_has_measured_goes_on_record_and_onto_the_page(checkout):
    file = checkout / "build/figures/one.json"
    file.parent.mkdir(parents=True)
    # What an earlier run left is none of this one's.
    file.write_text('{"to 7": "gone"}')
    assert run(checkout, "sh", "-c", f'test ! -e {file} && echo \'{{"to 3": "0 failed | none lost"}}\' >{file}') == 0
    [found] = records(checkout)
    assert found.figures == {"to 3": "0 failed | none lost"}
    assert "| `one` | to 3 | 0 failed \\| none lost |" in page((), {"one": [found]}, {"one": {}})
    assert run(checkout, "sh", "-c", f"rm {file}; exit 1") == 1
    assert [each.figures for each in records(checkout)] == [found.figures, {}]


def test_settings_seed_and_edits_are_told():
    found = at(1, settings={"KILLS": "20"}, seed=7, dirty=True)
    text = page((), {"demo": [found]}, NOW)
    assert "| abcdef0123 with changes | 61 | `KILLS=20` | 7 |" in text
