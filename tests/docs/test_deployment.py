"""What a deployment is made from is true: files, extras, settings and commands that are named exist."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]
from bench.servers import postgres

from docs.pages import check_command
from holdfast import Holdfast
from holdfast.edges.service.probes import HEALTH, READY
from holdfast.health.doctor import check_health
from holdfast.settings import SETTINGS, read_settings
from holdfast.storage.catalog import TABLES, Spread
from holdfast.storage.stores import open_short_term

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((ROOT / "kubernetes.yaml").read_text(encoding="utf-8")))
PODS = {
    one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in MANIFESTS if "template" in one.get("spec", {})
}
PAGES = ("deploy.md", "scale-out.md", "serve.md")
KNOWN = {f"HOLDFAST_{setting.name.upper()}" for setting in SETTINGS}
KNOWN |= {f"{name}_FILE" for name in KNOWN}
PASSWORDS = {"HOLDFAST_DB_PASSWORD", "POSTGRES_PASSWORD", "VALKEY_PASSWORD"}


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.*)$", DOCKERFILE, re.MULTILINE)


# --- the image --------------------------------------------------------------------------------------------------------


def test_what_the_image_is_built_from_is_there_and_not_ignored() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    let_in = [line.removeprefix("!") for line in lines if line.startswith("!")]
    assert lines[0] == "*", "only what is named gets into the image: no database, no holdfast.toml"
    sources = [word for line in instructions("COPY") if "--from" not in line for word in line.split()[:-1]]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(fnmatch(source, pattern) for pattern in let_in), source
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for needed in (project["readme"], *project["license-files"], "src"):
        assert needed in sources, "the package is built from it"


def test_the_image_installs_extras_that_exist() -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    (named,) = re.findall(r"'\.\[([\w,]+)\]'", DOCKERFILE)
    assert {"postgres", "valkey", "objects", "metrics"} <= set(named.split(",")) <= extras
    for page in PAGES:
        text = (ROOT / "docs" / "howto" / page).read_text(encoding="utf-8")
        assert set(re.findall(r"holdfast\[(\w+)\]", text)) <= extras


def test_the_image_runs_as_nobody_in_particular_and_holds_no_secret() -> None:
    assert instructions("USER") == ["holdfast"]
    assert DOCKERFILE.rindex("\nUSER ") > DOCKERFILE.rindex("\nRUN "), "what is run in the end is not run by root"
    assert instructions("ARG") == []
    given = {word.partition("=")[0] for line in instructions("ENV") for word in line.split()}
    assert given <= KNOWN | {"PATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}


def test_the_commands_of_the_image_exist() -> None:
    (health,) = re.findall(r"^HEALTHCHECK .*CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    program, option, code = json.loads(health)
    assert (program, option) == ("python", "-c")
    compile(code, "HEALTHCHECK", "exec")
    assert f"http://127.0.0.1:8422{HEALTH}" in code, "that the process answers; servers that are away are no reason"
    assert instructions("EXPOSE") == ["8422"]
    assert instructions("ENTRYPOINT") == ['["holdfast"]']
    (command,) = instructions("CMD")
    check_command(json.loads(command))


# --- compose ----------------------------------------------------------------------------------------------------------


def filled(text: str) -> str:
    """A text with the passwords that the environment gives."""
    return re.sub(r"\$\{(\w+):\?\}", "secret", text)


def test_the_services_of_compose_fit_together(tmp_path: Path) -> None:
    services = COMPOSE["services"]
    holdfast = services["holdfast"]
    assert (ROOT / holdfast["build"] / "Dockerfile").is_file()
    check_command(holdfast["command"])
    environment = {name: filled(value) for name, value in holdfast["environment"].items()}
    assert set(environment) <= KNOWN
    settings = read_settings(environment, home=tmp_path)
    for url, service in ((settings.url, "postgres"), (settings.short_term_url, "valkey")):
        assert f"@{service}:" in url
        assert holdfast["depends_on"][service]["condition"] == "service_healthy"
        assert "healthcheck" in services[service]
    short_term = open_short_term(settings)
    assert short_term is not None
    assert "valkey" in services["valkey"]["image"]
    assert services["postgres"]["image"].startswith("postgres:18")
    for service in services.values():
        for volume in service.get("volumes", ()):
            assert volume.partition(":")[0] in COMPOSE["volumes"]
        for config in service.get("configs", ()):
            assert config["source"] in COMPOSE["configs"]
    target = holdfast["volumes"][0].partition(":")[2]
    assert f"HOLDFAST_HOME={target}" in DOCKERFILE


def test_what_compose_and_the_image_are_made_from_is_pinned() -> None:
    named = [service["image"] for service in COMPOSE["services"].values() if "image" in service]
    named += [line.split()[0] for line in instructions("FROM")]
    assert len(named) == 4
    for image in named:
        # the versions of PostgreSQL have two numbers
        assert re.search(r":\d+\.\d+\.\d+|^postgres:\d+\.\d+$", image), f"{image} may be another tomorrow"


def test_compose_takes_no_port_that_another_may_have_and_serves_this_machine_only() -> None:
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", ())]
    assert published == ["127.0.0.1::8422"]


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_service_of_compose_can_do_no_more_than_it_needs(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged")
    allowed = {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"} if name != "holdfast" else set()
    assert set(service.get("cap_add", ())) <= allowed


def test_keys_state_and_backups_have_volumes_of_their_own(tmp_path: Path) -> None:
    holdfast = COMPOSE["services"]["holdfast"]
    mounted = dict(volume.split(":") for volume in holdfast["volumes"])
    settings = read_settings({name: filled(value) for name, value in holdfast["environment"].items()}, home=tmp_path)
    assert settings.keeping_url() == f"file://{mounted['state']}"
    assert settings.backups_url() == f"file://{mounted['backups']}"
    assert not settings.master_key, "one that is named must be there; this one is made when it is first needed"
    assert replace(settings, home=Path(mounted["home"])).master_path().parent == Path(mounted["keys"])
    assert len(set(mounted.values())) == len(mounted)
    (made,) = re.findall(r"install --directory --owner=holdfast --mode=0700 (.*)", DOCKERFILE)
    assert set(made.split()) == set(mounted.values()), "a volume takes its owner from the folder of the image"


def test_compose_names_no_password_and_asks_for_each() -> None:
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{(\w+)", text)) == PASSWORDS
    assert len(re.findall(r"\$\{\w+:\?\}", text)) == len(re.findall(r"\$\{", text)), "one that is not set is an error"
    page = (ROOT / "docs" / "howto" / "deploy.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(\w+_PASSWORD)=", page)) == PASSWORDS


def test_the_user_that_compose_makes_can_open_the_store(tmp_path: Path) -> None:
    """On a server of our own, with the roles named as there."""
    script = filled(COMPOSE["configs"]["user"]["content"]).replace("holdfast", "holdfast_user")
    with postgres() as server:
        import psycopg

        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE holdfast_user TEMPLATE template0")
        with psycopg.connect(server.url("holdfast_user"), autocommit=True) as connection:
            connection.execute(script.encode())
        url = server.url("holdfast_user", tcp=True, **{"user": "holdfast_user", "password": "secret"})  # noqa: PIE804
        with Holdfast.open(url, home=tmp_path) as engine:
            engine.manager("alice", "agent").add("Likes tea")
        checks = {check.name: check for check in check_health({}, url=url, home=tmp_path)}
    assert checks["privileges"].status == "ok"
    assert "failed" not in {check.status for check in checks.values()}


# --- Kubernetes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda one: f"{one['kind']} {one['metadata']['name']}")
def test_a_manifest_is_what_kubernetes_takes(manifest: dict[str, Any]) -> None:
    for version in ("1.30", "1.34"):
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_runs_what_there_is_with_settings_that_exist(name: str) -> None:
    (container,) = PODS[name]["containers"]
    check_command(container["args"])
    settings: dict[str, str] = next(one["data"] for one in MANIFESTS if one["kind"] == "ConfigMap")
    settings = settings | {one["name"]: one["value"] for one in container.get("env", ())}
    assert set(settings) <= KNOWN
    folder = next(one["mountPath"] for one in container["volumeMounts"] if one["name"] == "secrets")
    (secrets,) = (one["secret"] for one in PODS[name]["volumes"] if one["name"] == "secrets")
    there = {f"{folder}/{item['path']}" for item in secrets["items"]}
    wanted = {value.removeprefix("file:") for value in settings.values() if folder in value}
    assert wanted == there, "every file that a setting names is mounted, and no other"
    assert (f"{folder}/owner-url" in there) == (name == "holdfast-init-db"), "only the job is the owner"


@pytest.mark.parametrize("name", PODS)
def test_a_pod_can_do_no_more_than_it_needs(name: str) -> None:
    pod = PODS[name]
    (container,) = pod["containers"]
    (uid,) = re.findall(r"--uid (\d+)", DOCKERFILE)
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsNonRoot"]) == (int(uid), True)
    assert pod["automountServiceAccountToken"] is False
    limits = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert container["securityContext"] == limits
    written = {one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")}
    assert written == {"/data", "/tmp"}  # noqa: S108
    assert "HOLDFAST_HOME=/data" in DOCKERFILE


def test_the_probes_of_kubernetes_ask_at_the_port_of_the_service() -> None:
    (container,) = PODS["holdfast"]["containers"]
    assert [one["containerPort"] for one in container["ports"]] == [int(*instructions("EXPOSE"))]
    paths = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {"startupProbe": HEALTH, "livenessProbe": HEALTH, "readinessProbe": READY}
    (policy,) = (one["spec"] for one in MANIFESTS if one["kind"] == "NetworkPolicy")
    assert policy["ingress"][0]["ports"] == [{"port": container["ports"][0]["containerPort"], "protocol": "TCP"}]
    (service,) = (one["spec"] for one in MANIFESTS if one["kind"] == "Service")
    assert service["ports"][0]["targetPort"] == container["ports"][0]["name"]


# --- the pages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_every_setting_on_a_page_exists(page: str) -> None:
    text = (ROOT / "docs" / "howto" / page).read_text(encoding="utf-8")
    assert set(re.findall(r"HOLDFAST_\w+", text)) <= KNOWN | PASSWORDS


def test_the_page_about_scaling_out_names_every_table() -> None:
    text = (ROOT / "docs" / "howto" / "scale-out.md").read_text(encoding="utf-8")
    named = [set(cell.split()) for cell in re.findall(r"^\| `([\w ]+)` \|", text, re.MULTILINE)]
    assert named == [{table.name for table in TABLES if table.spread is spread} for spread in Spread]


def test_the_page_and_compose_name_where_keys_and_backups_are() -> None:
    """Two machines that are set up without these would make two keyrings for one store."""
    page = (ROOT / "docs" / "howto" / "deploy.md").read_text(encoding="utf-8")
    compose = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    for name in ("HOLDFAST_STATE_URL", "HOLDFAST_BACKUP_URL", "HOLDFAST_MASTER_KEY"):
        assert f"export {name}=" in page
        assert f"{name}: " in compose
