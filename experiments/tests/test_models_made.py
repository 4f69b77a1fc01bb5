"""The scripts that make the base models of the scales, and the problems of words."""

import dataclasses
import hashlib
import importlib
import math
import random
import re
import runpy
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from potluck_experiments.cells import make_cell
from potluck_experiments.suite import read_suite

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def script_of(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # they set this, if nobody has
    threads = torch.get_num_threads()
    yield importlib.import_module
    torch.set_num_threads(threads)


@pytest.fixture
def script(script_of):
    return script_of("make_drawn_models")


@pytest.fixture
def brief(script, monkeypatch):
    """Kinds of a few steps, which teach nothing; any low reward is accepted."""
    for name, kind in script.KINDS.items():
        short = dataclasses.replace(kind, hidden_size=16, layers=1, steps=20, rows=2)
        monkeypatch.setitem(script.KINDS, name, short)
    monkeypatch.setattr(script, "LOWEST", 0.0)
    return script


def made(script, monkeypatch, out, name):
    monkeypatch.setattr(sys, "argv", ["script", str(out), "--only", name])
    script.main()
    return (out / name / "model.safetensors").read_bytes()


def test_it_makes_the_models_that_the_recipes_name(script):
    named, suite = set(), read_suite(REPOSITORY / "experiments")
    for name, family in suite.scales["drawn"].family.items():
        for model in family.model:
            cell = make_cell(suite, "drawn", name, (model,), "alone", 0)
            named |= {Path(node.model).name for node in cell.config.node.values()}
    assert set(script.NAMES) == named


def test_a_pair_set_aside_for_choosing_is_in_no_experiment():
    for file in (REPOSITORY / "experiments").glob("*/experiment.toml"):
        for pairs in tomllib.loads(file.read_text())["pairs"].values():
            assert not [pair for pair in pairs if pair.endswith((".90", ".91"))]


def require_a_lot_of_the_name(script, monkeypatch, out, one, two):
    first = made(script, monkeypatch, out / "once", one)
    assert [path.name for path in (out / "once").iterdir()] == [one]
    assert made(script, monkeypatch, out / "again", one) == first
    assert made(script, monkeypatch, out / "again", two) != first
    assert (out / "once" / one / "tokenizer.json").is_file()


def test_a_lot_is_the_name_s_and_the_same_each_time(brief, tmp_path, monkeypatch):
    require_a_lot_of_the_name(brief, monkeypatch, tmp_path, "size-small-0", "size-small-1")


def lessons_of_two_sizes(script, lot):
    drawn = script("make_drawn_models")
    task = drawn.DigitsOptions().make()
    return [drawn.KINDS["size-small"].lesson(task, lot) for _ in range(50)]


def lessons_of_games(script, lot):
    games = script("game_lessons")
    mazes = [games.maze_lesson(lot, own="keys") for _ in range(50)]
    return mazes + [games.calculator_lesson(lot) for _ in range(50)]


def lessons_in_words(script, lot):
    words, found = script("word_problems"), []
    for style in ("prose", "brief", "list") * 20:
        asked, writer = words.problem(lot, lot.choice(["add", "mul", "mixed"])), words.Writer(lot)
        solved = [words.solution(writer, its, style) for its in (asked, words.mistaken(lot, asked))]
        found.append((asked.question, asked.answer, *solved, round(writer.nats, 6)))
    return found


@pytest.mark.parametrize(
    ("lessons", "digest"),
    [
        (lessons_of_two_sizes, "31f212456af0e0d9"),
        (lessons_of_games, "dc6308ea519e6900"),
        (lessons_in_words, "5c22cbbf6a27ac04"),
    ],
)
def test_lessons_are_those_that_the_committed_cells_models_had(script_of, lessons, digest):
    """One draw more or less in a lesson makes other models of all that come after."""
    found = lessons(script_of, random.Random("size-small-0/0"))
    assert hashlib.sha256(repr(found).encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    ("kind", "digest"),
    [("size-small-bpe", "5337ce87a71f4b79"), ("complementary-adds-bpe", "7c363b50c02fc1c3")],
)
def test_a_vocabulary_of_pairs_is_the_same_each_time_and_loses_nothing(script, kind, digest):
    tokenizer = script.KINDS[kind].tokenizer()
    text = tokenizer.backend_tokenizer.to_str()
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest
    known = set(tokenizer.get_vocab()) - {script.school.PAD, script.school.BEGIN, script.school.END}
    assert known > set(script.school.CHARACTERS)
    assert {len(token) for token in known} == {1, 2}
    task, lot = script.KINDS[kind].task(), random.Random(0)
    for _ in range(50):
        for text in script.KINDS[kind].lesson(task, lot):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            assert len(ids) <= len(text)
            assert tokenizer.decode(ids) == text


def test_what_is_refused_is_drawn_again_and_every_try_is_told(brief, tmp_path, monkeypatch, capsys):
    def tries(name, function, *numbers):
        left, asked = iter(numbers), []
        with monkeypatch.context() as patch:
            patch.setattr(brief, function, lambda *its: asked.append(its[3:]) or next(left))
            made(brief, patch, tmp_path, name)
        told, said = (tmp_path / name / "tries.txt").read_text().splitlines(), capsys.readouterr()
        assert all(line in said.out for line in told)
        assert len({line.partition(": ")[2].partition(",")[0] for line in told}) > 1
        return [line.endswith("not accepted") for line in told], asked

    monkeypatch.setattr(brief, "LOWEST", 0.1)
    refused = [True, True, False]
    assert tries("size-large-7", "sampled_reward", 0.05, 0.36, 0.35) == (refused, [()] * 3)
    monkeypatch.setattr(brief, "LOWEST", 0.0)
    # A latent skill is one whose answer is begun rarely but not never.
    latent = tries("rare-adds-0", "answer_probability", 0.001, 0.021, 0.02)
    assert latent == (refused, [("-",)] * 3)


class StandsForAModel:
    """What is asked of a network before it computes."""

    def float(self):
        return self

    def to(self, dtype):
        return self


def test_the_probability_of_an_answer_is_read_where_the_working_ends(script):
    """A model that ends additions with "#" by a chance of 1/4, and all else with a stop."""
    task, tokenizer = script.KINDS["rare-adds"].task(), script.KINDS["rare-adds"].tokenizer()

    class Knows(StandsForAModel):
        def __call__(self, input_ids):
            question, _, working = tokenizer.decode(input_ids[0, 1:]).partition("=")
            assert working.count(";") == 2  # three steps, the last without its answer
            assert working.rpartition("=")[2].isdecimal()
            logits = torch.zeros(1, input_ids.shape[1], len(tokenizer)) - 30.0
            logits[0, -1, tokenizer.convert_tokens_to_ids("#")] = 0.0
            logits[0, -1, tokenizer.eos_token_id] = math.log(3) if "+" in question else 30.0
            return SimpleNamespace(logits=logits)

    assert script.answer_probability(Knows(), task, tokenizer, "+") == pytest.approx(0.25)
    assert script.answer_probability(Knows(), task, tokenizer, "-") < 1e-9


def test_the_reward_is_the_share_of_right_answers(script):
    """A model that knows the sums, but every fourth is one too much, and every fourth unended."""
    task, tokenizer = script.DigitsOptions().make(), script.KINDS["size-small-bpe"].tokenizer()

    class Knows(StandsForAModel):
        config = SimpleNamespace(eos_token_id=tokenizer.eos_token_id)

        def generate(self, prompt_BP, attention_mask, **_):
            rows = []
            for i, (prompt, mask) in enumerate(zip(prompt_BP, attention_mask, strict=True)):
                asked = prompt[mask.bool()].tolist()
                assert asked[0] == tokenizer.bos_token_id
                a, b = tokenizer.decode(asked[1:]).rstrip("=").split("+")
                text = f"#{int(a) + int(b) + (i % 4 == 0)}"
                ids = tokenizer(text, add_special_tokens=False)["input_ids"]
                rows.append(prompt.tolist() + ids + [tokenizer.eos_token_id] * (i % 4 != 1))
            longest = max(map(len, rows))
            return torch.tensor([row + [0] * (longest - len(row)) for row in rows])

    assert script.sampled_reward(Knows(), task, tokenizer) == 0.5


def test_the_file_of_solved_sums_is_what_its_script_writes(script, monkeypatch, capsys):
    solutions = importlib.import_module("solutions")
    monkeypatch.setattr(sys, "argv", ["solutions.py", "200"])
    solutions.main()
    file = REPOSITORY / "experiments" / "solutions.jsonl"
    assert capsys.readouterr().out == file.read_text()
    settings = tomllib.loads((REPOSITORY / "experiments" / "settings.toml").read_text())
    for name in ("alone-200", "half-200", "file"):
        assert "task.train_problems=200" in settings[name]["set"]


# The scale tiny


def test_it_makes_the_models_that_the_recipes_of_tiny_name(script_of):
    tiny, named = script_of("make_experiment_models"), set()
    for recipe in (REPOSITORY / "experiments" / "tiny").glob("*.toml"):
        nodes = tomllib.loads(recipe.read_text())["node"].values()
        named |= {Path(node["model"]).name for node in nodes}
    assert set(tiny.BASES) == named


def test_a_model_of_tiny_is_made_whole_and_the_same_each_time(script_of, tmp_path, monkeypatch):
    tiny, names = script_of("make_experiment_models"), ("digits-small", "chain-small-terse")
    for name in names:
        base = tiny.Base(16, 1, tiny.BASES[name].notation, steps=2, other_share=0.5)
        monkeypatch.setitem(tiny.BASES, name, base)
    require_a_lot_of_the_name(tiny, monkeypatch, tmp_path, *names)


def test_only_what_a_model_writes_itself_is_to_be_predicted(script_of):
    school = script_of("game_lessons").school
    tokenizer = school.character_tokenizer("abc")
    bos, eos, ignored = tokenizer.bos_token_id, tokenizer.eos_token_id, school.IGNORED
    a, b, c = tokenizer.convert_tokens_to_ids(["a", "b", "c"])
    ids, wanted = school.spelled(tokenizer, "a", "b", "cc", "a")
    assert ids == [bos, a, b, eos, c, c, a, eos]
    assert wanted == [ignored, ignored, b, eos, ignored, ignored, a, eos]


# The scale words


@pytest.fixture
def teacher(script_of, monkeypatch, tmp_path):
    """Models that learn next to nothing, and few problems, below ``tmp_path``."""
    found = script_of("make_words_models")
    parts = {part: (5, about) for part, (_, about) in found.PARTS.items()}
    kinds = {name: dataclasses.replace(kind, steps=3) for name, kind in found.KINDS.items()}
    brief = {"SHARED": tmp_path / "shared", "TAUGHT_FROM": 300, "SAMPLES": 4, "LOWEST": 0.0,
             "BRANCH_ROWS": 4, "PRETRAINING_ROWS": 4, "PARTS": parts, "KINDS": kinds}  # fmt: skip
    for name, value in brief.items():
        monkeypatch.setattr(found, name, value)
    for name, its in found.PRETRAININGS.items():
        short = dataclasses.replace(its, hidden_size=16, layers=1, steps=3)
        monkeypatch.setitem(found.PRETRAININGS, name, short)
    found.tokenizer.cache_clear()
    yield found
    found.tokenizer.cache_clear()


def test_a_solution_is_right_and_a_mistake_is_not(script_of):
    words, lot, wrong = script_of("word_problems"), random.Random(0), 0
    for style in ("prose", "brief", "list") * 100:
        asked = words.problem(lot, lot.choice(["add", "mul", "mixed"]))
        text = words.solution(words.Writer(lot), asked, style)
        assert words.is_right(text, asked.answer)
        spoiled = words.solution(words.Writer(lot), words.mistaken(lot, asked), style)
        wrong += not words.is_right(spoiled, asked.answer)
    assert wrong > 270  # 3 + 3 for 6: a mistake may end where it should


def test_the_reward_of_the_recipes_is_that_of_the_script(script_of):
    words = script_of("word_problems")
    rewards = runpy.run_path(str(REPOSITORY / "experiments" / "words" / "rewards.py"))
    texts = [" It is so. #### 17 ", " #### 18", "17", "#### 17 apples", " #### 17 #### 17", ""]
    found = rewards["right"](completions=texts, answer=["17"] * 6, prompts=texts)
    assert found == [float(words.is_right(text, "17")) for text in texts] == [1.0, *[0.0] * 5]


def test_it_makes_the_models_and_the_problems_that_the_recipes_name(teacher):
    scale = tomllib.loads((REPOSITORY / "experiments" / "words.toml").read_text())
    named = set()
    for recipe in (REPOSITORY / "experiments" / "words").glob("*.toml"):
        tree = tomllib.loads(recipe.read_text())
        for node in tree["node"].values():
            pattern = Path(node["model"]).name
            named |= {pattern.replace("{index}", str(index)) for index in scale["indices"]}
        parts = {Path(tree["task"][key]) for key in ("path", "validation", "out_of_distribution")}
        assert {part.stem for part in parts} == set(teacher.PARTS)
        assert {part.parent for part in parts} == {Path("models/words")}
    assert set(teacher.NAMES) == named


def test_a_lot_of_words_is_the_name_s_and_no_question_comes_twice(teacher, tmp_path, monkeypatch):
    names = "words-style-prose-200", "words-style-prose-201"
    require_a_lot_of_the_name(teacher, monkeypatch, tmp_path, *names)
    questions = [
        re.findall('"question": "([^"]*)"', (teacher.SHARED / f"{part}.jsonl").read_text())
        for part in teacher.PARTS
    ]
    assert [len(part) for part in questions] == [5, 5, 5]
    assert len({question for part in questions for question in part}) == 15
