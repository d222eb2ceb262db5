# SPDX-License-Identifier: Apache-2.0
"""Tables of the documentation that list what is there have a row for each of it, and say of each what is so."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

from evidence import tree

ROOT = Path(__file__).resolve().parents[2]
OPERATOR = ROOT / "operator/karmada_operator"


def of_make_test() -> set[str]:
    """Scenarios of `make test`, as make itself reads them."""
    done = subprocess.run(
        ["make", "--silent", "--eval=of-make-test: ; @echo $(SCENARIOS)", "of-make-test"],
        cwd=ROOT, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stdout.split())


def test_scenarios_have_a_row_each_which_says_whether_make_test_runs_it():
    text = (ROOT / "molecule/README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", text, re.MULTILINE)
    assert sorted(name for name, _ in rows) == tree.scenarios(ROOT)
    in_the_whole_only = {name for name, says in rows if re.search(r"; in `make test-full`(?=[.,]|$)", says)}
    assert in_the_whole_only == set(tree.scenarios(ROOT)) - of_make_test()


def test_files_of_the_operator_have_a_row():
    text = (ROOT / "docs/operator.md").read_text(encoding="utf-8").partition("\n## Files\n")[2].partition("\n\n## ")[0]
    named = Counter(name for cell in re.findall(r"^\| (`.+?) \|", text, re.MULTILINE) for name in cell.split(", "))
    files = [path for path in OPERATOR.iterdir() if path.is_file() and not path.name.startswith("__")]
    assert named == Counter(f"`{path.stem if path.suffix == '.py' else path.name}`" for path in files)
