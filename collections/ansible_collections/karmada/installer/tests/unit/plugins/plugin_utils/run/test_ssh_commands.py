# SPDX-License-Identifier: Apache-2.0
"""What ssh and a shell really make of our command lines: ``ssh -G`` says which options have arrived, and as what."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.members import kubeconfig_by_ssh
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run import ssh
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands
from hypothesis import given, settings
from hypothesis import strategies as st

DEPLOYMENT: dict[str, Any] = {
    "apiVersion": manifest.API_VERSION,
    "kind": manifest.KIND,
    "metadata": {"name": "prod"},
    "spec": {
        "mode": "Binary",
        "hosts": [{"name": "cp1", "address": "192.0.2.1"}],
        "ssh": {"user": "karmada", "knownHostsSecretRef": {"name": "hosts"}},
    },
}
#: In the place of ssh: says how ssh understands what it was called with, and connects to nobody.
SSH = """#!/bin/sh
/usr/bin/ssh -G "$@" > "$SEEN" 2>&1
echo "Host key verification failed." >&2
exit 255
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "prod.yaml").write_text(yaml.safe_dump(DEPLOYMENT))
    source = {"plugin": "karmada.installer.karmada", "manifest": "prod.yaml", "secrets": "./secrets"}
    (tmp_path / "site.karmada.yml").write_text(yaml.safe_dump(source))
    (tmp_path / "secrets" / "hosts").mkdir(parents=True)
    (tmp_path / "secrets" / "hosts" / "known_hosts").write_text("192.0.2.2 ssh-ed25519 AAAA\n")
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("asked", ["", "False"])
def test_a_host_whose_key_is_not_known_is_refused_whatever_the_environment_asks_for(site: Path, asked: str) -> None:
    """ansible-runner and AWX run everything with ANSIBLE_HOST_KEY_CHECKING=False."""
    done = _connect(site, **({"ANSIBLE_HOST_KEY_CHECKING": asked} if asked else {}))
    options = (site / "seen").read_text().splitlines()
    assert "hostname 192.0.2.1" in options, done.stdout
    assert "user karmada" in options
    assert "stricthostkeychecking true" in options
    # Relative to the folder that it is started in.
    assert "userknownhostsfile secrets/hosts/known_hosts" in options


def test_a_connection_that_another_playbook_has_opened_is_not_taken_over(site: Path) -> None:
    """It may have been opened without looking who is there."""
    _connect(site)
    ours = _control_path(site)
    _connect(site)
    assert _control_path(site) == ours, "a later step goes on with the one that it finds"
    ansible_commands.run(
        *("ansible", "all", "-i", "192.0.2.1,", "-u", "karmada", "-m", "ansible.builtin.ping"),
        *("-e", f"ansible_ssh_executable={site}/ssh", "-e", "ansible_port=22"),
        directory=site,
        SEEN=str(site / "seen"),
    )
    others = _control_path(site)
    assert ours.name == others.name, "or they would differ for another reason"
    assert ours.parent.parent == others.parent
    (site / "prod.yaml").write_text(
        yaml.safe_dump({**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "ssh": {"user": "karmada"}}})
    )
    _connect(site)
    assert _control_path(site).parent != ours.parent, "who is to be known is another question now"


def _control_path(site: Path) -> Path:
    (line,) = [each for each in (site / "seen").read_text().splitlines() if each.startswith("controlpath ")]
    return Path(line.partition(" ")[2])


def _connect(site: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return ansible_commands.run(
        *("ansible", "cp1", "-i", "site.karmada.yml", "-m", "ansible.builtin.ping"),
        *("-e", f"ansible_ssh_executable={site}/ssh"),
        directory=site,
        SEEN=str(site / "seen"),
        **environment,
    )


# -- whatever an entry says -------------------------------------------------------------------------------------------

FINGERPRINT = "SHA256:" + "A" * 43
#: What takes words apart, ends them or stands for something else: for a shell, for ssh, for its configuration.
PIECES = [
    "'",
    '"',
    " ",
    "\\",
    "\n",
    "%h",
    "${HOME}",
    "$(id)",
    "`id`",
    ";",
    "-o",
    "ProxyCommand=id",
    "=",
    "x",
    "..",
    "/",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)
#: A good word before or behind the bad ones is what breaks out of quotes.
ODD = st.one_of(
    TEXTS, TEXTS.map(f"{FINGERPRINT}{{}}".format), TEXTS.map("192.0.2.1{}".format), TEXTS.map("me{}".format)
)
ENTRIES = st.fixed_dictionaries(
    {"address": ODD | st.just("192.0.2.1")},
    optional={"port": ODD | st.integers(0, 99_999), "hostKeyFingerprint": ODD | st.just(FINGERPRINT)},
)


def understood(arguments: list[str]) -> dict[str, str]:
    """The options with which ssh would connect, by name in small letters."""
    done = subprocess.run(
        ["/usr/bin/ssh", "-F", "/dev/null", "-G", *arguments], capture_output=True, text=True, check=True
    )
    return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())


def extra(options: dict[str, str]) -> set[str]:
    """Options that nobody who builds our command lines has in mind."""
    plain = understood(["192.0.2.1"])
    wanted = {"hostname", "user", "port", "stricthostkeychecking", "passwordauthentication", "identitiesonly"}
    wanted |= {"kbdinteractiveauthentication", "serveraliveinterval", "serveralivecountmax"}
    # The last one follows from files of host keys that are not the usual ones.
    wanted |= {"userknownhostsfile", "globalknownhostsfile", "knownhostscommand", "host", "updatehostkeys"}
    return {name for name, value in options.items() if plain.get(name) != value} - wanted


