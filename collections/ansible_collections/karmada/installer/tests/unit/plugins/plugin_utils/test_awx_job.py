# SPDX-License-Identifier: Apache-2.0
"""A lock says which job of AWX holds it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils import awx_job, run_process
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run import action
from ansible_collections.karmada.installer.tests.unit.support.samples import document


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"awx_job_id": 41, "awx_user_name": "jane.doe"}, "AWX job 41 (install, started by jane.doe)"),
        ({"tower_job_id": "41", "tower_user_name": "jane"}, "AWX job 41 (install, started by jane)"),
        ({"awx_job_id": 41}, "AWX job 41 (install)"),
        ({"awx_job_id": 41, "awx_user_name": "j$(id) @x/y"}, "AWX job 41 (install, started by j__id___x_y)"),
        ({"awx_job_id": "41; id", "awx_user_name": "jane"}, ""),
        ({}, ""),
    ],
)
def test_a_job_is_told_in_words_that_no_shell_takes_for_more(variables: dict[str, Any], told: str) -> None:
    label = awx_job.label(variables, "install")
    assert awx_job.in_words(label) == told
    holder = run_process.run_holder(label)
    words = run_process.holder_in_words(holder)
    assert words.startswith(f"{told}, process " if told else "process ")
    assert run_process.is_holder(holder, label) is bool(told)
    assert run_process.holder_is_dead(holder) is False


@pytest.mark.parametrize(
    ("operation", "told"),
    [("Install-Prod 1", "install-prod_1"), ("ünïcode/../$(id)", "_n_code______id_"), ("", "run"), ("x" * 80, "x" * 40)],
)
def test_a_playbook_of_any_name_is_told(operation: str, told: str) -> None:
    assert awx_job.in_words(awx_job.label({"awx_job_id": 41}, operation)) == f"AWX job 41 ({told})"


@pytest.mark.parametrize("given", ["", "nightly-1", "awx-job-41", "awx-job-x.install@me", "awx-job-1.install@a b"])
def test_any_other_id_of_a_run_is_no_job(given: str) -> None:
    assert awx_job.in_words(given) == ""


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("playbooks/install.yml", "install"),
        ("Prod/My-Install.yml", "my-install"),
        ("karmada.installer.members", "members"),
        ("a/b.report.yaml", "report"),
    ],
)
def test_every_step_of_a_job_has_one_name_and_so_has_whoever_gives_its_lock_back(
    monkeypatch: pytest.MonkeyPatch, given: str, name: str
) -> None:
    monkeypatch.setattr(action.context, "CLIARGS", {"args": (given,)})
    noted: list[Any] = []
    monkeypatch.setattr(action.end, "holding", noted.append)
    job = {"awx_job_id": 41, "awx_user_name": "jane"}
    holders = set()
    for operation in ("preflight", "install"):
        run = action.make_run(document(), {}, {**job, "karmada_operation": operation}, check=False)
        holders.add(run.holder)
        run.store.on_lock(True)
        run.close()
    assert holders == {f"{run_process.holder_identity(run_process.main_pid())}/awx-job-41.{name}@jane"}
    assert {each["holder"] for each in noted} == holders


def test_a_pattern_of_hosts_is_no_playbook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action.context, "CLIARGS", {"args": "karmada_control"})
    run = action.make_run(document(), {}, {"awx_job_id": 41}, check=False)
    assert run.holder.endswith("/awx-job-41.run")
    run.close()


def test_an_id_that_was_given_is_stronger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(run_process.RUN_ID, "nightly-1")
    assert run_process.run_holder("awx-job-41.install").endswith("/nightly-1")


@pytest.mark.parametrize(("given", "seconds"), [(None, 120), ("", 120), (" ", 120), ("5", 5), (0, 0), (90, 90)])
def test_an_answer_says_how_long_another_run_is_waited_for(given: Any, seconds: float) -> None:
    variables = {} if given is None else {"karmada_lock_wait": given}
    assert action.make_run(document(), {}, variables, check=False).lock_wait == seconds


@pytest.mark.parametrize("given", ["-1", "1.5", "2m", True, "1" * 7])
def test_what_is_no_time_to_wait_is_refused(given: Any) -> None:
    with pytest.raises(ProblemsError, match=r"karmada_lock_wait: is no time to wait: .* such as 120"):
        action.lock_wait({"karmada_lock_wait": given})
