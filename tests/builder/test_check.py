"""``potluck run --check``: what a run will cost, told without any of what it needs."""

import io
import json
import re
import shutil
from functools import cache
from pathlib import Path

import pytest
from huggingface_hub import try_to_load_from_cache
from msgspec.structs import replace
from rich.console import Console
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

import configurations
import potluck
import qwen
import tiny
from potluck import STARTING_RECIPE
from potluck.builder.checks import tokenizers_of
from potluck.builder.memory import (
    CUDA_BYTES,
    GIB,
    GPUS,
    bytes_together,
    gpu_gib,
    memory_of,
    verdict,
)
from potluck.builder.plan import check, plan_cost
from potluck.builder.prepare import absences, at_hand, prepare
from potluck.config import ConfigError, load
from potluck.model import ModelError, Reader, loading

FOLDER = Path(__file__).parents[2] / "recipes" / "paper"
PAPER = sorted(path.stem for path in FOLDER.glob("*.toml"))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    qwen.save(folder := tmp_path_factory.mktemp("models"))
    return folder


@pytest.fixture(autouse=True)
def no_hub(monkeypatch, models):
    monkeypatch.chdir(models)
    monkeypatch.setattr("potluck.builder.prepare.hub_answers", lambda: False)
    monkeypatch.setattr("potluck.builder.prepare.try_to_load_from_cache", lambda *_: None)


def paper(name="size", *overrides):
    return potluck.load(FOLDER / f"{name}.toml", overrides)


def printed(config, **options):
    file = io.StringIO()
    Console(file=file, width=80).print(check(config, **options))
    return file.getvalue()


@cache
def printed_size(*overrides, **options):
    return printed(paper("size", *overrides), **options)


PAGE = (FOLDER.parent / "README.md").read_text()
OURS = re.findall(
    r"--set (\S+)", PAGE.partition("](../docs/method.md)")[2].partition("| recipe")[0]
)
"""What the page tells to set on a recipe of the paper, to learn by our method."""


