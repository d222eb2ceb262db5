# SPDX-License-Identifier: Apache-2.0
"""Backups in a directory of a plain host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: _backup_folder
short_description: "Inner step on a host: read and write backups in a directory of it"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Works on the folders of the backups of one control plane in a directory that only root can write. Files are whole or
    not there, no name is written twice, and no link is followed.
  - >-
    A large file comes and goes in pieces, each in a file that O(reader) alone can read and write. What killed runs have
    left of these is deleted. No lock is needed: backups are stored while others may change the host.
options:
  root:
    description: Absolute path of the directory. It and those above it have to be there, and belong to root.
    type: path
    required: true
  below:
    description: Path of the folders below it.
    type: str
    required: true
  record:
    description: Name of the file by which a backup exists.
    type: str
    required: true
  state:
    description:
      - V(checked) writes a file, reads it and deletes it.
      - V(free) tells what there is room for.
      - V(listed) tells all files, and the beginning of each O(record).
      - V(expected) begins a file of O(size) bytes, and has O(staged) for its first piece.
      - V(stored) stores a file from O(content), or one piece of it from O(staged).
      - V(read) gives a piece of a file, in its answer or in O(staged).
      - V(removed) deletes a file, if it is there.
      - V(forgotten) deletes O(staged), and what there is of a file that was begun.
    type: str
    choices: [checked, free, listed, expected, stored, read, removed, forgotten]
    required: true
  name:
    description: Name of the backup.
    type: str
    default: ""
  file:
    description: Name of the file.
    type: str
    default: ""
  attempt:
    description: A word for this file on its way, which no other has.
    type: str
    default: ""
  size:
    description: Size of the whole file in bytes.
    type: int
    default: 0
  offset:
    description: Byte at which the piece begins.
    type: int
    default: 0
  length:
    description: Bytes of the piece that is V(stored), or of each record that is V(listed) at most.
    type: int
    default: 0
  last:
    description: >-
      Whether the piece that is V(stored) is the last one, or the file that is V(removed) the last of its backup.
    type: bool
    default: false
  content:
    description: Content of a small file, in base64.
    type: str
    default: ""
  folder:
    description: Folder of the files by which pieces come and go; made where it is needed, and deleted when it is empty.
    type: path
    required: true
  staged:
    description: Name of that file, which no other has.
    type: str
    default: ""
  reader:
    description: The user that brings and fetches it.
    type: str
    default: root
attributes:
  check_mode:
    support: none
    description: A run in check mode asks only for what writes nothing but O(staged).
  diff_mode:
    support: none
  platform:
    support: full
    platforms: posix
    description: Linux.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
"""

EXAMPLES = r"""
- name: See which backups there are
  karmada.installer._backup_folder:
    root: /srv/backups
    below: site-a/prod
    record: manifest.json
    folder: /var/lib/karmada-installer-backups
    state: listed
    length: 1048577
  become: true
"""

RETURN = r"""
unfit:
  description: The C(path) for which the directory is not used, and C(why).
  returned: when it is not fit for backups
  type: dict
fault:
  description: What is wrong with the directory or a file of it, by the name of C(errno) and in words.
  returned: when something is
  type: dict
free:
  description: Bytes that there is room for.
  returned: with the state free
  type: int
entries:
  description: Name and file of everything there.
  returned: with the state listed
  type: list
  elements: list
records:
  description: Name of a backup to its record, in base64.
  returned: with the state listed
  type: dict
size:
  description: Size of the whole file in bytes.
  returned: with the state read
  type: int
length:
  description: Bytes of this piece.
  returned: with the state read
  type: int
content:
  description: This piece, as C(base64).
  returned: with the state read, if it is small
  type: dict
"""

import base64
import errno
import io
from collections.abc import Callable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.karmada.installer.plugins.module_utils import host_backup, host_module
from ansible_collections.karmada.installer.plugins.module_utils.backup_folder import Folder
from ansible_collections.karmada.installer.plugins.module_utils.host_system import System


