# SPDX-License-Identifier: Apache-2.0
"""Records that are kept, and the page that is made of them and of what there is to be shown."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from evidence import __main__ as program
from evidence import choices as of_choices
from evidence import tree
from evidence.capabilities import CAPABILITIES, Area, Capability
from evidence.choices import Choices, choices_of
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


# Records -------------------------------------------------------------------------------------------------------------


def test_what_has_passed_on_this_tree_with_these_settings_and_versions_is_not_run_again():
    def still(records, parts=PARTS, settings=None, versions=RECORD.versions):
        return still_passed(records, parts, settings or {}, versions)

    thorough = {"KILLS": "20"}
    records = [at(1), at(2, settings=thorough)]
    assert still(records) == records[0]
    assert still(records, settings=thorough) == records[1]
    assert still(records, settings={"KILLS": "5"}) is None
    assert still(records, {**PARTS, "roles": "other"}) is None
    assert still(records, {**PARTS, "new": "cc"}) is None
    assert still(records, versions={**RECORD.versions, "Python": "3.13.1"}) is None
    assert still([at(1), at(2, passed=False)]) is None


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


# The page ------------------------------------------------------------------------------------------------------------

NOW = {"demo": PARTS, "unit": PARTS}
AREAS = (Area("Pods", (Capability("It installs", ("demo", "unit")),)),)


@pytest.fixture(scope="module")
def all_choices():
    """Name → what can be chosen, of all scenarios and checks that there are."""
    return {name: choices_of(program.ROOT, name) for name in (*tree.CHECKS, *tree.scenarios(program.ROOT))}


def test_each_scenario_and_each_check_is_in_a_row_and_no_other(all_choices):
    shown = {name for area in CAPABILITIES for each in area.capabilities for name in each.shown_by}
    assert {name.partition(":")[0] for name in shown} == set(all_choices)
    # Who names parts of a scenario names each of them, unless another row names the whole.
    there_are = {f"{name}:{part}" for name, each in all_choices.items() for part in each.parts}
    assert {name for name in shown if ":" in name} <= there_are
    assert {name for name in there_are if name.partition(":")[0] not in shown} <= shown


def test_a_row_says_when_it_passed_and_on_which_tree():
    text = page(AREAS, {"demo": [RECORD], "unit": []}, NOW, {})
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
    assert state([failed, at(10, settings={"KILLS": "20"})], PARTS, Choices(defaults={"KILLS": "4"}))[3] == ""


VARIANTS = Choices(frozenset({"WHICH"}), by="WHICH", parts=("apart", "ipv6"), by_default=("apart", "ipv6"))


def test_a_run_of_a_part_shows_that_part_and_not_the_scenario():
    apart, ipv6 = at(1, settings={"WHICH": "apart"}), at(2, settings={"WHICH": "ipv6"}, tree="fedcba987654")
    assert state([apart], PARTS, VARIANTS)[0] == "no record"
    assert state([apart], PARTS, VARIANTS, "ipv6")[0] == "no record"
    assert state([apart, ipv6], PARTS, VARIANTS)[0] == "no record"
    assert state([apart, ipv6], PARTS, VARIANTS, "apart")[:2] == ("2026-01-01", "`0123456789ab`")
    assert (
        state([at(3), apart], PARTS, VARIANTS)[0] == state([at(3), apart], PARTS, VARIANTS, "ipv6")[0] == "2026-01-03"
    )
    assert state([at(3, settings={"WHICH": "all"})], PARTS, VARIANTS)[0] == "2026-01-03"
    failed = replace(at(4, settings={"WHICH": "ipv6"}), passed=False)
    assert state([at(3), failed], PARTS, VARIANTS, "apart")[3] == ""
    assert state([at(3), failed], PARTS, VARIANTS, "ipv6")[3] == state([at(3), failed], PARTS, VARIANTS)[3] != ""
    areas = (Area("Hosts", (Capability("IPv6 alone", ("demo:ipv6",)), Capability("All", ("demo",)))),)
    text = page(areas, {"demo": [ipv6]}, NOW, {"demo": VARIANTS})
    assert "| IPv6 alone | `demo:ipv6` | 2026-01-02 | `fedcba987654` | 61 |  |" in text
    assert "| All | `demo` | no record |  |  |  |" in text
    assert "| `demo` | 2026-01-02 00:00:00 | `fedcba987654` | abcdef0123 | 61 | `WHICH=ipv6` |  |" in text


@pytest.mark.parametrize(
    ("settings", "shows"),
    [({"KILLS": "20"}, True), ({"KILLS": "1"}, False), ({"MODE": "Binary"}, False), ({"ACCEPT": "yes"}, False)],
)
def test_a_run_of_less_or_of_something_else_shows_nothing(settings, shows):
    choices = Choices(frozenset({"ACCEPT", "KILLS", "MODE"}), defaults={"KILLS": "4", "MODE": "Container"})
    assert (state([at(1, settings=settings)], PARTS, choices)[0] != "no record") == shows


def test_checks_with_all_moments_show_what_they_show_without_and_with_fewer_they_do_not():
    choices = choices_of(program.ROOT, "unit")
    assert choices.shows({})
    assert choices.shows({"ETCD_MOMENTS": "1", "ETCD_HISTORIES": "10000"})
    assert not choices.shows({"ETCD_MOMENTS": "50"})
    assert not choices.shows({"ETCD_HISTORIES": "1"})
    assert choices_of(program.ROOT, "contract").seed == "FAULTS_SEED"


def test_thorough_checks_are_what_all_scenarios_are_run_with(all_choices):
    makefile = (program.ROOT / "Makefile").read_text()
    exported = dict(re.findall(r"^test-full: export ([A-Z_]+) \??:?= (.+)$", makefile, re.MULTILINE))
    thorough = {name: value for each in of_choices.THOROUGH.values() for name, value in each.items()}
    assert {name: exported.get(name) for name in thorough} == thorough
    # What tests read of the environment to see more or less is a setting of their record.
    folders = [
        program.ROOT / COLLECTION / "tests/unit",
        *map(program.ROOT.joinpath, ("operator/tests", "tools/tests")),
    ]
    text = "".join(file.read_text() for folder in folders for file in folder.rglob("*.py"))
    read = set(re.findall(r'int\(os\.environ\.get\("([A-Z_]+)"', text))
    assert read == set(of_choices.THOROUGH["unit"])
    # Each of all other variables is one that a scenario reads.
    taken = set().union(*(each.variables for each in all_choices.values()))
    assert set(exported) - set(thorough) <= taken


def test_parts_of_a_scenario_are_those_that_it_can_run(all_choices):
    assert {name for name, each in all_choices.items() if each.parts} == {
        "hosts_etcd_below_pods", "hosts_etcd_members", "hosts_faults", "hosts_move", "hosts_variants", "members_change",
        "pods_etcd_members", "pods_ip_families", "pods_uninstall",
    }  # fmt: skip
    for name, each in all_choices.items():
        folder = program.ROOT / "molecule" / name
        tasks = "".join(file.read_text() for file in folder.rglob("*.yml"))
        # A list that is chosen from is declared, so that a name that is not in it is refused.
        assert not re.search(r"ansible\.builtin\.env', '(?!PULL)[A-Z_]+'[^}\n]*\.split\(", tasks), name
        assert "shared/tasks/parts.yml" in tasks or not each.parts, name
        for part in each.parts:
            files = [f"tasks/{part}.yml", f"tasks/variant_{part}.yml", f"{part}.yaml"]
            assert f"'{part}' in parts" in tasks or any((folder / file).exists() for file in files), (name, part)
    assert all_choices["hosts_move"].by_default == ("host",)


def test_totals_of_targets_are_told():
    found = replace(at(1, settings={"KILLS": "20"}), name="test", figures={"its 2 parts together": "90 s"})
    text = page((), {}, {}, {}, [found])
    assert (
        "| `make test` | 2026-01-01 00:00:00 | `0123456789ab` | abcdef0123 | 61 | `KILLS=20` "
        "| its 2 parts together: 90 s, 2 cores |"
    ) in text


def test_settings_seed_and_edits_are_told():
    found = at(1, settings={"KILLS": "20"}, seed=7, dirty=True)
    text = page((), {"demo": [found]}, NOW, {})
    assert "| abcdef0123 with changes | 61 | `KILLS=20` | 7 |" in text
