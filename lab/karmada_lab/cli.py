# SPDX-License-Identifier: Apache-2.0
"""The command line: `lab COMMAND`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from karmada_lab import (
    artifacts,
    cluster,
    diagnose,
    images,
    lifecycle,
    machine,
    power,
    prepare,
    products,
    registry,
    rootfs,
    upstream,
)
from karmada_lab.cluster import Settings
from karmada_lab.errors import LabError
from karmada_lab.images import Image
from karmada_lab.state import Lab, cluster_records, exclusive, machine_records, state_lock, write_text

if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_CHANGING = {"up", "down", "load", "power"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Exit code 0, 1 with a message on standard error, or that of `lab exec`'s command."""
    options = parser().parse_args(arguments)
    try:
        lab = Lab.from_environment()
        if options.command in _CHANGING:
            if os.geteuid() != 0:
                raise LabError(f"lab {options.command} must be run as root (sudo)")
            with exclusive(state_lock(lab), "another lab command"):
                return int(options.run(lab, options) or 0)
        return int(options.run(lab, options) or 0)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except PermissionError as error:
        print(f"lab: {error}; run it as root (sudo)", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted; the next `lab up` or `lab down` cleans up", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(prog="lab", description="Real hosts and real Kubernetes clusters on this machine.")
    versions = argparse.ArgumentParser(add_help=False)
    versions.add_argument("--karmada", default=products.KARMADA_VERSION, metavar="VERSION")
    versions.add_argument("--kubernetes", default=products.KUBERNETES_VERSION, metavar="VERSION")
    versions.add_argument("--etcd", default=products.ETCD_VERSION, metavar="VERSION")
    source = argparse.ArgumentParser(add_help=False)
    source.add_argument("--source", choices=artifacts.SOURCES, default="auto", help="where binaries come from")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    one = commands.add_parser("prepare", help="check this machine and install what is missing")
    one.set_defaults(run=_prepare)

    one = commands.add_parser("artifacts", help="bring binaries into the cache", parents=[versions, source])
    one.add_argument("action", nargs="?", choices=["path", "source", "dir", "lock"])
    one.add_argument("name", nargs="?", help="with path and source: name of a binary; path brings it into the cache")
    one.add_argument("--only", nargs="+", default=[], metavar="NAME", help="binaries or products")
    one.set_defaults(run=_artifacts)

    one = commands.add_parser("up", help="make clusters and hosts", parents=[versions, source])
    one.add_argument("--cluster", action="append", default=[], metavar="NAME[=NODES][,ipv4|ipv6|dual]")
    one.add_argument("--host", action="append", default=[], metavar="NAME[,ipv4|ipv6|dual]")
    one.add_argument("--images", action="append", default=[], metavar="SET", help="load into the named clusters")
    one.add_argument("--metallb", action="store_true", help="load balancer addresses in the named clusters")
    one.add_argument("--registry", action="store_true", help="a container registry with TLS on the lab's network")
    one.add_argument("--pod-routes", action="store_true", help="pods of all clusters reach each other")
    one.set_defaults(run=_up)

    one = commands.add_parser("down", help="remove clusters and hosts, or all")
    one.add_argument("names", nargs="*", metavar="NAME")
    one.set_defaults(run=_down)

    one = commands.add_parser("status", help="what is up")
    one.add_argument("--json", action="store_true")
    one.set_defaults(run=_status)

    one = commands.add_parser("kubeconfig", help="one kubeconfig with a context for each cluster")
    one.add_argument("names", nargs="*", metavar="NAME")
    one.add_argument("--output", type=Path, metavar="FILE", help="write there, mode 0600")
    one.set_defaults(run=_kubeconfig)

    _add_more(commands, versions, source)
    return top


def _add_more(commands: _Commands, versions: argparse.ArgumentParser, source: argparse.ArgumentParser) -> None:
    """Commands for what is up already."""
    one = commands.add_parser("load", help="load images into clusters", parents=[versions, source])
    one.add_argument("clusters", nargs="+", metavar="CLUSTER")
    one.add_argument(
        "--image", action="append", default=[], metavar="REF=BINARY", help="an image around a static binary"
    )
    one.add_argument("--images", action="append", default=[], metavar="SET")
    one.set_defaults(run=_load)

    one = commands.add_parser("push", help="push images to the lab's registry", parents=[versions, source])
    one.add_argument(
        "--image", action="append", default=[], metavar="REF=BINARY", help="an image around a static binary"
    )
    one.add_argument("--images", action="append", default=[], metavar="SET")
    one.set_defaults(run=_push)

    one = commands.add_parser("exec", help="run a command in a host or node: lab exec NAME -- CMD...")
    one.add_argument("name")
    one.add_argument("words", nargs=argparse.REMAINDER, metavar="-- CMD")
    one.set_defaults(run=_exec)

    one = commands.add_parser("power", help="plain hosts lose power (off), are shut down, boot again (on)")
    one.add_argument("action", choices=["off", "shutdown", "on"])
    one.add_argument("names", nargs="+", metavar="NAME")
    one.set_defaults(run=_power)

    one = commands.add_parser("ssh-config", help="ssh configuration for the plain hosts")
    one.add_argument("names", nargs="*", metavar="NAME")
    one.set_defaults(run=_ssh_config)

    one = commands.add_parser("audit-log", help="path of a cluster's audit log")
    one.add_argument("cluster")
    one.set_defaults(run=_audit_log)

    one = commands.add_parser("dump", help="diagnostics into a folder, without secrets")
    one.add_argument("folder", type=Path)
    one.set_defaults(run=_dump)


def _settings(options: argparse.Namespace) -> Settings:
    if hasattr(options, "karmada"):
        return Settings(products.catalogue(options.karmada, options.kubernetes, options.etcd))
    return Settings(products.catalogue())


def _prepare(lab: Lab, _options: argparse.Namespace) -> None:
    prepare.prepare(lab)


def _artifacts(lab: Lab, options: argparse.Namespace) -> None:
    known = _settings(options).products
    if options.action == "dir":
        print(lab.artifacts)
    elif options.action in ("path", "source"):
        if not options.name:
            raise LabError(f"lab artifacts {options.action} needs the name of a binary, like kubectl")
        if options.action == "source":
            print(artifacts.source(known, options.name))
        else:
            artifacts.ensure(lab, known, [options.name], options.source)
            print(artifacts.path_of(lab, known, options.name))
    elif options.action == "lock":
        upstream.lock([known["kubernetes"], known["etcd"]])
    else:
        artifacts.ensure(lab, known, artifacts.wanted(known, options.only), options.source)
        print(lab.artifacts)


def _up(lab: Lab, options: argparse.Namespace) -> None:
    wanted = lifecycle.Wanted(
        clusters=dict(lifecycle.parse_cluster(text) for text in options.cluster),
        hosts=dict(lifecycle.parse_host(text) for text in options.host)
        | ({registry.NAME: "ipv4"} if options.registry else {}),
        image_sets=options.images,
        metallb=options.metallb,
        pod_routes=options.pod_routes,
    )
    lifecycle.up(lab, _settings(options), wanted, options.source)


def _down(lab: Lab, options: argparse.Namespace) -> None:
    lifecycle.down(lab, options.names)


def _status(lab: Lab, options: argparse.Namespace) -> None:
    found = lifecycle.status(lab)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(
        f"lab {found['bridge']} in {found['state_folder']}, network {found['network']}, this machine {found['gateway']}"
    )
    for name, item in found["clusters"].items():
        print(
            f"cluster {name:16} {item['state']:10} {item['kubernetes']:10} {item['server']} {item['age_seconds']} s old"
        )
    for name, item in found["machines"].items():
        print(f"{item['kind']:7} {name:16} {item['state']:10} {item['address']:14} pid {item['pid']}")
    for name in found["strays"]:
        print(f"stray   {name}")


def _kubeconfig(lab: Lab, options: argparse.Namespace) -> None:
    known = [name for name, record in cluster_records(lab).items() if record.ready]
    unknown = [name for name in options.names if name not in known]
    if unknown:
        raise LabError(f"no cluster {', '.join(unknown)} is up; up: {', '.join(known) or 'none'}")
    text = json.dumps(cluster.merged_kubeconfig(lab, _settings(options), options.names or known), indent=2) + "\n"
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        write_text(options.output.absolute(), text, 0o600)
    else:
        print(text, end="")


def _chosen_images(lab: Lab, options: argparse.Namespace) -> list[Image]:
    """The images that --image and --images name, their binaries in the cache."""
    wanted: list[Image] = []
    for text in options.image:
        reference, separator, path = text.rpartition("=")
        file = Path(path).absolute()
        if not separator or ":" not in reference.rsplit("/", 1)[-1] or not file.is_file():
            raise LabError(f"--image {text}: must be REPOSITORY:TAG=FILE, with the path of a static binary")
        inside = f"/bin/{file.name}"
        wanted.append(Image(reference=reference, binaries={inside: str(file)}, command=(inside,)))
    for name in options.images:
        wanted += images.image_set(name, rootfs.base(lab))
    artifacts.ensure_images(lab, _settings(options).products, wanted, options.source)
    return wanted


def _load(lab: Lab, options: argparse.Namespace) -> None:
    wanted = _chosen_images(lab, options)
    for name in options.clusters:
        lifecycle.load_images(lab, _settings(options), name, wanted)


def _push(lab: Lab, options: argparse.Namespace) -> None:
    for image in _chosen_images(lab, options):
        print(registry.push(lab, image.reference, cluster.archive_of(lab, _settings(options), image)))


def _exec(lab: Lab, options: argparse.Namespace) -> int:
    record = machine_records(lab).get(options.name)
    leader = machine.find_leader(record) if record else None
    if leader is None:
        raise LabError(f"no machine {options.name} is up; `lab status` shows what is")
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    command = [*machine.enter(leader), *(words or ["bash", "-l"])]
    os.execvp(command[0], command)  # noqa: S606 - becoming the command is the point: signals, exit code, terminal


def _power(lab: Lab, options: argparse.Namespace) -> None:
    {"off": power.off, "shutdown": power.shutdown, "on": power.on}[options.action](lab, options.names)


def _ssh_config(lab: Lab, options: argparse.Namespace) -> None:
    known = {name: record for name, record in machine_records(lab).items() if record.ready}
    unknown = [name for name in options.names if name not in known]
    if unknown:
        raise LabError(f"no machine {', '.join(unknown)} is up; up: {', '.join(known) or 'none'}")
    print(machine.ssh_config(lab, [known[name] for name in options.names] or list(known.values())), end="")


def _audit_log(lab: Lab, options: argparse.Namespace) -> None:
    record = cluster_records(lab).get(options.cluster)
    if record is None or not record.ready:
        raise LabError(f"no cluster {options.cluster} is up; `lab status` shows what is")
    print(record.audit_log)


def _dump(lab: Lab, options: argparse.Namespace) -> None:
    diagnose.dump(lab, _settings(options), options.folder.absolute())
