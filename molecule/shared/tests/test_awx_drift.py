# SPDX-License-Identifier: Apache-2.0
"""Verdicts of a scenario on the check of each night, which fails by what somebody has changed, and changes nothing."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.report import predicted
from ansible_collections.karmada.installer.plugins.plugin_utils.run.changes import StepChange

SCENARIO = Path(__file__).parents[2] / "awx"
sys.path.append(str(SCENARIO))

import drift  # noqa: E402
from awx_site import Unseen, answered, template  # noqa: E402

CHANGES = (
    StepChange("created", "Deployment", "karmada/prod-scheduler"),
    StepChange("changed", "Deployment", "karmada/prod-kube-controller-manager"),
)


@dataclass
class Clusters:
    """Site on which a check predicts ``changes`` while things are not as the document says.

    ``rc`` is how such a check ends, ``written`` how often it has written, ``mended`` whether an installation does it.
    """

    changes: tuple[StepChange, ...] = CHANGES
    rc: int = 2
    written: int = 0
    mended: bool = True
    drifted: bool = False
    ran: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    name: str = "prod"
    namespace: str = "karmada"
    kubectl: str = "kubectl"
    kubeconfig: str = "host"
    audit_log: Path = Path()

    def run(self, verb: str, variables: Any = None, *, arguments: Any = ()) -> Any:
        self.ran.append(" ".join([verb, *arguments]))
        done = {"number": len(self.ran), "rc": 0, "status": "successful", "output": "", "changed": 0}
        if variables:
            assert variables == {"karmada_instance": "", "karmada_fail_on_drift": True}
            if self.drifted:
                told = predicted.failure(self.name, self.changes)
                done |= {"rc": self.rc, "status": "failed", "output": told.replace(" ", "\n  ")}
        elif self.mended:
            done |= {"changed": len(self.changes)}
            self.drifted = False
        return SimpleNamespace(**done)

    def succeeded(self, verb: str, variables: Any = None, *, arguments: Any = ()) -> Any:
        done = self.run(verb, variables, arguments=arguments)
        if done.rc:
            raise Unseen(f"{verb} ended with {done.status}")
        return done

    def writes(self, _since: str) -> Any:
        return [("now", "first")] * self.written


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift.audit, "mark", lambda _log: "")


def seen(site: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_hand(command: list[str]) -> str:
        site.drifted = True
        site.commands.append(" ".join(command))
        return ""

    monkeypatch.setattr(drift, "output", by_hand)
    drift.drift(site)  # type: ignore[arg-type]  # a part of a site


def test_a_check_finds_nothing_then_what_somebody_changed_and_nothing_once_that_is_mended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Clusters()
    seen(site, monkeypatch)
    check = "install --check --diff"
    assert site.ran == [check, check, "install", check]
    assert site.commands == [
        "kubectl --kubeconfig=host --namespace=karmada delete deployment prod-scheduler",
        "kubectl --kubeconfig=host --namespace=karmada scale deployment prod-kube-controller-manager --replicas=0",
    ]


@pytest.mark.parametrize(
    ("site", "told"),
    [
        (Clusters(drifted=True), "install ended with failed"),
        (Clusters(rc=0), "ended with 0"),
        (Clusters(changes=CHANGES[:1]), "does not say .*2 changes"),
        (Clusters(changes=(*CHANGES, CHANGES[0])), "does not say .*2 changes"),
        (Clusters(changes=(CHANGES[0], CHANGES[0])), "does not say .*change Deployment karmada/prod-kube-contr"),
        (Clusters(written=1), "a check, has written 1 times"),
        (Clusters(mended=False), "has mended nothing"),
    ],
)
def test_any_other_end_is_told(site: Clusters, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unseen, match=f"(?s){told}"):
        seen(site, monkeypatch)


def test_an_answer_belongs_to_the_survey_of_a_template() -> None:
    assert answered("uninstall", {"karmada_confirm": "prod"})["karmada_confirm"] == "prod"
    with pytest.raises(Unseen, match="the survey of uninstall does not ask for nothing_of_it"):
        answered("uninstall", {"nothing_of_it": ""})
    assert not template("drift")["survey_enabled"]
