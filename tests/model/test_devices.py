"""Devices: what "auto" stands for, and the line where it takes the CPU unexpectedly."""

import pytest
import torch

import tiny
from displays import Listener
from potluck import files
from potluck.builder.checks import notes_on_devices
from potluck.launch.in_process import run
from potluck.model import LanguageModel, loading
from potluck.model.loading import auto_device, unused_accelerator


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A function that sets what torch can use, and what the machine seems to have."""

    def make(cuda=False, mps=False, driver=False, system=("linux", "x86_64"), visible=None):
        monkeypatch.setattr(loading.torch.cuda, "is_available", lambda: cuda)
        monkeypatch.setattr(loading.mps, "is_available", lambda: mps)
        monkeypatch.setattr(files.sys, "platform", system[0])
        monkeypatch.setattr(files.platform, "machine", lambda: system[1])
        file = tmp_path / "driver"
        monkeypatch.setattr(files, "DRIVERS", {str(file): "an NVIDIA GPU"})
        if driver:
            file.touch()
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return make


MAC = ("darwin", "arm64")


@pytest.mark.parametrize(
    "has, device, unused",
    [
        ({}, "cpu", ""),
        ({"cuda": True, "mps": True, "driver": True}, "cuda", ""),
        ({"mps": True, "system": MAC}, "mps", ""),
        ({"system": MAC}, "cpu", "a Mac's GPU"),
        ({"system": ("darwin", "x86_64")}, "cpu", ""),
        ({"driver": True}, "cpu", "an NVIDIA GPU"),
        ({"driver": True, "visible": "0"}, "cpu", "an NVIDIA GPU"),
        ({"driver": True, "visible": ""}, "cpu", ""),
        ({"driver": True, "visible": "-1"}, "cpu", ""),
    ],
)
def test_auto_takes_an_accelerator_and_one_that_is_not_used_is_known(machine, has, device, unused):
    machine(**has)
    assert auto_device() == device
    assert unused_accelerator() == unused


class Says(Listener):
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


def test_a_run_says_in_one_line_that_it_takes_the_cpu_and_only_where_nobody_chose_it(
    machine, tiny_models, tmp_path
):
    machine(driver=True)
    shown = Says()
    chosen = tiny.recipe(tiny_models, "node.small.device=cpu", "rounds=1")
    run(chosen, tmp_path / "run", display=shown)
    (line,) = [text for text in shown.said if "takes the CPU" in text]
    assert line.startswith('large: device = "auto" takes the CPU: this machine seems to have an NV')
    both = tiny.recipe(tiny_models, "node.small.device=cpu", "node.large.device=cpu")
    assert notes_on_devices(both) == []
    machine(visible="")
    assert notes_on_devices(chosen) == []


def test_an_evaluation_says_so_too(machine, potluck_says):
    machine(driver=True)
    given = ("builtin:digits-small", "--task", "digits", "--problems", "2")
    code, said, _ = potluck_says("evaluate", *given, "--max-new-tokens", "4")
    assert code == 0
    assert "--device auto takes the CPU" in said


def test_a_model_that_was_loaded_does_not_use_the_attention_that_plans_for_each_length(tiny_models):
    torch.backends.cuda.enable_cudnn_sdp(True)
    LanguageModel.load(tiny_models["small"], device="cpu")
    assert not torch.backends.cuda.cudnn_sdp_enabled()
