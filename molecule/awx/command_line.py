# SPDX-License-Identifier: Apache-2.0
"""Command line of the programs that run updates and jobs of an AWX: where it is, and what each of them can do."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from awx_site import Unseen

#: Fields of a site that are paths; each is an option of its name.
PATHS = ("work", "logs", "kubeconfig", "artifacts", "document", "figures")


def parser(text: str | None, *plain: str) -> tuple[argparse.ArgumentParser, Any]:
    """Parser, and what commands with arguments are added to; ``job`` is there, and the ``plain`` ones without any."""
    found = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in PATHS:
        found.add_argument(f"--{name}", type=Path, required=True)
    found.add_argument("--lab", required=True)
    commands = found.add_subparsers(dest="command", required=True)
    for name in plain:
        commands.add_parser(name)
    one = commands.add_parser("job")
    one.add_argument("verb")
    one.add_argument("--answer", action="append", default=[], type=lambda pair: pair.partition("=")[::2])
    one.add_argument("--unchanged", action="store_true")
    return found, commands


def where(given: argparse.Namespace) -> dict[str, Any]:
    """Fields of a site. The folder of its logs is there afterwards."""
    given.logs.mkdir(parents=True, exist_ok=True)
    return {name: getattr(given, name) for name in (*PATHS, "lab")}


def carried_out(step: Callable[[], None]) -> int:
    """Exit code of a command: 1, with the reason on the output, if what was to be seen is not."""
    try:
        step()
    except Unseen as error:
        print(error)
        return 1
    return 0