def main() -> None:
    """Run on the host."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "below": {"type": "str", "required": True},
            "record": {"type": "str", "required": True},
            "state": {"type": "str", "required": True, "choices": list(_DOING)},
            "name": {"type": "str", "default": ""},
            "file": {"type": "str", "default": ""},
            "attempt": {"type": "str", "default": ""},
            "size": {"type": "int", "default": 0},
            "offset": {"type": "int", "default": 0},
            "length": {"type": "int", "default": 0},
            "last": {"type": "bool", "default": False},
            "content": {"type": "str", "default": "", "no_log": True},
            "folder": {"type": "path", "required": True},
            "staged": {"type": "str", "default": ""},
            "reader": {"type": "str", "default": "root"},
        },
        supports_check_mode=False,
    )
    with host_module.refusals_told(module):
        result = _perform(System(), module.params)
    # A backup is no change of the host: who stores and deletes it tells of that.
    module.exit_json(changed=False, **result)


def _perform(system: System, asked: dict[str, Any]) -> dict[str, Any]:
    folder = Folder(str(system.path(asked["root"])), asked["below"], asked["record"])
    try:
        host_backup.require_fit(system, asked["root"])
        if not asked["staged"]:
            host_backup.sweep(system, asked["folder"])
        return _DOING[asked["state"]](system, folder, asked)
    except host_backup.UnfitError as error:
        return {"unfit": {"path": error.path, "why": error.why}}
    except OSError as error:
        words = (error.strerror or str(error))[:256]
        return {"fault": {"errno": errno.errorcode.get(error.errno or 0, ""), "text": words}}


def _way(asked: dict[str, Any]) -> str:
    """Path of the file by which pieces come and go."""
    return f"{asked['folder']}/{asked['staged']}"


def _checked(_system: System, folder: Folder, _asked: dict[str, Any]) -> dict[str, Any]:
    folder.check()
    return {}


def _free(_system: System, folder: Folder, _asked: dict[str, Any]) -> dict[str, Any]:
    return {"free": folder.free()}


def _removed(_system: System, folder: Folder, asked: dict[str, Any]) -> dict[str, Any]:
    folder.remove(asked["name"], asked["file"], asked["last"])
    return {}


def _listed(_system: System, folder: Folder, asked: dict[str, Any]) -> dict[str, Any]:
    entries = folder.entries()
    if len(entries) > host_backup.MOST_FILES:
        raise OSError(errno.E2BIG, f"there are {len(entries)} files, and {host_backup.MOST_FILES} are read at most")
    found = host_backup.records(folder, entries, asked["record"], asked["length"])
    # What has another name is of others, who may call it what they like.
    told = [list(each) for each in entries if all(map(_is_plain, each))]
    return {"entries": told, "records": {name: _text(found[name]) for name in found if _is_plain(name)}}


def _expected(system: System, folder: Folder, asked: dict[str, Any]) -> dict[str, Any]:
    folder.begin(asked["name"], asked["file"], asked["attempt"], asked["size"])
    host_backup.expect(system, _way(asked), asked["reader"], min(asked["size"], host_backup.PIECE))
    return {}


def _stored(system: System, folder: Folder, asked: dict[str, Any]) -> dict[str, Any]:
    name, file, attempt = asked["name"], asked["file"], asked["attempt"]
    if not asked["staged"]:
        folder.put(name, file, io.BytesIO(base64.b64decode(asked["content"])), asked["size"])
        return {}
    with host_backup.brought(system, _way(asked), asked["length"]) as content:
        folder.go_on(name, file, attempt, asked["offset"], content)
    if asked["last"]:
        folder.end(name, file, attempt)
        host_backup.forget(system, _way(asked))
    else:
        left = asked["size"] - asked["offset"] - asked["length"]
        host_backup.expect(system, _way(asked), asked["reader"], min(left, host_backup.PIECE))
    return {}


def _read(system: System, folder: Folder, asked: dict[str, Any]) -> dict[str, Any]:
    size, content = host_backup.piece(folder, asked["name"], asked["file"], asked["offset"])
    told: dict[str, Any] = {"size": size, "length": len(content)}
    if len(content) <= host_backup.INLINE:
        host_backup.forget(system, _way(asked))
        return {**told, "content": {"base64": _text(content)}}
    host_backup.expect(system, _way(asked), asked["reader"], len(content), content)
    return told


def _forgotten(system: System, folder: Folder, asked: dict[str, Any]) -> dict[str, Any]:
    host_backup.forget(system, _way(asked))
    if asked["attempt"]:
        folder.give_up(asked["name"], asked["file"], asked["attempt"])
    return {}


#: State → what is done.
_DOING: dict[str, Callable[[System, Folder, dict[str, Any]], dict[str, Any]]] = {
    "checked": _checked,
    "free": _free,
    "listed": _listed,
    "expected": _expected,
    "stored": _stored,
    "read": _read,
    "removed": _removed,
    "forgotten": _forgotten,
}


def _is_plain(name: str) -> bool:
    return all("!" <= each <= "~" for each in name) and len(name) <= 255


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


if __name__ == "__main__":
    main()
