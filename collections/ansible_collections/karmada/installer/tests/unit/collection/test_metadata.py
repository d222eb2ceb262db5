# SPDX-License-Identifier: Apache-2.0
"""What is written in two places of the repository says the same in both."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible.config.manager import ConfigManager
from ansible_collections.karmada.installer.plugins.plugin_utils import libraries
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import COLLECTION_VERSION

COLLECTION = Path(__file__).parents[3]
REPOSITORY = COLLECTION.parents[3]


def setup_cfg() -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    return config


def load(path: str) -> dict:
    return yaml.safe_load((COLLECTION / path).read_text(encoding="utf-8"))


def names(text: str) -> set[str]:
    """Normalised package names of requirement lines."""
    lines = (line.strip() for line in text.splitlines())
    return {
        re.split(r"[ <>=!~;\[]", line, maxsplit=1)[0].lower().replace("_", "-")
        for line in lines
        if line and not line.startswith("#")
    }


def test_one_version() -> None:
    assert setup_cfg()["metadata"]["version"] == load("galaxy.yml")["version"] == COLLECTION_VERSION


def test_every_requirement_is_pinned() -> None:
    config = setup_cfg()
    wanted = names(config["options"]["install_requires"]) | names(config["options.extras_require"]["test"])
    pinned = _pinned("requirements-test.txt")
    assert wanted - names("\n".join(pinned)) == set()


@pytest.mark.parametrize("extra", ["socks", "backup", "operator"])
def test_what_users_install_has_every_extra_and_the_tests_have_it_too(extra: str) -> None:
    wanted = names(setup_cfg()["options.extras_require"][extra])
    assert wanted - names("\n".join(_pinned("requirements.txt"))) == set()
    assert wanted <= names(setup_cfg()["options.extras_require"]["test"])


def test_every_pin_has_hashes() -> None:
    """pip refuses a file with no hash only if each has one; what users install is what the tests run with."""
    for_users, for_tests = _pinned("requirements.txt"), _pinned("requirements-test.txt")
    assert all("==" in each and "--hash=sha256:" in each for each in (*for_users, *for_tests))
    assert set(for_users) <= set(for_tests)


def test_what_the_site_is_built_with_is_pinned_and_is_what_the_tests_have() -> None:
    for_site, for_tests = _pinned("requirements-docs.txt"), _pinned("requirements-test.txt")
    assert names(setup_cfg()["options.extras_require"]["docs"]) - names("\n".join(for_site)) == set()
    assert all("==" in each and "--hash=sha256:" in each for each in for_site)
    shared = names("\n".join(for_site)) & names("\n".join(for_tests))
    assert {each for each in for_site if names(each) & shared} <= set(for_tests)


def _pinned(file: str) -> list[str]:
    """One line for each package: version and hashes."""
    text = (REPOSITORY / file).read_text(encoding="utf-8").replace("\\\n", "")
    lines = [" ".join(line.split()) for line in text.splitlines() if not line.startswith("#")]
    return [re.sub(r" ;.*?(?= --hash)", "", line) for line in lines]


#: Declared, imported by no file of the collection, and there for this reason.
NOT_IMPORTED = {
    "ansible-core": "runs the collection; its files import it as ansible",
    "ansible-runner": "the operator's, which starts playbooks",
}
#: Folders of plugins that run on plain hosts.
OF_HOSTS = ("modules", "module_utils")
#: What a plain host has without being asked for anything.
ON_HOSTS = {"ansible", "ansible_collections"}


def imported(folder: str) -> dict[str, str]:
    """Modules that files below a folder of plugins import."""
    return imported_below(COLLECTION / "plugins" / folder)


def imported_below(folder: Path) -> dict[str, str]:
    """Top-level module → one file that imports it, of everything below a folder but the standard library."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            else:
                continue
            found.update(dict.fromkeys((each.partition(".")[0] for each in modules), f"{folder.name}/{path.name}"))
    return {module: where for module, where in found.items() if module not in sys.stdlib_module_names}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    folders = {path.name for path in (COLLECTION / "plugins").iterdir() if path.is_dir()} - {*OF_HOSTS, "__pycache__"}
    assert {"action", "callback", "filter", "inventory", "lookup", "plugin_utils"} <= folders
    modules = {module: where for folder in folders for module, where in imported(folder).items()}
    packages = {**libraries.NEEDED, **libraries.NEEDED_FOR_ROUTES, **libraries.NEEDED_FOR_QUERIES}
    for_backups = libraries.NEEDED_FOR_BACKUPS
    known = {*packages, *for_backups, *ON_HOSTS}
    assert {module: where for module, where in modules.items() if module not in known} == {}
    assert {*packages, *for_backups} - set(modules) == set(), "in libraries.py, and imported by nobody"
    assert names(setup_cfg()["options.extras_require"]["backup"]) == names("\n".join(for_backups.values()))
    declared = names(setup_cfg()["options"]["install_requires"])
    assert declared - set(NOT_IMPORTED) == names("\n".join(packages.values()))
    assert set(NOT_IMPORTED) <= declared


def test_readme_names_every_package_that_the_control_node_needs() -> None:
    requirements = (COLLECTION / "README.md").read_text(encoding="utf-8").partition("## Requirements")[2]
    section = requirements.partition("\n## ")[0]
    needed = (libraries.NEEDED, libraries.NEEDED_FOR_ROUTES, libraries.NEEDED_FOR_BACKUPS, libraries.NEEDED_FOR_QUERIES)
    for package in (each for table in needed for each in table.values()):
        assert f"`{package}`" in section


