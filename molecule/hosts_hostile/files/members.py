# SPDX-License-Identifier: Apache-2.0
"""Member clusters that mean harm, beside sound ones: one of each kind that contract tests know, and one with commands.

    members.py --address ADDRESS --folder FOLDER --told FILE --mark FILE [--seconds SECONDS]

They listen at ADDRESS, where hosts reach them, too. FOLDER gets a directory for each, as a run from files has them in
the place of Secrets. The file of --told appears when all of them serve: JSON, ``members`` as a document lists them, and
``words`` that a run has to say of each, by name. MARK is the file that their commands would make. They end by
themselves, should the scenario be killed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from ansible_collections.karmada.installer.tests.unit.support import faulty_answers
from ansible_collections.karmada.installer.tests.unit.support.simulated_members import FAULTY, WORDS, SimulatedMembers

COMMANDS = "commands"


def main() -> int:
    """Serve until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--told", type=Path, required=True)
    parser.add_argument("--mark", required=True)
    parser.add_argument("--seconds", type=float, default=3600.0)
    options = parser.parse_args()
    message = (
        f"{{{{ lookup('ansible.builtin.pipe', 'touch {options.mark}') }}}} $(touch {options.mark}) "
        f"`touch {options.mark}` '; touch {options.mark}; ' \"; touch {options.mark}; \" {faulty_answers.ESCAPES}"
    )
    faulty_answers.FIRST_ANSWERS[COMMANDS] = faulty_answers.refusal(message)
    faulty_answers.TRICKLE_SECONDS = 1.0
    words = {**WORDS, COMMANDS: "403 Error"}
    hostile = {f"hostile-{way}": way for way in (*FAULTY, COMMANDS)}
    with SimulatedMembers([], hostile, options.address) as members:
        for each in members.members.values():
            each.administrator = True
        members.write_secrets(options.folder)
        listed = [{"name": name, "secretRef": {"name": name}} for name in hostile]
        unfinished = options.told.with_name(f".{options.told.name}")
        unfinished.write_text(
            json.dumps({"members": listed, "words": {name: words[way] for name, way in hostile.items()}})
        )
        unfinished.rename(options.told)
        time.sleep(options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
