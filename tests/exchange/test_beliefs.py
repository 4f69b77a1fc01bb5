"""Whose announcements are believed, and what a flood of others costs: signatures that are looked
at are counted by a stand-in, and a test moves the clock."""

import itertools
import os

import pytest

from exchange.test_mailbox import texts
from nouns import terms
from potluck.exchange import Key, WireError
from potluck.exchange.keys.keys import STRANGERS, KnownKeys, verify
from potluck.exchange.protocol import beliefs as module
from potluck.exchange.protocol.beliefs import (
    ANSWER_BYTES,
    ASKED_AT_ONCE,
    FAILURES_TOLD,
    LONGEST_PAUSE_S,
    NEWCOMERS,
    OF_ONE_SOURCE,
    PAUSE_S,
    WRONG_SIGNATURES,
    Beliefs,
)
from potluck.exchange.protocol.fetch_queue import FetchQueue
from potluck.exchange.protocol.peers import Peers
from potluck.exchange.protocol.rules import InStep
from potluck.exchange.protocol.signed import Offer, encode_announcement, encode_answer

KEYS = {name: Key.new() for name in ("east", "north", "south", "eve")}
NOW, THEN, LATER = b"now".ljust(16), b"then".ljust(16), b"later".ljust(16)
TASK = b"k".ljust(16, b".")  # As ``terms`` has it.
CLOCK = itertools.count(1.0)


class Ear:
    """North, which hears east and south, and counts the signatures that it looks at."""

    def __init__(self, folder, monkeypatch, members=("east", "north", "south"), open=False):
        roster = {name: KEYS[name].public for name in members if name in KEYS}
        peers = Peers("north", members, quarantine_s=10.0)
        queue = FetchQueue("north", peers.has_priority)
        self.partners = lambda round, names: set(names)
        rule = InStep(max_staleness=1, kept_rounds=4)
        self.box = rule.mailbox(peers, queue, lambda r, names: self.partners(r, names), 1000)
        known = KnownKeys(roster, members, open, folder / "pins.toml")
        self.beliefs = Beliefs(terms("north"), NOW, known, self.box)
        self.looked = 0
        monkeypatch.setattr(module, "verify", self._verify)

    def _verify(self, *args):
        self.looked += 1
        return verify(*args)

    def hear(self, name, *payloads, now_s=0.0):
        return self.beliefs.hear(name, payloads, now_s)

    def meet(self, name, *, session=NOW, now_s=0.0, **changes):
        """It is there, and its answer to a question is believed."""
        self.box.on_join(name)
        self.hear(name, said(name, session=session), now_s=now_s)
        self.answer(self.beliefs.take_question(now_s), session=session, now_s=now_s, **changes)

    def answer(self, question, *, session=NOW, now_s=0.0, key=None, challenge=None):
        key = key or KEYS[question.name]
        word = said(question.name, session=session, key=key)
        answer = encode_answer(key, challenge or question.challenge, word)
        got = self.beliefs.read_answer(question, answer)
        self.beliefs.answered(question, got, now_s)

    def refused(self, name):
        return dict(self.box.peers.status(0.0, 0.0)[name].refused)

    def heard_s(self, name):
        return self.box.peers.get(name).heard_s


@pytest.fixture
def ear(tmp_path, monkeypatch):
    return Ear(tmp_path, monkeypatch)


def said(name, *rounds, session=NOW, key=None, clock_s=None, task=TASK):
    offers = [Offer(round, 10, b"d" * 16) for round in rounds]
    about = {"session": session, "task": task, "clock_s": clock_s or next(CLOCK)}
    return encode_announcement("run", name, key or KEYS[name], offers, **about)


def test_an_announcement_is_believed_once_its_session_is_confirmed(ear):
    ear.box.on_join("south")
    assert not ear.hear("south", said("south", 0))
    assert ear.box.fetch_queue.take(0.0) is None
    ear.answer(ear.beliefs.take_question(0.0))
    assert ear.hear("south", said("south", 0))
    assert ear.box.fetch_queue.take(0.0).author == "south"
    assert ear.refused("south") == {}