def test_what_the_operator_imports_is_declared() -> None:
    """Beside the collection, which it carries with it."""
    extra = names(setup_cfg()["options.extras_require"]["operator"])
    packages = {
        **libraries.NEEDED,
        "ansible_runner": "ansible-runner",
        **{name.replace("-", "_"): name for name in extra},
    }
    modules = imported_below(REPOSITORY / "operator/karmada_operator")
    assert {module: where for module, where in modules.items() if module not in {*packages, *ON_HOSTS}} == {}
    declared = names(setup_cfg()["options"]["install_requires"]) | extra
    assert names("\n".join(packages[module] for module in modules if module in packages)) <= declared
    assert {each.replace("-", "_") for each in extra} <= set(modules), "declared for the operator, and not imported"


@pytest.mark.parametrize("folder", OF_HOSTS)
def test_what_runs_on_hosts_imports_nothing_that_they_may_lack(folder: str) -> None:
    assert {module: where for module, where in imported(folder).items() if module not in ON_HOSTS} == {}


def test_every_action_is_in_the_action_group_and_documented_by_a_module() -> None:
    actions = {path.stem for path in (COLLECTION / "plugins/action").glob("[!_]*.py")}
    modules = {path.stem for path in (COLLECTION / "plugins/modules").glob("[!_]*.py")}
    group = set(load("meta/runtime.yml")["action_groups"]["karmada"])
    assert actions - group == set(), "not in meta/runtime.yml"
    assert group - actions == set(), "in meta/runtime.yml, but there is no such action"
    assert actions - modules == set(), "no module carries the documentation"


def test_every_verb_is_offered_to_awx() -> None:
    verbs = {path.name: f"karmada.installer.{path.stem}" for path in (COLLECTION / "playbooks").glob("[!_]*.yml")}
    for name, fqcn in verbs.items():
        offered = yaml.safe_load((REPOSITORY / "playbooks" / name).read_text(encoding="utf-8"))
        assert [play["import_playbook"] for play in offered] == [fqcn]


def tracked(*patterns: str) -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "-z", "--", *patterns], cwd=REPOSITORY, check=True, capture_output=True, text=True
    )
    paths = [REPOSITORY / name for name in done.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_source_files_name_their_licence() -> None:
    files = tracked("*.py", "*.yml", "*.yaml", "*.j2", "*.sh", "*.cfg", "*.toml", "Makefile", ".ci/*")
    assert files
    lacking = [
        str(path.relative_to(REPOSITORY))
        for path in files
        if path.stat().st_size
        and "SPDX-License-Identifier: " not in "".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:5])
    ]
    assert lacking == []


#: Lines of a file that is read in one piece. One that has more says why, or what it is generated by.
MOST_LINES = 500
_WHY_LONG = re.compile(r"[Tt]he file is long because|(Made|Generated|Written) by ")


def test_a_long_file_says_why_it_is() -> None:
    files = [each for each in tracked("*.py", "*.sh", "*.j2", "*.yml", "*.yaml", "Makefile") if not each.is_symlink()]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    long = {path: text for path, text in texts.items() if len(text.splitlines()) > MOST_LINES}
    assert long
    heads = {path: _head(path, text) for path, text in long.items()}
    assert [str(path.relative_to(REPOSITORY)) for path, head in heads.items() if not _WHY_LONG.search(head)] == []


def _head(path: Path, text: str) -> str:
    """What a file says of itself: its docstring, or the comments with which it begins."""
    if path.suffix == ".py":
        return " ".join((ast.get_docstring(ast.parse(text)) or "").split())
    comments = [line.lstrip("# ") for line in text.splitlines()[:30] if line.startswith("#")]
    return " ".join(" ".join(comments).split())


@pytest.mark.parametrize("path", [str(path.relative_to(REPOSITORY)) for path in tracked("*.md")])
def test_links_between_pages_lead_somewhere(path: str) -> None:
    page = REPOSITORY / path
    # Code is no link, even where it looks like one.
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    dead = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert dead == []


def test_runs_from_a_checkout_do_not_spend_a_processor_on_waiting() -> None:
    settings = ConfigManager(str(REPOSITORY / "ansible.cfg"))
    # Ansible's own, of a millisecond, costs an installation up to two seconds of a processor.
    assert settings.get_config_value("DEFAULT_INTERNAL_POLL_INTERVAL") >= 0.01


def test_an_execution_environment_gets_what_the_collection_imports() -> None:
    """The list in the collection has the bounds of setup.cfg, without what an execution environment has by itself."""
    config = setup_cfg()
    declared = config["options"]["install_requires"] + config["options.extras_require"]["socks"]
    wanted = {line.strip() for line in declared.splitlines() if line.strip() and not line.strip().startswith("#")}
    listed = (COLLECTION / "requirements.txt").read_text(encoding="utf-8")
    found = {line for line in listed.splitlines() if not line.startswith("#")}
    assert found == {each for each in wanted if not names(each) & {"ansible-core", "ansible-runner"}}
    about = load("meta/execution-environment.yml")["dependencies"]
    assert all((COLLECTION / file).is_file() for file in about.values())
