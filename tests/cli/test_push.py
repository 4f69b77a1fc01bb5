"""Exports on the Hub: the real client, and a stand-in of what it talks to."""

import copy
import os
import re
import resource
import shutil
import signal
import threading
from pathlib import Path

import pytest
from huggingface_hub import ModelCard, close_session
from huggingface_hub.cli import hf
from huggingface_hub.utils import logging
from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

import potluck
from potluck.config import from_tree
from potluck.node.storage.card import model_card
from potluck.node.storage.export import UploadError, upload
from stand_in_hub import stand_in_hub

SMALL = Path(potluck.__file__).parent / "models" / "digits-small"
# The client's own, of how it calls its HTTP library.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")
BUSY = [503] * 40
"""More answers than the client asks for again."""


@pytest.fixture
def hub(monkeypatch):
    with stand_in_hub() as server:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.url)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
        # What the command line sets before it loads these libraries, which are loaded here.
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        disable_progress_bars()
        logging.set_verbosity_error()
        monkeypatch.setenv("HF_TOKEN", "hf_right")
        yield server
        enable_progress_bars()
        logging.set_verbosity_warning()
        close_session()  # the next server may get the port of this one


@pytest.fixture
def checkpoint(desk):
    """A checkpoint with its card, as a run leaves it."""
    shutil.copytree(SMALL, desk / "checkpoint")
    node = {"model": "Qwen/Qwen2.5-1.5B"}
    tree = {"name": "digits", "rounds": 2, "task": {"name": "digits"}, "node": {"small": node}}
    text = model_card(from_tree(tree, []), "small", 2, {}, {})
    (desk / "checkpoint" / "README.md").write_text(text)
    return "checkpoint"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_hub_gets_every_file_as_it_is_on_disk(desk, hub, checkpoint, potluck_says):
    code, said, complaint = potluck_says("export", checkpoint, "out", "--push", "me/small")
    assert code == 0, complaint
    assert f"uploaded: {hub.url}/me/small" in said
    assert " MB to me/small" in said
    kept = hub.repos["me/small"]
    assert kept["files"] == contents(desk / "out")
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= set(kept["files"])
    assert len(hub.objects) == 1  # the weights went as a large file
    assert kept["commits"] == [f"Export of Potluck {potluck.__version__}"]
    assert kept["visibility"] == "public"
    card = ModelCard(kept["files"]["README.md"].decode())
    assert (card.data.library_name, card.data.base_model) == ("transformers", "Qwen/Qwen2.5-1.5B")
    assert "potluck" in card.data.tags
    assert card.data.license is None
    assert 'from_pretrained("me/small")' in card.text
    assert "this/folder" not in card.text


def test_a_model_is_private_where_that_is_asked_for(hub, checkpoint, potluck_says):
    potluck_says("export", checkpoint, "out", "--push", "me/small", "--private")
    assert hub.repos["me/small"]["visibility"] == "private"


