# SPDX-License-Identifier: Apache-2.0
"""Commands of a page, as somebody pastes them into a shell in a checkout."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from ansible_collections.karmada.installer.tests.contract.conftest import CHECKOUT, ApiServer, binary


def blocks(file: Path, language: str) -> list[str]:
    """Blocks of code of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", file.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def block(file: Path, language: str, word: str) -> str:
    """Block of code with this word; there is one."""
    (found,) = (each for each in blocks(file, language) if word in each)
    return found


class User:
    """Somebody in a checkout, with ``kubectl`` and, where it is wanted, ``helm``.

    ``parts`` are what commands read of the checkout; what they write stays in ``folder``.
    """

    def __init__(self, server: ApiServer, folder: Path, *parts: str) -> None:
        self.server, self.folder = server, folder
        self._programs = folder / "bin"
        for each in (folder, self._programs):
            each.mkdir()
        for part in parts:
            (folder / part).symlink_to(CHECKOUT / part)
        self.has("kubectl", binary("kubectl", "TEST_KUBECTL"))

    def has(self, name: str, program: str) -> None:
        """Have this program under a name."""
        (self._programs / name).symlink_to(program)

    def begins(self, commands: str) -> subprocess.Popen[str]:
        """Commands as they are pasted into a shell, but that the first one which fails is the last."""
        environment = {
            "PATH": f"{self._programs}:{os.environ.get('PATH', '')}",
            "HOME": str(self.folder),
            "KUBECONFIG": str(self.server.kubeconfig),
        }
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def runs(self, commands: str) -> str:
        """Output of commands that come to their end by themselves."""
        return ended(self.begins(commands))


def ended(process: subprocess.Popen[str]) -> str:
    """Output of a shell that has done all it was told."""
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return output
