# SPDX-License-Identifier: Apache-2.0
"""The guide on backups names Secrets, files and addresses that there are."""

from __future__ import annotations

import configparser
import re
from datetime import timedelta

import yaml
from ansible_collections.karmada.installer.plugins.module_utils import backup_folder, host_backup
from ansible_collections.karmada.installer.plugins.module_utils.host_state import STATE_FOLDER
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import claim, record, s3, targets, workplace
from ansible_collections.karmada.installer.plugins.plugin_utils.components import hosts as component_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.instance import Instance
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import from_files, to_files
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD, KARMADA_APISERVER
from ansible_collections.karmada.installer.plugins.plugin_utils.document import backups
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.render import backup_claim, units
from ansible_collections.karmada.installer.tests.unit.support import documentation, runs_on_hosts, samples

PAGE = (documentation.REPOSITORY / "docs/guides/backup.md").read_text(encoding="utf-8")


def test_secrets_are_those_of_the_control_plane() -> None:
    named = set(re.findall(r"kubectl get secret (\S+)", PAGE))
    assert named == {"prod-installer-state", "prod-apiserver-etcd-client-cert"}
    (client,) = (
        each
        for each in samples.quickly_rendered({}).objects
        if (each["kind"], each["metadata"]["name"]) == ("Secret", "prod-apiserver-etcd-client-cert")
    )
    assert set(client["data"]) == {"ca.crt", "tls.crt", "tls.key"}


def test_etcd_in_pods_is_reached_by_a_port_forward() -> None:
    found = samples.quickly_rendered({})
    assert "pod/prod-etcd-0 12379:2379" in PAGE
    assert ETCD.ports["client"] == 2379
    assert "127.0.0.1" in found.layout.server_names["etcd-server"].ips


def test_files_on_hosts_are_those_of_the_api_server() -> None:
    deployment = samples.document({"mode": "Binary", "hosts": [{"name": "cp1", "address": "192.0.2.11"}]})
    of = Instance.of(deployment, releases.newest(), samples.OWNER, "10.96.0.0/12")
    (host,) = component_hosts.all_hosts(of.spec)
    where = units.layout(of, host, KARMADA_APISERVER, "192.0.2.11")
    flags = dict(each[2:].split("=", 1) for each in KARMADA_APISERVER.flags(of.spec, where))
    (folder,) = re.findall(r"^files=(.+)$", PAGE, flags=re.MULTILINE)
    assert flags["etcd-certfile"] == f"{folder}/tls.crt"
    assert flags["etcd-keyfile"] == f"{folder}/tls.key"
    assert flags["etcd-cafile"] == f"{folder}/ca.crt"
    assert where.bind_address == "192.0.2.11", "where etcd listens"
    assert f"-C {STATE_FOLDER} " in PAGE


def test_examples_are_backups_that_are_accepted_and_name_keys_that_are_read() -> None:
    blocks = re.findall(r"^ *```yaml\n(.*?)^ *```", PAGE, flags=re.MULTILINE | re.DOTALL)
    written = [yaml.safe_load(each) for each in blocks if "kind: EtcdBackup" in each]
    in_pods, on_hosts = samples.document({}), runs_on_hosts.deployment()
    found = {}
    for each in written:
        of_host = backups.ON_HOST in each["spec"]["target"]
        (one,) = backups.resolved([each], on_hosts if of_host else in_pods)
        found[one["metadata"]["name"]] = backups.Wanted.of(one)
    assert {name: type(each.target) for name, each in found.items()} == {
        "hourly": backups.S3,
        "nightly": backups.VolumeClaim,
        "weekly": backups.HostDirectory,
    }
    for key in (s3.ACCESS_KEY, s3.SECRET_KEY, s3.AUTHORITY):
        assert f"`{key}`" in PAGE
    for file in (record.SNAPSHOT, record.KEYS, record.RECORD):
        assert file in PAGE
    assert f"~/.cache/karmada-installer/{workplace.folder().name}`" in PAGE


def test_what_a_volume_claim_needs_is_what_its_pod_has() -> None:
    of_pod = backup_claim.pod(
        samples.quickly_rendered({}).instance, "prod-1", "python:3.12", backup_claim.Served("c", "p", "r", ""), ""
    )["spec"]
    assert f"write ({of_pod['securityContext']['runAsUser']}, if the document says nothing)" in PAGE
    assert of_pod["securityContext"]["runAsUser"] == of_pod["securityContext"]["fsGroup"]
    assert (backup_folder.LONELY_SECONDS, claim.READY_SECONDS) == (120.0, 180.0)
    for told in ("ends\ntwo minutes later", "up to\n  three minutes", "or no node for it, after three"):
        assert re.sub(r"\s+", " ", told) in re.sub(r"\s+", " ", PAGE)


def test_what_a_directory_of_a_host_needs_is_what_is_asked_of_it() -> None:
    assert f"in pieces of {host_backup.PIECE >> 20} MiB by `{host_backup.FOLDER}`" in PAGE
    assert host_backup.LEFT_SECONDS == 2 * 3600
    assert timedelta(days=1) == targets.ABANDONED
    for told in ("from two hours on", "as in any other target, after a day", f"(`{Reason.BACKUP_AT_RISK.value}`)"):
        assert re.sub(r"\s+", " ", told) in re.sub(r"\s+", " ", PAGE)


def test_samples_of_a_timer_and_of_cron_start_the_same_command() -> None:
    units = {}
    for block in re.findall(r"^```ini\n# /etc/systemd/system/(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL):
        head, _, text = block.partition("\n")
        units[re.split(r"[ ,]", head)[0]] = text
    assert units.keys() == {"karmada-backup.service", "karmada-backup.timer"}
    timer, service = configparser.ConfigParser(), configparser.ConfigParser()
    timer.read_string(units["karmada-backup.timer"])
    service.read_string(units["karmada-backup.service"])
    assert (timer["Timer"]["OnCalendar"], timer["Install"]["WantedBy"]) == ("*:0/5", "timers.target")
    (cron,) = re.findall(r"^# /etc/cron\.d/karmada-backup\n(.*)$", PAGE, flags=re.MULTILINE)
    assert cron.startswith("*/5 * * * * root cd /srv/karmada && flock -n ")
    command = service["Service"]["ExecStart"].removeprefix(service["Service"]["WorkingDirectory"] + "/")
    assert cron.endswith(f" {command}")


def test_a_state_that_is_put_back_is_read_again() -> None:
    before = samples.state()
    assert to_files(from_files(to_files(before), "a backup")) == to_files(before)
