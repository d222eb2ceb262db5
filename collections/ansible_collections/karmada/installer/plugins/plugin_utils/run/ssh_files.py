# SPDX-License-Identifier: Apache-2.0
"""Private key and host keys that SSH reads, where Secrets are objects of a cluster.

They are files in the private folder of the run (``private_folder``), readable by their owner only, and are removed with
it when the run ends. Their content is never in a variable, an argument or a message.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import private_file
from ..problems import Problem, ProblemsError, Reason
from . import private_folder, ssh, ssh_folder
from .facts import Facts


def fetch(run: Facts) -> list[Path]:
    """Write the files that the document asks for; returns their paths. Raises ProblemsError with all problems."""
    if run.connection.secrets:
        return []
    return _write(run, run.spec.ssh, "spec.ssh", ssh_folder.of_this_run())


@contextmanager
def of_settings(run: Facts, settings: Mapping[str, Any], where: str) -> Iterator[tuple[str | None, str | None]]:
    """Files with the private key and the host keys that these settings refer to, while the context lasts.

    ``where`` is the path of the settings in the document. Raises ProblemsError with all problems.
    """
    if run.connection.secrets or not any(field in settings for field in ssh.REFERENCES):
        yield _files(settings, run.connection.secrets, "")
        return
    # In the folder of the run, so that they are removed with it if this process is killed.
    private_folder.make(ssh_folder.of_this_run())
    with tempfile.TemporaryDirectory(dir=ssh_folder.of_this_run()) as folder:
        _write(run, settings, where, Path(folder))
        yield _files(settings, None, folder)


def _files(settings: Mapping[str, Any], secrets: str | None, folder: str) -> tuple[str | None, str | None]:
    key, known_hosts = (ssh.file_of(field, settings, secrets, folder) for field in ssh.REFERENCES)
    return key, known_hosts


def _write(run: Facts, settings: Mapping[str, Any], where: str, folder: Path) -> list[Path]:
    problems: list[Problem] = []
    found = []
    for field, key in ssh.REFERENCES.items():
        if field not in settings:
            continue
        try:
            text = _text(run, settings[field]["name"], key, f"{where}.{field}")
        except ProblemsError as error:
            problems += error.problems
            continue
        private_folder.make(folder)
        # ssh does not read a key whose last line has no newline, which copying may have lost.
        private_file.write(folder / key, text if text.endswith("\n") else f"{text}\n")
        found.append(folder / key)
    if problems:
        raise ProblemsError(problems)
    return found


def _text(run: Facts, secret: str, key: str, where: str) -> str:
    try:
        text = run.secret(secret, where).get(key, b"").decode()
    except UnicodeDecodeError:
        text = ""
    if not text.strip():
        remedy = f"put {'a private key' if key == ssh.PRIVATE_KEY else 'host keys'} there, as the file of ssh has it"
        raise ProblemsError(
            Problem(f"the Secret {secret} has no text under the key {key}", where, remedy, reason=Reason.INVALID_SECRET)
        )
    return text
