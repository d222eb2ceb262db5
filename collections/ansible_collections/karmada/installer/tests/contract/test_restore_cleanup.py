# SPDX-License-Identifier: Apache-2.0
"""Old data of etcd that goes by etcd itself, shown with the real program: a folder is mounted to it as in the pod."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.render import etcd_cleanup
from ansible_collections.karmada.installer.tests.contract.test_backup_snapshot import programs
from ansible_collections.karmada.installer.tests.contract.test_etcd_members import VERSIONS

#: The kubelet mounts before it starts a container. A namespace of mounts goes with its process.
MOUNTED = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
LOG = "log.tmp"


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """Old data, what etcd uses now, and a link out of the old."""
    for folder in ("gen-1", "gen-2"):
        (tmp_path / f"volume/{folder}/member/snap").mkdir(parents=True)
        (tmp_path / f"volume/{folder}/member/snap/db").write_bytes(os.urandom(10_000))
    (tmp_path / "volume/gen-1/link").symlink_to(tmp_path / "volume/gen-2")
    return tmp_path / "volume"


def clean(version: str, folder: Path, scratch: Path) -> str:
    """Have it emptied by what the pod runs; returns what etcd said."""
    (scratch / LOG).mkdir(parents=True, exist_ok=True)
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    within = ["unshare", "--mount", *own, "sh", "-ec", MOUNTED, "sh", str(folder), str(scratch / LOG)]
    command = etcd_cleanup.command(str(programs(version).etcd), str(scratch))
    ended = subprocess.run([*within, *command], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode != 0
    return ended.stdout + ended.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_a_folder_is_emptied_and_nothing_beside_it(version: str, volume: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    for _ in range(2):
        # The second time there is nothing left, which is no failure.
        assert etcd_cleanup.is_empty(clean(version, volume / "gen-1", scratch), str(scratch))
        assert list((volume / "gen-1").iterdir()) == []
        assert (volume / "gen-2/member/snap/db").stat().st_size == 10_000


@pytest.mark.parametrize("version", VERSIONS)
def test_what_cannot_be_removed_is_told(version: str, volume: Path, tmp_path: Path) -> None:
    """A file to which something is mounted stands for it: root may remove all others."""
    scratch = tmp_path / "scratch"
    held = scratch / LOG / "member/snap/db"
    (scratch / LOG).mkdir(parents=True)
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    script = f'mount --bind "$1" "$2" && mount --bind "{held}" "{held}" && shift 2 && exec "$@"'
    within = ["unshare", "--mount", *own, "sh", "-ec", script, "sh", str(volume / "gen-1"), str(scratch / LOG)]
    command = etcd_cleanup.command(str(programs(version).etcd), str(scratch))
    ended = subprocess.run([*within, *command], capture_output=True, text=True, check=False, timeout=60)
    assert not etcd_cleanup.is_empty(ended.stdout + ended.stderr, str(scratch))
    assert (volume / "gen-1/member/snap/db").exists()