@pytest.mark.parametrize("name, ours", [*((name, False) for name in PAPER), ("size", True)])
def test_a_paper_recipe_is_planned_without_weights_or_data_as_its_page_says(name, ours):
    config = paper(name, *(OURS if ours else []))
    out = printed(config, gpu="h200")
    plan, rule = ("horizontal", "lws, c = 1") if ours else ("vertical", "f-tis, C = 2, g = 50; 1 u")
    assert f"paper-{name}: 50 rounds of 24 problems x 12 completions, {plan}\n{rule}" in out
    for part in ("the data of gsm8k", "the data of math500", "the prompts"):
        assert f"\n  {part}: " in out.partition("not looked at:")[2]
    assert max(map(len, out.splitlines())) <= 80
    (needs,) = re.findall(rf"cuda:0: {re.escape(' + '.join(config.node))}: fits: (\d+) of", out)
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| [{name}](paper/")]
    assert row.endswith(f"| {needs} GiB |")
    lws, f_tis = re.findall(
        r"[\d.]+ MB", " ".join(PAGE.partition("A node of a pair sends")[2].split())
    )
    sent = re.findall(r"[\d.]+ MB", out)
    assert sent == ([] if name == "alone" else [lws if ours else f_tis] * 2)


def test_the_table_holds_what_was_estimated():
    config = paper()
    plan = plan_cost(config)
    rows = [line.split("│")[1:-1] for line in printed_size().splitlines() if "│" in line]
    for name, *cells in ([cell.strip() for cell in row] for row in rows[:2]):
        shape, prompts = plan.shapes[name], plan.inspection.prompts
        node = memory_of(config, name, shape, prompts, gpu=False)
        parts = (node.state, node.writing, node.learning, node.evaluating, node.peak)
        assert cells[1:] == [f"{part / GIB:,.2f}" for part in parts]
        assert node.peak == node.state + max(parts[1:4])


@pytest.mark.parametrize("model", ["Qwen/Qwen2.5-1.6B", "models/mine", "/no/such"])
def test_a_slip_in_a_models_name_is_an_error_still(model):
    with pytest.raises(ModelError, match=f"cannot load model '{model}': no such folder is here"):
        printed(paper("size", f"node.small.model={model}"))


@pytest.mark.parametrize(
    "left_out, message",
    [
        ("model.safetensors", "has no weights; copy"),
        ("tokenizer.json", "has no tokenizer.json; co"),
    ],
)
def test_a_folder_that_lacks_a_part_of_its_model_is_an_error_here(tmp_path, left_out, message):
    whole = Path(potluck.__file__).parent / "models" / "digits-small"
    shutil.copytree(
        whole, tmp_path / "part", ignore=shutil.ignore_patterns(left_out, "tokenizer_*")
    )
    config = load(STARTING_RECIPE, [f"node.small.model={tmp_path}/part"])
    with pytest.raises(ModelError, match=message):
        printed(config)


def test_what_is_capped_is_told():
    few = ["task.train_problems=24", "evaluation.problems=1000", "sampling.max_new_tokens=8"]
    more = ["sampling.max_new_tokens=99999999", "evaluation.problems=5000"]
    plain, text = (printed(load(STARTING_RECIPE, each)) for each in (few, few[:1] + more))
    for line in ("of 5000 validation problems there are 1000", "small: max_new_tokens = 99999999"):
        assert line in text
        assert line not in plain
    assert "is capped by" not in plain


def test_what_is_no_id_of_the_hub_is_named_by_the_loader(monkeypatch):
    """The tests' Hub does not answer, and a slip in a path is not for want of it."""
    monkeypatch.setattr("potluck.builder.prepare.try_to_load_from_cache", try_to_load_from_cache)
    assert at_hand("a/b/c")
    assert not at_hand("a/b")


def test_a_proxy_is_named_where_the_hub_does_not_answer(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    remark = "asked through the proxy http://127.0.0.1:9 of https_proxy: add huggingface.co to no_"
    assert remark in absences(paper("size"))["[task]"]
    with pytest.raises(ModelError, match=f"does not answer to look for it there, {remark}"):
        absences(paper("size", "node.small.model=no/model"))
    monkeypatch.setenv("no_proxy", "*")
    assert "proxy" not in absences(paper("size"))["[task]"]


def test_a_slip_in_the_datas_path_is_an_error_still():
    with pytest.raises(potluck.PotluckError, match=r"no folder .*nowhere"):
        printed(paper("size", "task.path=nowhere"))


def test_what_is_at_hand_is_looked_at_where_other_data_is_not_here(tmp_path):
    for part, count in (("train", 30), ("test", 5)):
        rows = [{"question": f"{part} {i}+1=?", "answer": f"#### {i + 1}"} for i in range(count)]
        (tmp_path / f"{part}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (other := tmp_path / "math500").mkdir()
    (other / "test.jsonl").write_text('{"problem": "2+3=?", "answer": "5"}')
    here = ["task.system_prompt=Add", "evaluation.problems=4", "sampling.stop=[]"]
    here += [f"node.{name}.model=builtin:digits-small" for name in ("small", "large")]
    here += [f"task.path={tmp_path}", "out_of_distribution.system_prompt=Add"]
    out = printed(paper("size", *here))
    assert "task: train 30, validation 5, out-of-distribution 0 problems" in out
    (unseen,) = re.findall(
        r"not looked at:\n  the data of math500: the Hub .*?\n\n", out, re.DOTALL
    )
    assert "the prompts" not in unseen
    out = printed(paper("size", *here, f"out_of_distribution.path={other}"))
    assert "task: train 30, validation 5, out-of-distribution 1 problems" in out
    assert "not looked at" not in out


def test_checks_load_a_tokenizer_once_and_the_next_ones_its_new_files(monkeypatch, tmp_path):
    loaded, load_tokenizer = [], loading.load_tokenizer
    monkeypatch.setattr(loading, "load_tokenizer", lambda x: loaded.append(x) or load_tokenizer(x))
    config = potluck.load(STARTING_RECIPE, ["sampling.max_prompt_tokens=40"])
    for _ in range(2):
        prepare(config, config.node, tmp_path, trust_code=False)
        assert sorted(loaded) == ["builtin:digits-large", "builtin:digits-small"]
        loaded.clear()


def test_vocabularies_are_compared_only_where_they_have_one_size(monkeypatch):
    hashed, fingerprint = [], loading.fingerprint
    monkeypatch.setattr(loading, "fingerprint", lambda x: hashed.append(x) or fingerprint(x))
    readers = dict(zip("abc", (named("n"), named("n"), named("no")), strict=True))
    assert tokenizers_of(readers) == [["a", "b"], ["c"]]
    assert len(hashed) == 2

    # One of equal size is another one all the same.
    readers = dict(zip("abcd", (named("n"), named("m"), named("no"), named("n")), strict=True))
    assert tokenizers_of(readers) == [["a", "d"], ["b"], ["c"]]


def named(tokens):
    """A reader with a tokenizer of these letters."""
    backend = Tokenizer(WordLevel({token: id for id, token in enumerate(["<eos>", *tokens])}))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>")
    return Reader(tokenizer, vocabulary=9, stop_ids=frozenset([0]))


LWS = ["objective={method='lws', likelihood_exponent=2}"]


def test_the_method_is_told_and_what_it_gives_up_with_groups_of_one_author():
    assert "lws, c = 2, typicality, tests habits; 1 update" in (out := printed_size(*LWS))
    advice = 'plan = "horizontal" compares the completions of all'
    assert advice in out
    for without in (printed_size(*LWS, "plan=horizontal"), printed_size()):
        assert advice not in without
    assert advice not in printed(paper("alone", *LWS))


def test_the_tokens_of_a_round_are_counted_by_hand():
    config = paper("size", "node.large.weight=3")
    plan = plan_cost(config)
    assert plan.inspection.prompts.mean == 160
    # 6 of 24 problems, 12 completions each, of at most 760 - 160 tokens; 5 bytes a token.
    tokens = plan.tokens["small"]
    assert (tokens.completions, tokens.written) == (6 * 12, 6 * 12 * 600)
    assert tokens.sent_bytes == 6 * 12 * 600 * 5
    assert tokens.read == 24 * 12 * 760
    for changed, bytes_each in (
        (LWS, 2.3), (["swarm.codec=compact"], 2.6), (["swarm.codec=raw"], 8.1),
    ):  # fmt: skip
        sent = plan_cost(paper("size", "node.large.weight=3", *changed)).tokens["small"]
        assert sent.sent_bytes == round(6 * 12 * 600 * bytes_each)
    short = paper("size", "sampling.max_new_tokens=100")
    assert plan_cost(short).tokens["small"].written == 12 * 12 * 100


# Whether it fits.


def test_what_fits_is_said_with_its_figures_and_else_what_saves_memory():
    assert verdict(50 * GIB, 100) == "fits: 50 of 100 GiB"
    assert verdict(99 * GIB, 100).startswith("just fits: 99 of 100 GiB; ")
    said = verdict(101 * GIB, 100)
    assert said.startswith("does not fit: 101 of 100 GiB\nmemory is saved by")
    assert "--one-process" in said
    assert "gradient_checkpointing = true" in said


def test_nodes_on_one_device_add_up_and_on_two_they_do_not():
    small, large = both = [*plan_cost(paper("size"), gpu="h100").memory.values()]
    assert large.phase > small.phase
    turns = small.state + large.state + large.phase + CUDA_BYTES
    assert bytes_together(both, apart=False) == turns
    apart = bytes_together(both, apart=True)
    assert apart == small.peak + large.peak + 2 * CUDA_BYTES > turns
    assert bytes_together(both, apart=True, overhead=0) == small.peak + large.peak
    for device, *lines in (
        ("cuda:1", "cuda:1: small: fits", "cuda:0: large: fits"),
        ("cuda", f"cuda:0: small + large: fits: {apart / GIB:,.0f} of 178 GiB"),
    ):
        out = printed_size(f"node.small.device={device}", gpu="b200")
        assert all(line in out for line in lines)


def test_a_card_is_named_or_its_memory_given():
    assert gpu_gib("H100") == GPUS["h100"] == 79
    assert gpu_gib("47.5") == 47.5
    for wrong in ("h1000", "0", "-3", "nan", "inf"):
        with pytest.raises(ConfigError, match=f"--gpu is '{wrong}'; choose one of a10, .*GiB"):
            gpu_gib(wrong)


def test_the_devices_of_this_machine_matter_only_if_the_run_is_for_it():
    config = paper("size")
    there = replace(config, node={n: replace(v, device="cuda:7") for n, v in config.node.items()})
    assert "cuda:7: small + large: " in printed(there, gpu="h200")
    with pytest.raises(ModelError, match="'cuda:7', which this machine does not have"):
        printed(there)


def test_who_reads_a_prompt_again_for_each_completion_is_told(tmp_path):
    plain = load(STARTING_RECIPE)
    small, _ = plain.node
    twice = load(STARTING_RECIPE, [f"node.{small}.gradient_checkpointing=true"])
    for config in (plain, twice):
        assert "reads a prompt again" not in printed(config)

    again = "reads a prompt again for each completion that it learns from"
    made = configurations.configuration("qwen3_5_text")
    AutoModelForCausalLM.from_config(made).save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    hybrid = tiny.recipe({"small": str(tmp_path / "model")})
    said = " ".join(printed(hybrid).split())
    assert f"small {again}: a qwen3_5_text cannot go on from one reading of it" in said
