# SPDX-License-Identifier: Apache-2.0
"""Every problem says of which kind it is, by one list, in words that conditions and events of Kubernetes may have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import (
    Problem,
    ProblemsError,
    Reason,
    Severity,
    in_order,
)

PLUGINS = Path(__file__).parents[3] / "plugins"
#: Constructors that take the reason as their second argument.
MILDER = (".hint", ".warning")
CONSTRUCTOR = re.compile(r"\bProblem(\.hint|\.warning)?$")
#: Only these pass on a reason that was chosen elsewhere.
PASSED_ON = {
    "backup/claim.py",
    "document/instances.py",
    "document/inventory_source.py",
    "etcd/plan_types.py",
    "kube/errors.py",
    "kube/kubeconfig_fields.py",
    "members/access.py",
    "members/kubeconfig_by_ssh.py",
    "members/registered.py",
    "preflight/component_checks.py",
    "preflight/host_checks.py",
    "report/observe.py",
    "run/host_access.py",
}


def calls(source: str) -> Iterator[ast.Call]:
    """Each place that makes a problem."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and CONSTRUCTOR.search(ast.unparse(node.func)):
            yield node


def named(node: ast.AST) -> set[str]:
    """The members of the list that an expression names."""
    return {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "Reason"
    }


def unnamed(source: str) -> list[int]:
    """Lines of problems that name no member of the list."""
    found = []
    for call in calls(source):
        second = call.args[1] if ast.unparse(call.func).endswith(MILDER) and len(call.args) > 1 else None
        given = next((each.value for each in call.keywords if each.arg == "reason"), second)
        if given is None or not named(given) & set(Reason.__members__):
            found.append(call.lineno)
    return found


def test_every_problem_names_its_reason() -> None:
    files = {
        str(each.relative_to(PLUGINS / "plugin_utils")) if "plugin_utils" in each.parts else each.name: each
        for each in PLUGINS.rglob("*.py")
    }
    wrong = {name for name, path in files.items() if unnamed(path.read_text())}
    assert wrong == PASSED_ON


def test_every_reason_is_used() -> None:
    used = set()
    for path in PLUGINS.rglob("*.py"):
        used |= named(ast.parse(path.read_text()))
    assert used == set(Reason.__members__)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("Problem('it is odd')", [1]),
        ("Problem('it is odd', reason='Odd')", [1]),
        ("Problem('it is odd', reason=Reason.ODD)", [1]),
        ("Problem('it is odd', reason=Reason.LOCKED)", []),
        ("problems.Problem('it is odd', reason=reason)", [1]),
        ("Problem.hint('it is odd', Reason.LOCKED)", []),
        ("Problem.warning('it is odd', Reason.ODD)", [1]),
        ("Problem.hint('it is odd', reason, 'there')", [1]),
    ],
)
def test_a_problem_without_a_reason_is_found(source: str, lines: list[int]) -> None:
    assert unnamed(source) == lines


@pytest.mark.parametrize("reason", Reason, ids=str)
def test_a_reason_is_fit_for_conditions_and_events(reason: Reason) -> None:
    assert re.fullmatch("[A-Z][A-Za-z0-9]*", reason.value)
    assert len(reason.value) <= 60
    assert reason.name.replace("_", "").lower() == reason.value.lower()
    assert reason.meaning.endswith(".")


def test_no_reason_is_there_twice() -> None:
    assert len({each.value for each in Reason}) == len(Reason.__members__)


def test_a_problem_comes_back_from_its_plain_form() -> None:
    problem = Problem("it is odd", "there", "mend it", reason=Reason.LOCKED, severity=Severity.WARNING)
    assert problem.plain == {
        "severity": "warning",
        "reason": "Locked",
        "what": "it is odd",
        "where": "there",
        "remedy": "mend it",
    }
    # No text of a kind that Ansible does not know.
    assert {type(each) for each in problem.plain.values()} == {str}
    assert Problem.of(problem.plain) == problem
    with pytest.raises(ValueError, match="'Odd' is no reason"):
        Problem.of({**problem.plain, "reason": "Odd"})


def test_errors_come_first_and_each_problem_once() -> None:
    hint = Problem("a hint", reason=Reason.LOCKED, severity=Severity.HINT)
    warning = Problem("b warning", reason=Reason.LOCKED, severity=Severity.WARNING)
    other = Problem("a warning", reason=Reason.LOCKED, severity=Severity.WARNING)
    errors = [Problem("z", reason=Reason.LOCKED), Problem("a", reason=Reason.LOCKED)]
    assert in_order([hint, warning, *errors, other, errors[0]]) == [*errors, other, warning, hint]
    assert str(ProblemsError(errors)).startswith("2 problems; nothing was changed:")


@pytest.mark.parametrize(
    ("remedy", "told"),
    [
        ("mend that, and run it again", "Mend that, and run it again"),
        ("if it is yours, say so", "If it is yours, say so"),
        ("Set it", "Set it"),
        ("etcd starts by itself", "etcd starts by itself"),
        ("kubectl shows it", "kubectl shows it"),
        ("spec.hosts lists them", "spec.hosts lists them"),
        ("karmada.installer.report shows it", "karmada.installer.report shows it"),
        ("-e karmada_confirm=prod", "-e karmada_confirm=prod"),
    ],
)
def test_a_remedy_is_a_sentence_unless_it_begins_with_a_name(remedy: str, told: str) -> None:
    assert str(Problem("it is there", remedy=remedy, reason=Reason.NAME_TAKEN)) == f"it is there. {told}"
