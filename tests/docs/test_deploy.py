"""Files of deploy/: valid to their tools, with commands that exist; the two nodes really train."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tiny
from forked import potluck_program
from potluck.config import as_tree

pytestmark = pytest.mark.page

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
FILES = sorted(p for p in [*DEPLOY.rglob("*"), REPOSITORY / "docs/swarm.md"] if p.is_file())
NODES = ("small", "large")
BASH = ("bash", "-euo", "pipefail")


def tool(name):
    """Path of a program, beside Python's or anywhere."""
    beside = str(Path(sys.executable).parent)
    if not (found := shutil.which(name, path=f"{beside}:{os.environ['PATH']}")):
        pytest.skip(f"{name} is not installed: pip install -e '.[dev]'")
    return found


def documents(folder):
    yaml = pytest.importorskip("yaml")
    for path in sorted((DEPLOY / folder).glob("*.yaml")):
        yield from ((path, tree) for tree in yaml.safe_load_all(path.read_text()))


def scripts():
    """Name and text of every piece of shell."""
    for path in (*(DEPLOY / "slurm").iterdir(), DEPLOY / "certificates.sh"):
        yield path.name, path.read_text()
    for path, tree in documents("skypilot"):
        yield f"skypilot/{path.name}", "#!/bin/bash\n" + tree["run"]
    for path, tree in documents("github"):
        yield f"github/{path.name}", "#!/bin/bash\n" + tree["jobs"]["node"]["steps"][-1]["run"]
    for path, tree in documents("kubernetes"):
        for container in containers(tree):
            yield f"kubernetes/{path.name}", "#!/bin/bash\n" + container["args"][0]


def of(name):
    return dict(scripts())[name]


def containers(tree):
    return tree["spec"].get("template", {}).get("spec", {}).get("containers", [])


def test_the_shell_of_every_file_is_clean(tmp_path):
    shellcheck = tool("shellcheck")
    for at, (name, text) in enumerate(scripts()):
        (script := tmp_path / f"{at}.sh").write_text(text)
        done = subprocess.run([shellcheck, script], capture_output=True, text=True)
        assert not done.stdout + done.stderr, name


def test_the_manifests_are_valid_and_what_they_mount_and_select_is_there():
    validate = pytest.importorskip("kubernetes_validate").validate
    trees = list(documents("kubernetes"))
    assert len(trees) == 7
    for _, tree in trees:
        validate(tree, "1.37", strict=True)
    for path in {path for path, _ in documents("kubernetes")}:
        trees = [tree for place, tree in documents("kubernetes") if place == path]
        claims = {t["metadata"]["name"] for t in trees if t["kind"] == "PersistentVolumeClaim"}
        (pod,) = (t["spec"]["template"] for t in trees if containers(t))
        for service in (t for t in trees if t["kind"] == "Service"):
            assert service["spec"]["selector"] == pod["metadata"]["labels"]
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        (container,) = pod["spec"]["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        asked = [v.get("persistentVolumeClaim", {}).get("claimName") for v in volumes.values()]
        assert {name for name in asked if name} == claims


def test_the_image_copies_what_the_package_is_built_of():
    tree = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    project, targets = tree["project"], tree["tool"]["hatch"]["build"]["targets"]
    text = (DEPLOY / "Containerfile").read_text()
    copied = set(" ".join(re.findall(r"^COPY (.*)", text, re.MULTILINE)).split()) - {"./"}
    wanted = {"pyproject.toml", project["readme"], *project["license-files"]}
    assert wanted | {Path(p).parts[0] for p in targets["wheel"]["packages"]} <= copied
    let_in = (REPOSITORY / ".dockerignore").read_text().splitlines()
    assert copied == {line[1:] for line in let_in if line.startswith("!")}
    (extras,) = re.findall(r"'\.\[(.*)\]'", text)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])


