"""Made-up views of a run, as large and as strange as a test of the page wants them."""

import math
import random
from collections.abc import Sequence
from typing import Any

import msgspec

from potluck.reports.answers import ControlAnswer
from potluck.reports.tokens import Recorded, columns_of
from potluck.show.web import views

NOW_S = 1_790_000_000.0
HOSTILE = "<img src=x onerror=document.title='ran'>"
HABIT = f"34% of its successes (last 5 rounds) are not learned from: they have '{HOSTILE}'"
DIGITS = "digits-size"
SCRIPT = "<script>document.title='ran'</script> 3+4=7"


def made_run(nodes: Sequence[str] = ("large", "small", "wide"), rounds: int = 60) -> views.RunView:
    """Make a run whose nodes learn at different speeds, each with every field measured."""
    graded = range(0, rounds + 1, 10)
    settings = {"task.name": "digits", "plan": "vertical", "seed": "1", "objective.limit": "50"}
    return views.RunView(
        name="digits-size",
        now_s=NOW_S,
        rounds=rounds,
        method="f-tis",
        settings={**settings, "group_size": "8", "problems_per_round": "36"},
        nodes=[made_node(name, place, rounds) for place, name in enumerate(nodes)],
        curves={
            name: views.CurvesView(first=0, columns=made_curves(name, place, rounds))
            for place, name in enumerate(nodes)
        },
        evaluations={
            name: {
                "round": [float(at) for at in graded],
                "validation": [learned(at, place) for at in graded],
                "problems": [200.0] * len(graded),
            }
            for place, name in enumerate(nodes)
        },
        matrix={
            learner: {
                author: made_pair(learner == author, row, column)
                for column, author in enumerate(nodes)
            }
            for row, learner in enumerate(nodes)
        },
        habits={name: [HABIT] for name in nodes},
        events=made_events(nodes, rounds),
    )


def states(view: views.RunView, **changes: dict[str, Any]) -> list[views.NodeView]:
    """Return the run's nodes, those in ``changes`` in another state."""
    return [msgspec.structs.replace(n, **changes.get(n.name, {})) for n in view.nodes or []]


def made_node(name: str, place: int, rounds: int) -> views.NodeView:
    return views.NodeView(
        name=name,
        model="Qwen2-tiny",
        parameters=[1_240_000, 310_000, 2_600_000][place % 3],
        version="0.1.0",
        state="training",
        heard_s=NOW_S - 0.4,
        round=rounds - place % 3,
        phase=["write", "learn", "wait"][place % 3],
        done=30,
        total=96,
    )


def made_control(
    node: str, difference: tuple[float, float, float] | None = None
) -> views.ControlView:
    """Make the control "half" of a node; without a difference it is being made."""
    answer = None
    if difference:
        answer = ControlAnswer(node, "half", 0.72, 0.66, difference, 288, (3600, 3600))
    rounds, rewards = [float(at) for at in range(30)], [learned(at, 2) for at in range(30)]
    columns: views.Columns = {"round": [*rounds], "own_reward_mean": [*rewards]}
    verdict = answer.verdict if answer else ""
    told = {"how": "by itself", "columns": columns, "answer": answer, "verdict": verdict}
    return views.ControlView(node=node, kind="half", **told)


def learned(at: float, place: int) -> float:
    return round(0.15 + 0.75 * (1 - math.exp(-at / (14 + 9 * (place % 5)))), 4)


def made_curves(name: str, place: int, rounds: int) -> views.Columns:
    dice = random.Random(name)
    spread = [0.05 * abs(dice.gauss(0, 1)) for _ in range(rounds)]
    own = [min(1, learned(at, place) + more) for at, more in enumerate(spread)]
    about = {"gradient_norm": 0.4, "rows_trained": 200, "seconds/write": 0.7, "seconds/learn": 1.7}
    about["seconds/wait"] = [1.2, 0.05, 4.0][place % 3]
    return {
        "round": [float(at) for at in range(rounds)],
        "own_reward_mean": list(own),
        "reward_mean": [min(1, value + 0.02) for value in own],
        "loss": [-0.3 * value for value in own],
        **{name: [middle * (1 + more) for more in spread] for name, middle in about.items()},
        "missing": [float(at % 31 == 30) for at in range(rounds)],
    }


def made_pair(is_own: bool, row: int, column: int) -> dict[str, float | None]:
    far = 0.0 if is_own else ((7 * row + 3 * column) % 10) / 10
    pair = {
        "success_weight": 1.0 if is_own else round(0.95 - 0.8 * far, 3),
        "effective_sample_size": 1.0 if is_own else round(0.9 - 0.7 * far, 3),
        "filtered_share_negative": round(far, 3),
        "k1": 0.0 if is_own else round(1.4 * far - 0.2, 3),
        "reward_mean": learned(60, column),
        "likelihood_positive": round(0.92 - 0.5 * far, 3),
        "staleness": float(far > 0.7),
    }
    return pair if is_own else {**pair, "gradient_share": 0.2 if far > 0.5 else None}


def made_events(nodes: Sequence[str], rounds: int) -> list[views.EventView]:
    me, other = nodes[0], nodes[-1]
    told = {
        "joined": f"{other} joined",
        "refused": f"2 messages under the name {other}: signature is wrong",
        "checkpoint": "checkpoints/000010",
        "message": f"{other}: 0.8 nats a token likelier to {me} than it claims",
    }
    return [
        views.EventView(
            time_s=NOW_S - 600 + at, round=rounds - 4 + at, node=me, kind=kind, text=text
        )
        for at, (kind, text) in enumerate(told.items())
    ]