@settings(max_examples=200, deadline=None)
@given(ENTRIES, st.none() | ODD)
def test_of_an_entry_nothing_but_the_intended_option_arrives(entry: dict[str, Any], user: str | None) -> None:
    given = {"port": 22, **({"user": user} if user is not None else {})}
    try:
        found = ssh.variables(entry, given, "/s")
    except ProblemsError:
        return
    arguments = shlex.split(found["ansible_ssh_common_args"])
    # Ansible puts these two there in this form, and the address last, with nothing before it.
    arguments += ["-o", f"Port={found['ansible_port']}", *(["-o", f'User="{user}"'] if user else [])]
    if found["ansible_port"] > 65_535:
        return  # ssh refuses to begin
    options = understood([*arguments, found["ansible_host"]])
    assert extra(options) == set()
    assert options["hostname"].lower() == entry["address"].lower()
    assert options["stricthostkeychecking"] == "true"
    if user:
        assert options["user"] == user
    if entry.get("hostKeyFingerprint"):
        assert options["knownhostscommand"] == (f'/bin/sh -c "test %f != {FINGERPRINT} || echo %H %t %K"')


#: Options that reading a kubeconfig sets beside those.
OF_READING = {
    *("batchmode", "connecttimeout", "controlmaster", "controlpath", "clearallforwardings", "forwardagent"),
    *("requesttty", "identityfile"),
}
#: ssh passes over a key that it cannot read.
KEY = __file__
GOOD = {
    "address": "192.0.2.1", "port": 22, "path": "/etc/kubeconfig", "user": "admin", "hostKeyFingerprint": FINGERPRINT,
}  # fmt: skip
#: Good but for one field at most: with more of them, one that is refused would hide one that is not.
SOURCES = st.one_of(
    st.just(GOOD),
    st.integers(0, 99_999).map(lambda port: {**GOOD, "port": port}),
    TEXTS.map(lambda name: {**GOOD, "path": f"/{name}"}),
    *(ODD.map(lambda odd, field=field: {**GOOD, field: odd}) for field in GOOD if field != "path"),
    *(st.just({key: value for key, value in GOOD.items() if key != left}) for left in ("user", "hostKeyFingerprint")),
)


@settings(max_examples=100, deadline=None)
@given(SOURCES, st.none() | st.just(KEY), st.none() | st.just("/k/known_hosts"))
def test_reading_a_kubeconfig_gives_ssh_nothing_but_the_intended_options(
    source: dict[str, Any], key: str | None, known_hosts: str | None
) -> None:
    """Whatever an entry says that is read from a record; the shell of the host gets its words in one."""
    try:
        program, *arguments = kubeconfig_by_ssh.command(source, key, known_hosts)
    except ProblemsError:
        return
    assert program == "ssh"
    if source["port"] > 65_535:
        return  # ssh refuses to begin
    options = understood(arguments)
    assert extra(options) - OF_READING == set()
    assert options["hostname"].lower() == source["address"].lower()
    assert options["port"] == str(source["port"])
    assert options["user"] == source.get("user", options["user"])
    expected = {"batchmode": "yes", "clearallforwardings": "yes", "forwardagent": "no", "requesttty": "false"}
    assert {name: options[name] for name in expected} == expected
    assert (options["stricthostkeychecking"], options.get("proxycommand")) == ("true", None)
    if key:
        # With it, no other key is tried.
        assert (options["identityfile"], options["identitiesonly"]) == (key, "yes")
    if source.get("hostKeyFingerprint"):
        assert options["knownhostscommand"] == f'/bin/sh -c "test %f != {FINGERPRINT} || echo %H %t %K"'
    elif known_hosts:
        assert options["userknownhostsfile"] == known_hosts
    # Behind the address there is one word more, which is for the host.
    place = arguments.index("--")
    assert arguments[place + 1 : place + 2] == [source["address"]]
    assert len(arguments) == place + 3


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_a_folder_of_secrets_may_have_any_name(name: str) -> None:
    """It is the user's own; a line break or a variable of the environment in it is more than ssh can be told."""
    if "\n" in name or "${" in name:
        return
    settings_ = {"port": 22, "knownHostsSecretRef": {"name": "hosts"}}
    found = ssh.variables({"address": "192.0.2.1"}, settings_, f"/s{name}/s")
    options = understood([*shlex.split(found["ansible_ssh_common_args"]), "192.0.2.1"])
    assert extra(options) == set()
    assert options["userknownhostsfile"] == str(Path(f"/s{name}/s/hosts/known_hosts"))


@settings(max_examples=100, deadline=None)
@given(TEXTS.map(lambda text: text.replace("/", "").replace("..", "")).filter(bool))
def test_a_shell_reads_the_file_and_runs_nothing(name: str) -> None:
    """The words that sshd hands to the shell of a host."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_text("kubeconfig")
        source = {"address": "192.0.2.1", "port": 22, "path": f"{folder}/{name}"}
        *_ssh, script = kubeconfig_by_ssh.command(source, None, None)
        done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == ("kubeconfig", "")
