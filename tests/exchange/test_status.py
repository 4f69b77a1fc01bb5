"""What a node tells people of itself: its bytes, which of them are believed, and over a network."""

import time
from pathlib import Path

import msgspec
import pytest
import zenoh

from nouns import collect
from potluck.exchange import Key, WireError
from potluck.exchange.keys.keys import verify
from potluck.exchange.protocol import peers
from potluck.exchange.protocol.peers import LINES_PER_S, WRONG_LINES_PER_S, StatusLines
from potluck.exchange.protocol.signed import STATUS, SignedStatus, encode_status, read_signed
from potluck.exchange.zenoh import exchange
from potluck.reports.status import LINE_BYTES, AuthorStatus, PeerLine, StatusLine
from town import peer, town, until

DESCRIPTION = Path(__file__).parents[2] / "docs" / "wire.md"
KEY, SESSION = Key.new(), b"s" * 16
NORTH = AuthorStatus(
    completions=12, reward_mean=0.5, success_weight=0.25, filtered_share_negative=0.75,
    effective_sample_size=0.9, k1=-0.5, gradient_share=0.1,
)  # fmt: skip
AUTHORS = {"north": NORTH, "south": AuthorStatus()}
LINE = StatusLine(
    node="north", run="first", time_s=12.5, version="1.2", model="digits", parameters=7, round=3,
    rounds=9, phase="write", done=1, total=2, tokens_per_s=55.5, sent_bytes=100, received_bytes=0,
    reward=0.25, accuracy=None, authors=AUTHORS,
)  # fmt: skip
SAID = encode_status(LINE, KEY, session=SESSION)


def line(**changes):
    return msgspec.structs.replace(LINE, **changes)


def signed(*fields, key=KEY, what=STATUS):
    return key.sign(what, msgspec.msgpack.encode(fields))


def said(key=KEY, session=SESSION, **changes):
    """A line with these fields, signed by north whatever they are, and nothing cut."""
    fields = msgspec.to_builtins(LINE) | changes
    return signed(1, key.public, session, fields)


def decoded(data):
    read = read_signed(SignedStatus, data, run="first", node="north")
    verify(STATUS, data, read.public)
    return read.line, read.public


# The bytes.


def test_what_is_told_is_read():
    assert decoded(SAID) == (LINE, KEY.public)


def test_the_bytes_are_those_of_the_description():
    """Of an author the first seven numbers, which stay where they are; later ones come behind."""
    fields = {name: getattr(LINE, name) for name in StatusLine.__struct_fields__}
    fields["authors"] = {
        "north": [12, 0.5, 0.25, 0.75, 0.9, -0.5, 0.1],
        "south": [0, *[None] * 6],
    }
    *before, line = msgspec.msgpack.decode(verify(STATUS, SAID, KEY.public))
    line["authors"] = {name: numbers[:7] for name, numbers in line["authors"].items()}
    assert [*before, line] == [1, KEY.public, SESSION, fields]


def test_the_description_names_the_numbers_of_an_author_in_their_order():
    names = ", ".join(AuthorStatus.__struct_fields__)
    assert f"numbers of each author: {names} |\n" in DESCRIPTION.read_text(encoding="utf-8")


def test_a_field_of_a_later_release_is_skipped():
    assert decoded(said(weather="fine"))[0] == LINE


def test_authors_of_fewest_completions_are_left_out_until_a_line_fits():
    long = {f"{at:04d}".ljust(32, "x"): AuthorStatus(at, *[1 / 3] * 6) for at in range(500)}
    data = encode_status(
        line(authors=long, model="m" * 500, version="\U0001f600" * 99), KEY, session=SESSION
    )
    assert len(data) <= LINE_BYTES
    kept = decoded(data)[0].authors
    assert len(kept) >= 8
    assert [kept[n] for n in kept] == [long[name] for name in list(long)[: -len(kept) - 1 : -1]]


def test_texts_are_cut_and_numbers_that_are_none_are_left_out():
    odd = AuthorStatus(3, float("nan"), float("inf"), k1=-float("inf"))
    long = line(model="m" * 500, phase="\udc80" * 200, reward=float("nan"), authors={"a": odd})
    read, _ = decoded(encode_status(long, KEY, session=SESSION))
    assert (read.model, read.phase, read.reward) == ("m" * 120, "?" * 120, None)
    assert read.authors == {"a": AuthorStatus(3)}