def made_text(round: int, index: int, author: str, text: str = "") -> views.TextView:
    dice = random.Random(f"{round} {index} {author}")
    usual = ["4+3", "+0", "=", "7", ";", "3+4", "+0=7", ";", "5+9+0=1", "4", "#", "1477"]
    pieces = [text] if text else usual
    ratios = [float(f"{dice.gauss(0, 1.2):.2f}") for _ in pieces]
    if author != "large":  # it told no log-probabilities
        ratios = [-abs(ratio) for ratio in ratios]
    reward = float(index % 3 != 1)
    advantage = 0.7 if reward else -1.2
    is_filtered = not reward and author != "large"
    why = "wrong, and too far from what this model writes (k3 61 nats, limit 50)"
    place = {"round": round, "problem": "digits/534+943", "author": author, "index": index}
    recorded = Recorded(
        **place,
        advantage=advantage,
        kept=0.0 if is_filtered else advantage * (0.6 if author != "large" else 1),
        why=why if is_filtered else "",
        measure="log-ratio" if author == "large" else "ln p",
        **columns_of(pieces, ratios),
    )
    return views.TextView(
        **place,
        reward=reward,
        right=bool(reward),
        text="".join(pieces),
        end="length" if index == 4 else "stop",
        question="534+943=",
        answer="1477",
        recorded=recorded,
    )


def made_texts(node: str, round: int = 59, extra: str = "") -> views.TextsView:
    """Make the completions of a round; ``extra`` is the text of one more."""
    texts = [made_text(round, at, author) for author in ("large", "small") for at in range(5)]
    if extra:
        texts.append(made_text(round, 9, "small", extra))
    return views.TextsView(node=node, rounds=list(range(50, 60)), texts=texts)


MAZE = ["#########", "#@..#...#", "#.#.#.#.#", "#.#...#G#", "#########"]


def made_episode(round: int, index: int, turns: int = 3, extra: str = "") -> views.TextView:
    """Make an episode in a maze, every second one with its tokens; ``extra`` is said in it."""
    text = made_text(round, index, "large")
    moves = ["east", "south", extra or "north"]
    said = [word for at in range(turns) for word in (moves[at % 3], "\n".join(MAZE))]
    pieces = [piece for at in range(turns) for piece in (moves[at % 3], "<end>")]
    if index % 2:
        pieces = []
    recorded = msgspec.structs.replace(
        text.recorded,
        turns=(2,) * turns if pieces else (),
        **columns_of(pieces, [round % 3 - at % 5 for at in range(len(pieces))]),
    )
    return msgspec.structs.replace(
        text,
        problem="maze/train/17",
        question="Walk from @ to G: north, east, south or west.\n" + "\n".join(MAZE),
        answer="",
        text="\n".join(said[::2]),
        end=["stop", "turns", "room"][index % 3],
        turns=[(["assistant", "user"][at % 2], word) for at, word in enumerate(said[:-1])],
        recorded=recorded,
    )


def made_pair_view(learner: str, author: str, rounds: int = 60) -> views.PairView:
    columns: views.Columns = {"round": [float(at) for at in range(rounds)]}
    for place, name in enumerate(sorted(made_pair(True, 0, 0).keys() - {"staleness"})):
        columns[name] = [learned(at, place) for at in range(rounds)]
    return views.PairView(learner=learner, author=author, columns=columns)


def made_start() -> views.StartView:
    large, both = ["large"], ["large", "small"]
    reward, accuracy = {"large": 0.81, "small": 0.62}, {"large": 0.84, "small": None}
    live = {"rounds": 60, "done": 41, "nodes": both, "reward": reward, "changed_s": NOW_S}
    ended = {"rounds": 60, "done": 60, "nodes": large, "changed_s": NOW_S - 5e4}
    entry = {"experiment": "fig04_size", "name": "fig04_size, tiny", "done": 7, "total": 18}
    return views.StartView(
        place="work/runs",
        runs=[
            views.RunEntry(run=DIGITS, name=DIGITS, state="training", accuracy=accuracy, **live),
            views.RunEntry(run="alone-large", name="alone-large", state="ended", **ended),
            views.RunEntry(run="torn", name="torn", error="recipe.json is not JSON: line 3"),
        ],
        experiments=[views.ExperimentEntry(running=["lws seed 2"], changed_s=NOW_S, **entry)],
    )


def made_kept() -> views.Kept:
    view = msgspec.structs.replace(made_run(("large", "small"), 50), is_over=True)
    texts = [made_texts("large"), made_texts("small")]
    run = views.KeptRun(view=view, pairs=[made_pair_view("large", "small", 50)], texts=texts)
    return views.Kept(
        title="Does it help to learn from each other?",
        lead=["`small` samples 0.71 right with the other's completions, and 0.58 alone."],
        table=views.KeptTable(
            title="In numbers",
            columns=["model, setting", "written", "sampled reward", "greedy"],
            rows=[["large, alone", "7,200", "0.83", "0.86"]],
            note="Written: completions that the model wrote itself, in all rounds.",
        ),
        labels={"alone": "alone", "half": "alone, half the problems", "lws": "together (LWS)"},
        runs=dict.fromkeys(("alone", "half", "lws"), run),
    )