def test_where_every_file_is_small_none_is_stored_apart(desk, hub, checkpoint, monkeypatch):
    """By the client's other way too, which sends several commits and large files to Xet."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", False)
    hub.large = ()
    upload(desk / checkpoint, "me/small")
    assert hub.repos["me/small"]["files"] == contents(desk / checkpoint)
    assert hub.objects == {}


def test_a_malformed_name_is_refused_before_anything_is_written(desk, hub, checkpoint, refused):
    for name in ("small", "me/", "me/a b", "me/a/b", "me/..", "https://x.y/me/small"):
        complaint = refused("export", checkpoint, "out", "--push", name)
        assert f"--push is {name!r}; expected USER/NAME" in complaint
    assert "--push USER/NAME" in refused("export", checkpoint, "out", "--private")
    assert (hub.seen, (desk / "out").exists()) == ([], False)


def test_without_a_token_nothing_is_written_and_the_way_to_one_is_said(
    desk, hub, checkpoint, refused, monkeypatch
):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(desk / "absent"))
    complaint = refused("export", checkpoint, "out", "--push", "me/small")
    assert "'hf auth login' keeps one, or set HF_TOKEN" in complaint
    assert (hub.seen, (desk / "out").exists()) == ([], False)


def test_a_disk_that_is_full_is_one_line_and_leaves_nothing(desk, checkpoint, refused):
    """The weights alone are larger than what a file may have."""
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, most))
    try:
        complaint = refused("export", checkpoint, "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    assert re.fullmatch(r"potluck: cannot write out: .*; make room, then again\n", complaint)
    assert [path.name for path in desk.iterdir()] == ["checkpoint"]


CLIENT = "huggingface_hub.constants."
FAULTS = {  # what is wrong with the Hub, the client, the environment; words of the complaint
    "wrong token": ({}, {}, "hf_secret", "refuses the token; make a new one with the right to"),
    "token of another": (
        {"mine": {"you"}}, {}, "", "(the Hub: You don't have the rights to create a model under"),
    "taken": ({"repos": {"me/small": {"files": {}}}}, {}, "", "is on the Hub already; choose"),
    "offline": ({}, {"HF_HUB_OFFLINE": True}, "", "HF_HUB_OFFLINE"),
    "nobody listens": (
        {}, {"ENDPOINT": "http://127.0.0.1:9"}, "", "did not get to http://127.0.0.1:9: "),
    "busy": ({"statuses": BUSY}, {}, "", "503"),
    "full": ({"full": True}, {}, "", "no room"),
    "loses": ({"loses": True}, {}, "", "the file model.safetensors was not uploaded"),
    "xet is absent": ({}, {"HF_HUB_DISABLE_XET": False}, "", "me/small did not get to http"),
}  # fmt: skip


@pytest.mark.parametrize("of_hub, of_client, token, reason", FAULTS.values(), ids=FAULTS)
def test_what_fails_on_the_way_is_one_line_and_the_export_stays(
    desk, hub, checkpoint, potluck_says, monkeypatch, of_hub, of_client, token, reason
):
    for name, value in of_hub.items():
        setattr(hub, name, copy.deepcopy(value))
    for name, value in of_client.items():
        monkeypatch.setattr(f"{CLIENT}{name}", value)
    monkeypatch.setenv("HF_TOKEN", token or "hf_right")
    words = ["export", checkpoint, "out", "--push", "me/small", "--private"]
    code, said, complaint = potluck_says(*words)
    assert code == 2
    assert len(complaint.splitlines()) == 1, complaint
    assert reason in complaint
    assert "hf_secret" not in said + complaint
    assert "The export is in out; to go on: hf upload me/small out --private" in complaint
    assert (desk / "out" / "model.safetensors").exists()


def test_a_model_that_is_there_already_is_left_alone(desk, hub, checkpoint):
    upload(desk / checkpoint, "me/small")
    (desk / checkpoint / "config.json").write_text("{}")
    with pytest.raises(UploadError, match="on the Hub already"):
        upload(desk / checkpoint, "me/small")
    assert hub.repos["me/small"]["files"]["config.json"] == (SMALL / "config.json").read_bytes()


class Pressed(threading.Event):
    """Presses Ctrl-C when the Hub is at work on a commit."""

    def wait(self, timeout=None):
        os.kill(os.getpid(), signal.SIGINT)
        return super().wait(timeout)


def test_the_command_in_the_message_goes_on_where_the_upload_ended(
    desk, hub, checkpoint, potluck_says
):
    enable_progress_bars()  # as the command asks for, before it loads the library
    hub.stalls = stalls = Pressed()
    code, _, complaint = potluck_says("export", checkpoint, "out", "--push", "me/small")
    assert code == 130
    words = complaint.splitlines()[-1].partition("to go on: hf ")[2].split()
    assert words == ["upload", "me/small", "out"]
    assert "model.safetensors: 100%" in complaint  # the bars of the upload
    hub.stalls = None
    stalls.set()
    (stored,) = hub.objects  # what was sent is not sent again
    hf.app.main(words, standalone_mode=False)
    puts = [path for method, path in hub.seen if method == "PUT"]
    assert puts == [f"/storage/{stored}"]
    assert hub.repos["me/small"]["files"] == contents(desk / "out")