def test_a_recording_of_another_run_is_never_believed_and_told(ear):
    ear.box.on_join("south")
    for at in range(40):
        ear.hear("south", said("south", 4, session=THEN), now_s=at)
        if question := ear.beliefs.take_question(at):
            ear.beliefs.unanswered(question, at)
    assert ear.looked == 0
    assert ear.box.peers.get("south").public == b""
    assert ear.refused("south").keys() == {"other run"}
    assert ear.refused("south")["other run"] >= FAILURES_TOLD
    assert any("does not answer" in text for text in texts(ear.box))


def test_a_recording_of_an_earlier_start_is_refused_while_the_node_is_there(ear):
    ear.meet("south")
    ear.hear("south", said("south", session=THEN), now_s=1.0)
    assert ear.refused("south") == {}  # It may have been started again.
    ear.answer(ear.beliefs.take_question(1.0), now_s=1.0)
    assert ear.refused("south") == {"other run": 1}
    looked = ear.looked
    ear.hear("south", *[said("south", session=THEN)] * 5, now_s=2.0)
    assert ear.refused("south") == {"other run": 6}
    assert ear.beliefs.take_question(99.0) is None
    assert ear.looked == looked
    assert any("is it replayed" in text for text in texts(ear.box))


def test_a_start_that_was_heard_of_after_the_question_is_asked_for_again(ear):
    """The answer was on its way when its node was started again."""
    ear.meet("south", session=THEN)
    ear.hear("south", said("south", session=LATER), now_s=1.0)
    question = ear.beliefs.take_question(1.0)
    ear.hear("south", said("south", session=NOW), now_s=1.1)
    ear.answer(question, session=LATER, now_s=1.2)
    again = ear.beliefs.take_question(1.2 + PAUSE_S)
    ear.answer(again, session=NOW, now_s=2.0)
    assert ear.hear("south", said("south"), now_s=2.1)
    assert ear.refused("south") == {}


def test_old_words_of_this_start_keep_nobody_alive_and_cost_no_look(ear):
    ear.meet("south")
    old = [said("south", clock_s=0.5), said("south")]
    assert ear.hear("south", old[1], now_s=1.0)
    heard_s, looked = ear.heard_s("south"), ear.looked
    for at in range(100):
        assert not ear.hear("south", *old * 10, now_s=float(2 + at))
    assert (ear.heard_s("south"), ear.looked) == (heard_s, looked)
    assert ear.refused("south") == {}  # Two relays deliver twice.


@pytest.mark.parametrize("wrong", ["key", "challenge", "session"])
def test_an_answer_that_its_node_did_not_sign_just_now_is_refused(ear, wrong):
    ear.hear("south", said("south"))
    question = ear.beliefs.take_question(0.0)
    if wrong == "session":  # An old answer with a new challenge in front.
        old = encode_answer(KEYS["south"], b"c" * 16, said("south"))
        with pytest.raises(WireError) as error:
            ear.beliefs.read_answer(question, old[:68] + question.challenge + old[84:])
    else:
        changes = {"key": KEYS["eve"]} if wrong == "key" else {"challenge": b"c" * 16}
        with pytest.raises(WireError) as error:
            ear.answer(question, **changes)
    assert error.value.reason == "forged"
    assert ear.box.peers.get("south").public == b""


def test_answers_without_the_form_of_one_do_not_count(ear):
    """By a quicker program that serves the asked node's key too: it has the challenge."""
    ear.meet("south")
    ear.beliefs.ask("south")
    question = ear.beliefs.take_question(9.0)
    word, challenge = said("south"), question.challenge
    true = encode_answer(KEYS["south"], challenge, word)
    wrong = [
        b"",
        b"PTLS",
        true[:68],
        b"PTLX" + true[4:],
        true + bytes(2048),
        encode_answer(KEYS["south"], b"c" * 16, word),
        encode_answer(KEYS["eve"], challenge, said("south", key=KEYS["eve"])),
    ]
    answers = [("eve", one) for one in wrong * 1000]
    assert list(ear.beliefs.worth_reading(question, [*answers, ("s", true)])) == [true]


