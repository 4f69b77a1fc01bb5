"""Files of a user's own and what lies beside them: each folder's own, in each process."""

import importlib.util
import multiprocessing
import sys
from pathlib import Path

import pytest

from potluck.search_path import own_folders
from potluck.tasks import TaskError
from potluck.tasks.environments.host import Process, Spec
from potluck.tasks.rewards import Reward, load_function
from tasks.test_custom import asked, paid_by

NEIGHBOURS = {
    "helper.py": """
import deeper.inner

OWN = {number}


def own():
    return OWN + deeper.inner.X
""",
    "deeper/__init__.py": "",
    "deeper/inner.py": "from .next_one import X\n",
    "deeper/next_one.py": "X = 0.25\n",
}
HEAD = "def f(completions, **_):\n"
PAYS = "    return [own()] * len(completions)\n"
WAYS = {
    "import": f"import helper\n{HEAD}    own = helper.own\n{PAYS}",
    "from": f"from helper import own\n{HEAD}{PAYS}",
    "all": f"from helper import *\n{HEAD}{PAYS}",
    "as": f"import helper as h\n{HEAD}    own = h.own\n{PAYS}",
    "relative": f"from .helper import own\n{HEAD}{PAYS}",
    "in the call": f"{HEAD}    import helper\n    own = helper.own\n{PAYS}",
    "a package": f"""
import deeper.inner
from deeper import next_one
from helper import OWN
{HEAD}
    def own():
        return OWN + deeper.inner.X * bool(next_one.X)
{PAYS}
""",
    "a package in the call": f"""
{HEAD}
    from deeper.inner import X
    from helper import OWN
    def own():
        return OWN + X
{PAYS}
""",
    "async": f"async {HEAD}    from helper import own\n{PAYS}",
    "a class": """
class Judge:
    def __call__(self, completions, **_):
        from helper import own
        return [own()] * len(completions)

f = Judge()
""",
    "threads": f"""
from concurrent.futures import ThreadPoolExecutor
def one(_):
    import helper
    return helper.own()
{HEAD}
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(one, completions))
""",
}
POOL = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import helper


def own(text):
    return helper.own() + len(text)


class Judge:
    def __call__(self, text):
        return own(text)


def executor(completions, **_):
    context = multiprocessing.get_context("METHOD")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        return list(pool.map(own, completions))


def pool(completions, **_):
    with multiprocessing.get_context("METHOD").Pool(2) as pool:
        return pool.map(Judge(), completions)


def put(queue, text):
    queue.put(own(text))


def process(completions, **_):
    context = multiprocessing.get_context("METHOD")
    queue, paid = context.SimpleQueue(), []
    for text in completions:
        worker = context.Process(target=put, args=(queue, text))
        worker.start()
        paid.append(queue.get())
        worker.join()
    return paid


def neighbours(completions, **_):
    context = multiprocessing.get_context("METHOD")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return [pool.submit(helper.own).result() + len(text) for text in completions]
