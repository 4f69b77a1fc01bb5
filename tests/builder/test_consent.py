"""A stranger's recipe takes no secret: a variable goes to a host only if its user says so."""

from contextlib import nullcontext
from pathlib import Path

import pytest

import tiny
from potluck import run
from potluck.builder.consent import notes_on_reach, require_consent, secrets_of
from potluck.config import ConfigError, load
from potluck.launch import side_by_side as controls
from potluck.launch.in_process import join
from potluck.launch.side_by_side import WholeRun
from stand_in_chat import stand_in_chat

RECIPE = """
name = "guest"
rounds = 1
problems_per_round = 2
group_size = 4
plan = "horizontal"
[task]
name = "digits"
[sampling]
max_new_tokens = 6
max_total_tokens = 64
[objective]
method = "lws"
[evaluation]
every = 0
problems = 0
out_of_distribution = 0
[node.here]
model = {model!r}
[node.teacher.engine]
name = "openai"
url = "{url}"
model = "teacher"
api_key_variable = "CLOUD_SECRET"
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("CLOUD_SECRET", "sk-of-the-cloud")
    monkeypatch.setattr("potluck.builder.consent.HASHES", 1)


@pytest.fixture
def chat():
    with stand_in_chat() as server:
        yield server


@pytest.fixture
def recipe(desk, tiny_models):
    def write(url):
        text = RECIPE.format(model=tiny_models["small"], url=url)
        (desk / "guest.toml").write_text(text)
        return load(desk / "guest.toml")

    return write


def consent(config, folder, *keys, trust_code=False, names=("teacher",)):
    require_consent(config, names, folder, keys, trust_code)


def test_no_command_sends_a_secret_before_the_host_is_allowed_and_the_run_remembers_it(
    chat, recipe, potluck_says
):
    recipe(chat.url)
    pair = "CLOUD_SECRET=" + chat.url.split("/")[2]
    for words in (["run", "guest.toml", "--one-process"], ["run", "guest.toml"],
                  ["join", "guest.toml", "--as", "teacher"]):  # fmt: skip
        code, out, err = potluck_says(*words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"'teacher' sends the variable CLOUD_SECRET to {pair.split('=')[1]}" in err
        assert f"(--allow-key {pair})" in err
    for words in (["run", "guest.toml", "--check"], ["doctor", "guest.toml"]):
        said = potluck_says(*words)[1].replace("\n", " ")
        assert "'teacher' sends the variable CLOUD_SECRET to" in said
        assert f"'teacher' writes through {chat.url}" in said
        assert "sk-of-the-cloud" not in said
    assert chat.seen == []
    assert potluck_says("run", "guest.toml", "--one-process", "--allow-key", pair)[0] == 0
    assert {headers["authorization"] for _, headers, _ in chat.seen} == {"Bearer sk-of-the-cloud"}
    resumed = ["run", "guest.toml", "--one-process", "--resume", "--set", "rounds=2"]
    assert potluck_says(*resumed)[0] == 0


@pytest.mark.parametrize("way", ["run", "join"])
def test_from_python_too(chat, recipe, tmp_path, way):
    config, pair = recipe(chat.url), "CLOUD_SECRET=" + chat.url.split("/")[2]
    start = run if way == "run" else lambda c, *place, **how: join(c, "teacher", *place, **how)
    with pytest.raises(ConfigError, match=r"from Python: allow_keys=\['NAME=HOST'\]"):
        start(config, tmp_path / "run")
    assert chat.seen == []
    assert not (tmp_path / "run").exists()
    ends = {"run": nullcontext(), "join": pytest.raises(ConfigError, match="where the others are")}
    with ends[way]:
        start(config, tmp_path / "run", allow_keys=[pair])
    assert chat.seen


def test_consent_is_for_one_variable_one_host_and_one_value(recipe, tmp_path, monkeypatch):
    config, pair = recipe("https://api.example/v1"), "CLOUD_SECRET=api.example"
    consent(config, tmp_path, names=["here"])  # only what this process sends is asked about
    for wrong in ("CLOUD_SECRET", "OTHER=api.example", "CLOUD_SECRET=api.example:443", pair + "/"):
        with pytest.raises(ConfigError, match=r"--allow-key CLOUD_SECRET=api\.example"):
            consent(config, tmp_path, wrong)
    consent(config, tmp_path, pair)
    consent(config, tmp_path)
    for other in ("https://api.example.evil/v1", "https://api.example:444/v1"):
        with pytest.raises(ConfigError, match="sends secrets"):
            consent(recipe(other), tmp_path)
    monkeypatch.setenv("CLOUD_SECRET", "another")
    with pytest.raises(ConfigError, match="sends secrets"):  # so no folder brings its own consent
        consent(config, tmp_path)
    consent(config, tmp_path / "else", trust_code=True)
    consent(config, tmp_path / "else")
    monkeypatch.delenv("CLOUD_SECRET")
    consent(config, tmp_path / "third")  # nothing is sent; the engine says that it is not set
    assert not (tmp_path / "third").exists()


@pytest.mark.parametrize("url", ["http://api.example/v1", "http://192.168.0.7:8000/v1"])
def test_no_secret_goes_to_another_machine_in_the_clear_whatever_is_allowed(recipe, tmp_path, url):
    with pytest.raises(ConfigError, match=r"without encryption; use https://, or send no key"):
        consent(recipe(url), tmp_path, trust_code=True)
    for here in ("http://127.0.0.1:8000/v1", "http://localhost:8000/v1", "http://[::1]:8/v1"):
        with pytest.raises(ConfigError, match="--allow-key"):  # of another user, maybe
            consent(recipe(here), tmp_path)
        consent(recipe(here), tmp_path, trust_code=True)


def test_a_vllm_server_gets_no_key_without_consent_either(tiny_models, tmp_path):
    engine = {"name": "vllm", "url": "https://gpu.example", "model": "m"}
    node = {"small": {"model": tiny_models["small"], "engine": engine}}
    assert secrets_of(tiny.recipe(tiny_models, node=node), ["small"]) == []
    engine["api_key_variable"] = "CLOUD_SECRET"
    with pytest.raises(ConfigError, match=r"--allow-key CLOUD_SECRET=gpu\.example"):
        consent(tiny.recipe(tiny_models, node=node), tmp_path, names=["small"])


def test_a_copy_of_the_line_is_no_command_and_no_host_looks_like_another(recipe, tmp_path):
    with pytest.raises(ConfigError) as caught:
        consent(recipe("https://$(touch${IFS}x).example/v1"), tmp_path)
    assert "(--allow-key 'CLOUD_SECRET=$(touch${IFS}x).example')" in str(caught.value)
    cyrillic = {"name": "vllm", "url": "https://\u0430pi.example", "model": "m"}
    with pytest.raises(ConfigError, match="expected https://HOST"):
        tiny.recipe({}, node={"a": {"model": "m", "engine": cyrillic}})


def test_each_file_that_the_recipe_names_is_told(desk):
    (desk / "own.jsonl").write_text("{}\n")
    task = {"name": "jsonl", "path": "own.jsonl", "validation": "absent.jsonl"}
    config = tiny.recipe({"small": str(desk)}, task=task, node={"small": {"model": str(desk)}})
    notes = notes_on_reach(config)
    assert f"uses {desk / 'own.jsonl'} (task.path)" in notes
    assert f"uses {desk} (node.small.model)" in notes
    assert not any("absent" in note for note in notes)


def test_the_controls_of_a_run_may_send_what_it_may(chat, recipe, potluck_says, monkeypatch):
    pair, given = "CLOUD_SECRET=" + chat.url.split("/")[2], []
    config = recipe(chat.url)
    consent(config, Path("runs") / config.name, pair)
    monkeypatch.setattr(WholeRun, "is_done", True)
    monkeypatch.setattr(controls, "run_controls", lambda *_, options: given.extend(options) or True)
    assert potluck_says("run", "guest.toml", "--resume", "--control", "alone")[0] == 0
    assert given == [f"--allow-key={pair}"]