def test_one_source_has_few_answers_verified_and_keeps_no_other_out(ear):
    """All have the right form, and only the signature is wrong."""
    ear.hear("south", said("south"))
    question = ear.beliefs.take_question(0.0)
    true = encode_answer(KEYS["south"], question.challenge, said("south"))
    forged = true[:10] + bytes([true[10] ^ 1]) + true[11:]
    answers = [("eve", forged)] * 5000 + [("south", true)]
    assert list(ear.beliefs.worth_reading(question, answers)) == [forged] * OF_ONE_SOURCE + [true]


def test_answers_without_end_are_read_to_a_number_of_bytes(ear):
    ear.hear("south", said("south"))
    question = ear.beliefs.take_question(0.0)
    big, read = bytes(ANSWER_BYTES // 4), []

    def answers():
        while True:
            read.append(big)
            yield "eve", big

    assert list(ear.beliefs.worth_reading(question, answers())) == []
    assert len(read) == 5


def test_another_recipe_of_the_same_name_is_refused_at_the_first_announcement(ear):
    ear.hear("south", said("south", task=b"o" * 16))
    assert ear.refused("south") == {"other task": 1}
    assert ear.beliefs.take_question(99.0) is None
    (told,) = texts(ear.box)
    assert (b"o" * 16).hex() in told
    assert TASK.hex() in told


def test_a_flood_of_names_that_may_not_take_part_is_counted_and_not_read(ear, monkeypatch):
    monkeypatch.setattr(module, "read_signed", None)  # Reading one would raise.
    for at in range(1000):
        ear.hear(f"stranger-{at}", said("eve"), b"noise")
    assert ear.looked == 0
    assert sum(ear.box.peers.take_refused().values()) == 2000
    assert len(texts(ear.box)) == 1


def test_a_flood_of_garbage_and_of_forged_keys_has_no_signature_looked_at(ear):
    ear.meet("south")
    looked = ear.looked
    for _ in range(100):
        ear.hear("south", os.urandom(900), said("south", key=KEYS["eve"]))
    assert ear.looked == looked
    assert ear.refused("south") == {"malformed": 100, "forged": 100}
    assert ear.hear("south", b"noise", said("south"), b"noise")
    assert ear.refused("south")["malformed"] == 102


def test_wrong_signatures_under_a_name_are_looked_at_ten_times_a_second(ear):
    """By somebody who has heard the session: no byte but the signature is wrong."""
    for name in ("south", "east"):
        ear.meet(name)

    def forged():
        words = [said("south") for _ in range(20)]
        return [word[:10] + bytes([word[10] ^ 1]) + word[11:] for word in words]

    looked = ear.looked
    for at in range(100):
        ear.hear("south", *forged(), now_s=10 + at / 100)
    assert ear.looked - looked == WRONG_SIGNATURES
    assert ear.hear("east", said("east"), now_s=10.99)
    question = ear.beliefs.take_question(11.0)
    assert question.name == "south"  # What it says is asked for instead.
    ear.answer(question, now_s=11.0)
    assert ear.heard_s("south") == 11.0
    looked = ear.looked
    ear.hear("south", *forged(), now_s=12.0)
    assert ear.looked - looked == WRONG_SIGNATURES


def test_a_name_is_asked_more_and_more_rarely_while_nothing_is_new(ear):
    ear.meet("south")
    asked, at = [], 0.0
    while at < 60:
        ear.hear("south", said("south", session=os.urandom(16)), now_s=at)
        if question := ear.beliefs.take_question(at):
            asked.append(at)
            ear.answer(question, now_s=at)
        at += 0.1
    gaps = [after - before for before, after in itertools.pairwise(asked)]
    assert gaps[0] == pytest.approx(2 * PAUSE_S, abs=0.11)
    assert gaps[-1] == pytest.approx(LONGEST_PAUSE_S, abs=0.11)
    assert len(asked) < 15


def test_who_was_not_heard_for_three_announcements_is_asked(ear):
    ear.meet("south", now_s=0.0)
    ear.beliefs.ask_the_silent(2.9)
    assert ear.beliefs.take_question(2.9) is None
    ear.beliefs.ask_the_silent(3.1)
    assert ear.beliefs.take_question(3.1).name == "south"
    ear.box.on_leave("south")
    ear.beliefs.ask_the_silent(99.0)
    assert ear.beliefs.take_question(99.0) is None


def test_few_are_asked_at_once_and_partners_of_the_round_first(tmp_path, monkeypatch):
    names = [f"n{at:03}" for at in range(200)]
    ear = Ear(tmp_path, monkeypatch, members=["north", *names])
    KEYS.update(dict.fromkeys(names, KEYS["south"]))
    ear.partners = lambda round, live: {"n100", "n150"} & set(live)
    for name in names:
        ear.box.on_join(name)
        ear.hear(name, said(name))
    questions = [ear.beliefs.take_question(0.0) for _ in range(ASKED_AT_ONCE + 1)]
    assert [q and q.name for q in questions] == ["n100", "n150", "n000", "n001", None]
    ear.beliefs.unanswered(questions[0], 0.0)
    assert ear.beliefs.take_question(0.0).name == "n002"


def test_this_nodes_own_word_repeated_is_nothing_and_another_start_of_it_is_told(ear):
    ear.hear("north", said("north"))
    assert (ear.looked, texts(ear.box)) == (0, [])
    ear.hear("north", said("north", session=THEN))
    assert ear.refused("north") == {"forged": 1}
    told = "is it started twice, or are recordings of it repeated?"
    assert any(told in text for text in texts(ear.box))


def test_recordings_of_this_nodes_earlier_start_are_looked_at_ten_times_a_second(ear):
    old = [said("north", session=THEN) for _ in range(100)]
    for at in range(1, 50):
        ear.hear("north", *old, now_s=at / 50)
    assert ear.looked == WRONG_SIGNATURES
    ear.hear("north", *old, now_s=2.0)
    assert ear.looked == 2 * WRONG_SIGNATURES


@pytest.mark.parametrize("order", [list, reversed])
def test_a_member_that_signs_without_end_is_looked_at_once_each_time(ear, order):
    """Its clock may go up or down."""
    ear.meet("south")
    looked = ear.looked
    assert ear.hear("south", *order([said("south", at) for at in range(100)]), now_s=1.0)
    assert ear.looked - looked == 1


def test_offers_without_sense_are_refused_before_their_signature_is_looked_at(ear):
    ear.meet("south")
    looked = ear.looked
    assert not ear.hear("south", said("south", 7, 2**31), now_s=10)
    assert (ear.looked, ear.refused("south")) == (looked, {"malformed": 1})


def test_made_up_names_get_no_place_without_a_right_signature(tmp_path, monkeypatch):
    ear = Ear(tmp_path, monkeypatch, open=True)
    for at in range(500):
        word = said(f"a{at}", key=KEYS["eve"])
        ear.hear(f"a{at}", word[:10] + bytes([word[10] ^ 1]) + word[11:], now_s=at / 1000)
    assert ear.looked == NEWCOMERS  # In all: names are free.
    assert ear.beliefs.take_question(0.5) is None
    ear.hear("eve", said("eve"), now_s=1.0)
    assert ear.beliefs.take_question(1.0).name == "eve"


def test_names_that_do_not_answer_make_room_for_one_that_may(tmp_path, monkeypatch):
    """All are signed, and announce all the time."""
    ear = Ear(tmp_path, monkeypatch, open=True)
    crowd = [f"a{at}" for at in range(STRANGERS)]

    def announce(now_s):
        for at, name in enumerate(crowd):
            ear.hear(name, said(name, key=KEYS["eve"]), now_s=now_s + at // NEWCOMERS)

    announce(0.0)
    ear.hear("eve", said("eve"), now_s=9.0)
    assert "eve" not in ear.beliefs._asked  # None of the others was asked yet.
    while question := ear.beliefs.take_question(9.0):
        ear.beliefs.unanswered(question, 9.0)
    announce(10.0)
    ear.hear("eve", said("eve"), now_s=99.0)
    question = ear.beliefs.take_question(99.0)
    assert question.name == "eve"  # It failed least.
    ear.answer(question, now_s=99.0)
    assert ear.hear("eve", said("eve"), now_s=99.1)
    assert len(ear.beliefs._asked) == STRANGERS