WRONG = {
    "another version": (signed(2, KEY.public, SESSION, LINE), "of version 2, and"),
    "another run": (said(run="second"), "in run 'second' came"),
    "another name": (said(node="south"), "of 'south' in run"),
    "no node": (signed(1, KEY.public, SESSION, {}), "not readable"),
    "a long text": (said(model="m" * 121), "not readable"),
    "no clock": (said(time_s=float("nan")), "of time nan"),
    "a clock from before": (said(time_s=-1.0), "of time -1"),
    "a clock far ahead": (said(time_s=1e12), "of time 1000"),
    "a negative count": (said(round=-1), "round = -1"),
    "a huge count": (said(parameters=2**53), "parameters = 9007199254740992"),
    "an infinite number": (said(reward=float("inf")), "reward = inf"),
    "an author's NaN": (said(authors={"a": [1, float("nan")]}), "reward_mean = nan"),
    "an author's count": (said(authors={"a": [-1]}), "completions = -1"),
    "a hostile author": (said(authors={"<img src=x>": [1]}), "no name of a node"),
    "17 authors": (said(authors={f"a{at}": [1] for at in range(17)}), "17 authors"),
    "a key of another size": (signed(1, bytes(33), SESSION, LINE), "length <= 32"),
    "an announcement": (KEY.sign(b"announcement", SAID[68:]), "signature"),
    "too long": (SAID + bytes(2048), "at most 2048"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_it_is_said(name):
    data, complaint = WRONG[name]
    with pytest.raises(WireError, match=complaint):
        decoded(data)


# Which lines are believed.


@pytest.fixture
def lines():
    return StatusLines("first", "south")


def heard(lines, *said, session=SESSION, now_s=0.0):
    """North as it is known after it said this: when it wrote its line, and what was refused."""
    lines.hear({"north": said}, {"north": (KEY.public, session)}, now_s)
    one = lines.added_to({}).get("north", PeerLine())
    return one.line and one.line.time_s, one.refused


def test_the_newest_is_believed_and_an_older_one_is_ignored(lines):
    assert heard(lines, said(time_s=1.0), said(time_s=2.0)) == (2.0, {})
    assert heard(lines, said(time_s=1.5), said(time_s=2.0, round=4)) == (2.0, {})
    assert heard(lines, said(time_s=3.0)) == (3.0, {})
    lines.hear({}, {}, 0.0)
    assert lines.added_to({}) == {}  # of those gone nothing is kept


def test_what_another_key_signed_is_refused_and_pushes_out_no_true_one(lines):
    other = Key.new()
    forged = signed(1, KEY.public, SESSION, line(time_s=9.0), key=other)
    theirs = signed(1, other.public, SESSION, LINE, key=other)
    refused = {"forged": 2, "malformed": 1}
    assert heard(lines, said(time_s=1.0), theirs, forged, b"x") == (1.0, refused)


def test_another_session_than_the_confirmed_one_is_ignored(lines):
    assert heard(lines, said(session=b"r" * 16)) == (None, {})
    assert heard(lines, said(time_s=5.0)) == (5.0, {})
    # It was started again, and its clock set back; its new session is confirmed.
    assert heard(lines, said(session=b"r" * 16, time_s=1.0), session=b"r" * 16) == (1.0, {})


def test_a_second_has_so_many_verifications_and_no_more(lines, monkeypatch):
    looked = []
    monkeypatch.setattr(peers, "verify", lambda *_: looked.append(1))
    for at in range(LINES_PER_S + 50):
        heard(lines, said(time_s=1.0 + at), now_s=5.0 + at / 1000)
    assert len(looked) == LINES_PER_S
    assert heard(lines, said(time_s=9999.0), now_s=7.0) == (9999.0, {})


def test_wrong_signatures_under_one_name_leave_verifications_for_others(lines):
    forged = signed(1, KEY.public, SESSION, line(time_s=9.0), key=Key.new())
    refused = {"forged": WRONG_LINES_PER_S}
    assert heard(lines, *[forged] * (WRONG_LINES_PER_S + 5)) == (None, refused)


# Over a network.


@pytest.fixture
def place(tmp_path, sessions, monkeypatch):
    monkeypatch.setattr(exchange, "LINE_PAUSE_S", 0.0)
    with town(tmp_path, sessions, "north", "south") as place:
        yield place


def told(place, node, name="north", **changes):
    """Tells it, and returns what was told."""
    now = line(run=place.run, node=name, time_s=time.time(), **changes)
    node.tell(now)
    return now


def test_nothing_is_put_while_nobody_listens(place):
    north, south = place.nodes("north", "south")
    puts, real = [], north._line_publisher

    class Publisher:
        matching_status = property(lambda self: real.matching_status)
        undeclare = real.undeclare

        def put(self, data):
            puts.append(data)
            real.put(data)

    north._line_publisher = Publisher()
    told(place, north)
    north._put_line()
    assert not puts
    assert peer(south, "north").line is None
    listening = place.sessions[-1].declare_subscriber(
        f"{place.run}/status/*", zenoh.handlers.RingChannel(4)
    )
    until(lambda: puts, "the line that nobody heard is told to the first that listens")
    listening.undeclare()


def test_lines_of_strangers_and_forgers_are_counted_and_reach_nothing_else(place):
    north = place.node("north")
    south = place.node("south", watches_status=True)
    until(lambda: peer(south, "north").heard_s is not None, "they meet")
    true = told(place, north)
    until(lambda: peer(south, "north").line == true, "the true line came")
    rogue, other = place.sessions.pop(), Key.new()
    later = line(run=place.run, time_s=time.time() + 60)
    recorded = encode_status(later, place.key("north"), session=b"of an old start.")
    hostile = {
        "north": [b"garbage", encode_status(later, other, session=SESSION), recorded],
        "eve": [encode_status(line(run=place.run, node="eve"), other, session=SESSION)],
        "<b>": [SAID],
    }

    def flood():
        for name, payloads in hostile.items():
            for payload in payloads:
                rogue.put(f"{place.run}/status/{name}", payload)
        north_refused = peer(south, "north").refused
        return {"malformed", "forged"} <= north_refused.keys() and peer(south, "?").refused

    until(flood, "all of it was looked at")
    assert peer(south, "north").line == true
    assert set(south.status().peers) == {"north", "?"}
    again = told(place, north, round=9)
    until(lambda: peer(south, "north").line == again, "the next true line comes all the same")
    south.send(0, [])
    assert collect(south, 0, deadline_s=0).traffic.refused == {}
