# SPDX-License-Identifier: Apache-2.0
"""The private key and the host keys that SSH reads, where Secrets are objects of a cluster.

They are files in Ansible's own folder for temporary files, for their owner only, and go with that folder when the run
ends. Their content is never a variable, an argument or part of a message.
"""

from __future__ import annotations

from pathlib import Path

from ansible_collections.karmada.installer.plugins.plugin_utils import private_file, ssh, ssh_folder
from ansible_collections.karmada.installer.plugins.plugin_utils.instance_facts import InstanceFacts
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError


def fetch(run: InstanceFacts) -> list[Path]:
    """Make the files that the document asks for, and say which. Raises ProblemsError with all that is wrong."""
    settings, problems, found = run.spec["ssh"], [], []
    for field, key in ssh.REFERENCES.items():
        if field not in settings or run.connection.secrets:
            continue
        name, where = settings[field]["name"], f"spec.ssh.{field}"
        try:
            content = run.secret(name, where).get(key, b"")
            text = content.decode()
        except ProblemsError as error:
            problems += error.problems
            continue
        except UnicodeDecodeError:
            text = ""
        if not text.strip():
            remedy = (
                f"put {'a private key' if key == ssh.PRIVATE_KEY else 'host keys'} there, as the file of ssh has it"
            )
            problems.append(Problem(f"the Secret {name} has no text under the key {key}", where, remedy))
            continue
        file = ssh_folder.of_this_run() / key
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # ssh does not read a key whose last line has no end, as it may be after copying it.
        private_file.write(file, text if text.endswith("\n") else f"{text}\n")
        found.append(file)
    if problems:
        raise ProblemsError(problems)
    return found
