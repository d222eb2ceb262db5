# SPDX-License-Identifier: Apache-2.0
"""Picture of the two ways in which a control plane runs, drawn from the table of components."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import COMPONENTS
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import Component

from .sources import ROOT

FILE = ROOT / "docs/images/modes.svg"

WIDTH = 1184
#: The picture has a background of its own, so that it is readable on whatever page it stands.
STYLE = """\
  svg { font: 13px system-ui, sans-serif; --paper: #ffffff; --ink: #1f2328; --quiet: #59636e; --line: #8b949e;
        --pods: #ddf4ff; --hosts: #fff1e5; --part: #ffffff; }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #161b22; --ink: #f0f6fc; --quiet: #b1bac4; --line: #8b949e; --pods: #12314f; --hosts: #3d2611;
          --part: #0d1117; } }
  .paper { fill: var(--paper); } .pods { fill: var(--pods); } .hosts { fill: var(--hosts); }
  .part { fill: var(--part); } rect { stroke: var(--line); } .paper { stroke: none; }
  .optional { stroke-dasharray: 4 3; }
  text { fill: var(--ink); } .title { font-weight: 600; } .quiet { fill: var(--quiet); font-size: 12px; }
  path { stroke: var(--line); stroke-width: 1.5; fill: none; marker-end: url(#tip); }
  #tip path { fill: var(--line); marker-end: none; }
"""
BOX, GAP, COLUMNS = (200, 26), 8, 3


def picture() -> str:
    """SVG of document, Ansible, both modes and the members. Optional components have broken lines."""
    always = [each for each in COMPONENTS if not each.optional]
    optional = [each for each in COMPONENTS if each.optional]
    rows = -(-len(always) // COLUMNS) + -(-len(optional) // COLUMNS)
    pods_height = 42 + rows * (BOX[1] + GAP) + 6
    hosts_top = 20 + pods_height + 24
    names = [each.name for each in always]
    host_height = 44 + 17 * len(names) + 6
    hosts_height = 46 + host_height + 44
    height = hosts_top + hosts_height + 20
    middle = height // 2
    inside = [
        *_rectangle(0, 0, WIDTH, height, "paper"),
        *_box(20, middle - 92, 184, 62, "KarmadaDeployment", "one document", "part"),
        *_box(20, middle + 20, 184, 62, "ansible-playbook", "install, members, …", "part"),
        _arrow(f"M112 {middle - 30} V{middle + 14}"),
        _arrow(f"M204 {middle + 51} H230 V{20 + pods_height // 2} H250"),
        _arrow(f"M204 {middle + 51} H230 V{hosts_top + hosts_height // 2} H250"),
        *_box(258, 20, 648, pods_height, "mode: Container", "pods of a host cluster", "pods"),
        *_parts(always, 274, 56),
        *_parts(optional, 274, 56 + -(-len(always) // COLUMNS) * (BOX[1] + GAP)),
        *_box(258, hosts_top, 648, hosts_height, "mode: Binary", "systemd units of plain hosts", "hosts"),
        *(
            line
            for number in range(COLUMNS)
            for line in _host(274 + number * (BOX[0] + GAP), hosts_top + 46, host_height, f"host {number + 1}", names)
        ),
        *_rectangle(274, hosts_top + 46 + host_height + 8, 616, 28, "part optional"),
        _text(582, hosts_top + 46 + host_height + 27, "virtual IP: HAProxy and keepalived", "quiet", anchor="middle"),
        *_box(970, middle - 100, 190, 78, "member, mode Push", "the control plane", "part"),
        _text(986, middle - 36, "reaches its API server", "quiet"),
        *_box(970, middle + 20, 190, 78, "member, mode Pull", "its karmada-agent", "part"),
        _text(986, middle + 84, "reaches the control plane", "quiet"),
        _arrow(f"M906 {middle - 60} H962"),
        _arrow(f"M970 {middle + 60} H914"),
    ]
    title = "A document becomes a control plane in pods of a host cluster, or in units of plain hosts"
    return "\n".join(
        [
            "<!-- SPDX-License-Identifier: Apache-2.0 -->",
            "<!-- Drawn from the table of components by `make reference`. -->",
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{title}</title>",
            f"<style>\n{STYLE}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"',
            ' orient="auto">',
            '<path d="M0 0 L8 4 L0 8 z"/></marker></defs>',
            *inside,
            "</svg>",
            "",
        ]
    )


def _parts(components: Sequence[Component], left: int, top: int) -> Iterator[str]:
    for number, each in enumerate(components):
        x = left + number % COLUMNS * (BOX[0] + GAP)
        y = top + number // COLUMNS * (BOX[1] + GAP)
        yield from _rectangle(x, y, *BOX, "part optional" if each.optional else "part")
        yield _text(x + BOX[0] // 2, y + 17, each.name, "quiet", anchor="middle")


def _host(left: int, top: int, height: int, name: str, units: Iterable[str]) -> Iterator[str]:
    yield from _box(left, top, BOX[0], height, name, "", "part")
    for number, unit in enumerate(units):
        yield _text(left + 9, top + 46 + 17 * number, unit, "quiet")


def _box(left: int, top: int, width: int, height: int, title: str, below: str, kind: str) -> Iterator[str]:
    yield from _rectangle(left, top, width, height, kind)
    yield _text(left + 16, top + 24, title, "title")
    if below:
        # In a panel beside the title, above what stands in it.
        beside = kind != "part"
        yield _text(left + (150 if beside else 16), top + (24 if beside else 44), below, "quiet")


def _rectangle(left: int, top: int, width: int, height: int, kind: str) -> Iterator[str]:
    yield f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="6" class="{kind}"/>'


def _text(left: int, top: int, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text x="{left}" y="{top}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'


def _arrow(course: str) -> str:
    return f'<path d="{course}"/>'