@pytest.fixture
def start(tmp_path):
    """A function that runs a piece of shell as its scheduler would: (exit code, what was said).

    ``potluck`` there is a program of the test, by default one that says its words.
    """
    place = tmp_path / "bin"
    place.mkdir()
    host = f"127.{os.getpid() // 200 % 200 + 20}.{os.getpid() % 200 + 20}"
    programs = {
        "potluck": 'echo "$@"',
        "scontrol": f'[[ $1 == show ]] && printf "%s\\n" {host}.1 {host}.2 || echo "$@"',
        # Takes its own options away; two hosts are two addresses of this machine.
        "srun": "while [[ $1 == --* ]]; do [[ $1 == --nodelist=* ]] && here=${1#*=}; shift; done\n"
        'exec "${@/0.0.0.0/${here:-}}"',
    }

    def call(script, *words, potluck=None, **environment):
        for name, text in (programs | ({"potluck": potluck} if potluck else {})).items():
            (place / name).write_text(f"#!/bin/bash\n{text}\n")
            (place / name).chmod(0o755)
        (tmp_path / "script").write_text(script)
        path = f"{place}:{os.environ['PATH']}"
        done = subprocess.run(
            [*BASH, tmp_path / "script", *words],
            cwd=tmp_path, capture_output=True, text=True,
            env=os.environ | {"PATH": path, "HOME": str(tmp_path)} | environment,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    call.host = host
    return call


SLURM = {"SLURM_JOB_ID": "10447", "SLURM_JOB_NODELIST": "two", "SLURM_JOB_NAME": "run"}


def test_each_two_node_file_lets_the_second_call_the_first(start):
    first, second = f"{start.host}.1", f"{start.host}.2"
    code, said = start(of("two-nodes.sbatch"), "swarm.toml", *NODES, **SLURM)
    to = "join swarm.toml --as {} --out runs/run --listen tcp/{}:20447"
    assert code == 0
    assert sorted(said.splitlines()) == [
        f"{to.format('large', second)} --connect tcp/{first}:20447",
        to.format("small", first),
    ]
    (sky,) = (tree for path, tree in documents("skypilot") if path.name == "two-nodes.yaml")
    addresses = {"SKYPILOT_NODE_IPS": f"{first}\n{second}"} | sky["envs"]
    for_all = "--listen tcp/0.0.0.0:7447"
    for rank, name in enumerate(NODES):
        _, said = start(sky["run"], SKYPILOT_NODE_RANK=str(rank), **addresses)
        connect = f" --connect tcp/{first}:7447" if rank else ""
        assert f"join swarm.toml --as {name} --out " in said
        assert said.endswith(f"{for_all}{connect}\n")
        pod = {"NODES": " ".join(NODES), "JOB_COMPLETION_INDEX": str(rank)}
        _, said = start(of("kubernetes/two-nodes.yaml"), **pod)
        connect = " --connect tcp/potluck-0.potluck:7447" if rank else ""
        expected = f"join recipe/swarm.toml --as {name} --out runs/run {for_all}{connect}\n"
        assert said == expected


@pytest.mark.parametrize(
    "name, folder, environment",
    [
        ("two-nodes.sbatch", "runs/run", SLURM),
        ("swarm.sbatch", "runs/run", SLURM | {"SLURM_ARRAY_TASK_ID": "0"}),
        ("skypilot/two-nodes.yaml", "run", {"SKYPILOT_NODE_RANK": "0", "SKYPILOT_NODE_IPS": "a"}),
        ("skypilot/node.yaml", "run", {"NODE": "small"}),
        ("kubernetes/two-nodes.yaml", "runs/run", {"JOB_COMPLETION_INDEX": "0"}),
        ("kubernetes/node.yaml", "runs/run", {"NODE": "small"}),
        ("github/nodes.yaml", "runs/run", {"NODE": "small", "BUCKET": "shared"}),
    ],
)
def test_a_node_that_has_begun_goes_on(start, tmp_path, name, folder, environment):
    for made in ("secret", "certs/small"):
        (tmp_path / made).mkdir(parents=True)
    for key in ("secret/swarm.key", "small.key", "certs/small/small.key"):
        (tmp_path / key).write_text("secret")
    words = ("swarm.toml", *NODES) if name.endswith("sbatch") else ()
    environment = {"NODES": "small large", "RECIPE": "swarm.toml"} | environment
    _, first = start(of(name), *words, **environment)
    assert ("--as small" in first, "--resume" in first) == (True, False)
    (tmp_path / folder / "small").mkdir(parents=True)
    _, again = start(of(name), *words, **environment)
    assert re.findall("--as small .*(--resume)", again) == ["--resume"]


@pytest.mark.parametrize("code, queued", [(130, True), (2, False), (0, False)])
def test_a_job_that_was_told_to_end_is_queued_again(start, code, queued):
    told = f'[[ "$*" == *large* ]] && exit {code} || exit 0'
    job = SLURM | {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    for name, number in (("two-nodes.sbatch", "10447"), ("swarm.sbatch", "7_1")):
        ended, said = start(of(name), "swarm.toml", *NODES, potluck=told, **job)
        assert (ended, f"requeue {number}" in said) == (code, queued)


def test_the_recipe_of_two_nodes_trains_with_the_slurm_script(start, tmp_path):
    """On two addresses of this machine: they meet, and each learns from the other."""
    models = {name: tiny.save(tmp_path / name, seed=at) for at, name in enumerate(NODES)}
    short = ("rounds=2", "problems_per_round=4", "evaluation.problems=2", "swarm.gather_s=120")
    recipe = tiny.recipe(models, *short)
    (tmp_path / "recipe.json").write_text(json.dumps(as_tree(recipe)))
    with potluck_program(tmp_path / "forked"):
        command = f'exec {shlex.quote(str(tmp_path / "forked"))} "$@"'
        ended, said = start(of("two-nodes.sbatch"), "recipe.json", *NODES, potluck=command, **SLURM)
    assert ended == 0, said
    for name in NODES:
        lines = (tmp_path / "runs/run" / name / "metrics.jsonl").read_text().splitlines()
        assert len(lines) == 2
        assert all(set(json.loads(line)["sources"]) == set(NODES) for line in lines)


def test_no_line_installs_a_package_that_nobody_owns():
    """Whoever registers the name first would run code, here beside secrets of a cloud."""
    shown = ("README.md", "docs/*.md", "deploy/**/*", "examples/*", "recipes/**/*", "scripts/*")
    files = [file for glob in shown for file in REPOSITORY.glob(glob) if file.is_file()]
    by_name = re.compile(r"pip install [^\n#]*(?<![\w./-])'?potluck(?![\w/-])")
    once_published = re.compile(r"once (it|0.2.0) is published: pip install potluck")
    for file in files:
        text = once_published.sub("", file.read_text(encoding="utf-8", errors="replace"))
        assert not by_name.search(text), file
