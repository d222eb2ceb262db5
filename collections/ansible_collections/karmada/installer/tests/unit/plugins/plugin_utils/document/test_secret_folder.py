# SPDX-License-Identifier: Apache-2.0
"""The name of a Secret leads to a directory below that of the Secrets, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document import secret_folder
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize("name", ["ssh", "ssh-known-hosts", "a.b", "0", "a" * 253])
def test_a_name_that_a_secret_can_have_is_a_directory_there(name: str) -> None:
    assert secret_folder.path("/s", name, "spec.ssh") == Path("/s") / name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "...", "a..b", ".a", "a.", "-a", "a/b", "../x", "/etc", "a\n", "a\0", "A", "~", "a" * 254]
)
def test_any_other_name_is_refused_with_its_field(name: str) -> None:
    with pytest.raises(ProblemsError) as refused:
        secret_folder.path("/s", name, "spec.ssh.privateKeySecretRef")
    (problem,) = refused.value.problems
    assert (problem.where, problem.reason) == ("spec.ssh.privateKeySecretRef", Reason.SECRET_NOT_FOUND)


@given(st.text(alphabet="a./\\-~\n\0é", max_size=8))
def test_whatever_it_is_called_it_stays_below(name: str) -> None:
    try:
        found = secret_folder.path("/s", name, "x")
    except ProblemsError:
        return
    assert found.parent == Path("/s")
    assert Path("/s").resolve() in found.resolve().parents