"""


@pytest.fixture(autouse=True)
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def write(folder, text, name="main.py", *, number=0):
    """Write a file with its neighbours; return its name for a recipe, without a function."""
    for file, neighbour in (NEIGHBOURS | {name: text}).items():
        path = Path(folder, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(neighbour.replace("{number}", str(number)))
    return f"{folder}/{name}"


@pytest.mark.parametrize("way", WAYS)
def test_a_file_imports_what_lies_beside_it_and_each_folder_has_its_own(way):
    names = [write(folder, WAYS[way], number=i) for i, folder in enumerate(("one", "two"), 1)]
    tasks = [paid_by(Reward.load(f"{name}:f")) for name in names]
    for number, task in enumerate(tasks, 1):
        assert asked(task, "a", "b") == [number + 0.25] * 2


def test_a_file_in_the_current_folder_has_neighbours_and_so_has_one_named_in_full(desk):
    for place in (write(".", WAYS["from"], number=7), f"{desk}/main.py"):
        assert asked(paid_by(Reward.load(f"{place}:f")), "a") == [7.25]


def test_a_neighbour_shadows_nothing(desk):
    for name in ("random.py", "json/__init__.py", "numpy.py", "msgspec.py", "zlib.py"):
        write("rewards", "raise AssertionError\n", name)
    text = "import json, numpy, msgspec, random, zlib\nnumpy.array, msgspec.Struct, zlib.crc32\n"
    name = write("rewards", f"{text}{HEAD}    return [float(random.random() < 2)]")
    assert asked(paid_by(Reward.load(f"{name}:f")), "a") == [1.0]
    assert own_folders()[-1] == f"{desk}/rewards"


def test_what_lies_beside_a_reward_is_no_module_of_libraries(desk):
    """As transformers looks for flash_attn, and much for simplejson, in case they are there."""
    write("rewards", "raise AssertionError\n", "optional_library.py")
    name = write("rewards", f"{HEAD}    return [1.0]")
    assert asked(paid_by(Reward.load(f"{name}:f")), "a") == [1.0]
    assert importlib.util.find_spec("optional_library") is None


def test_a_folder_of_data_is_no_module():
    write("rewards", "", "msgspec/rows.jsonl")
    name = write("rewards", "import msgspec\ndef f(**_): return [len(msgspec.json.encode([]))]")
    assert asked(paid_by(Reward.load(f"{name}:f")), "a") == [2.0]


def test_a_module_on_pythons_path_comes_first_and_is_imported_once(desk, monkeypatch):
    write("library", "WHERE = 3\n", "helper_on_path.py")
    write("rewards", "WHERE = 4\n", "helper_on_path.py")
    text = "import helper_on_path as h\ndef f(completions, **_): return [h.WHERE]"
    names = [write(folder, text) for folder in ("rewards", "library")]
    monkeypatch.syspath_prepend(f"{desk}/library")
    for name in names:
        assert asked(paid_by(Reward.load(f"{name}:f")), "a") == [3.0]
        function, _ = load_function("reward", f"{name}:f")
        assert function.__globals__["h"] is sys.modules["helper_on_path"]
    del sys.modules["helper_on_path"]


def test_a_neighbour_that_was_changed_is_another_one():
    name = write("rewards", WAYS["from"], number=1)
    before = paid_by(Reward.load(f"{name}:f"))
    write("rewards", WAYS["from"], number=2)
    after = paid_by(Reward.load(f"{name}:f"))
    assert (asked(before, "a"), asked(after, "a")) == ([1.25], [2.25])


def test_files_of_one_folder_share_a_neighbour():
    write("rewards", WAYS["import"], "other.py")
    name = write("rewards", WAYS["import"])
    helpers = [
        load_function("reward", f"{file}:f")[0].__globals__["helper"]
        for file in (name, "rewards/other.py")
    ]
    assert helpers[0] is helpers[1]


MISSING = {
    "import nowhere": r"No module named 'nowhere' on Python's path or in {folder}\)",
    "import deeper.nowhere": r"No module named 'deeper\.nowhere' on Python's path or in {folder}\)",
    "from .nowhere import x": r"No module named 'nowhere' on Python's path or in {folder}\)",
    "import importlib\nimportlib.import_module('nowhere')": r"lies beside it in {folder}$",
    "from helper import nothing": r"cannot import name 'nothing' from 'helper' \({folder}/helper",
    "from .. import main": r"a relative import leaves the folder {folder}; .* as MODULE:NAME",
    "from ... import files": r"a relative import leaves the folder {folder}",
    "import broken": r"\(SyntaxError: ",
}


@pytest.mark.parametrize("text", MISSING)
def test_an_import_that_fails_is_told_with_the_folder_that_was_looked_in(desk, text):
    write("rewards", "def (:", "broken.py")
    found = MISSING[text].format(folder=f"{desk}/rewards")
    name = write("rewards", f"{text}\ndef f(**_): return [1]")
    for _ in range(2):
        with pytest.raises(TaskError, match=rf"^reward '{name}:f' cannot be .*{found}") as caught:
            Reward.load(f"{name}:f")
        assert "\n" not in str(caught.value)
        assert "own_code" not in str(caught.value)


def test_an_import_that_fails_in_a_call_is_told_so_too(desk):
    name = write("rewards", "def f(completions, **_):\n    import nowhere\n")
    found = rf"No module named 'nowhere' on Python's path or in {desk}/rewards \(main\.py, line 2\)"
    with pytest.raises(TaskError, match=f"raised ModuleNotFoundError: {found}"):
        asked(paid_by(Reward.load(f"{name}:f")), "a")


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_processes_of_each_start_method_grade(method):
    names = [write(it, POOL.replace("METHOD", method), number=i) for i, it in enumerate("ab", 1)]
    for function in ("executor", "pool", "process", "neighbours"):
        found = [asked(paid_by(Reward.load(f"{name}:{function}")), "x", "yy") for name in names]
        assert found == [[2.25, 3.25], [3.25, 4.25]], function


def test_the_class_of_an_environment_imports_its_neighbours_in_its_own_process():
    text = """
import helper

class Game:
    def reset(self):
        return str(helper.own())

    def step(self, text):
        from deeper.inner import X
        return str(X), 1.0, True
"""
    for number in (1, 2):
        name = write(f"games{number}", text, number=number)
        process = Process(Spec(None, f"{name}:Game"), 20.0, 4 * 2**30, {})
        said, _ = process.call("play", 0, {}, 0, [])
        process.end()
        assert said == f"{number}.25"
