"""Files in a folder that others can write too: what is refused, what is removed, who is here."""

import os
import socket
import sys
import time

import msgspec
import pytest

from nouns import collect, completion
from potluck.exchange.folder import exchange
from potluck.exchange.folder.exchange import Card, FolderExchange
from potluck.exchange.folder.store import Store
from potluck.exchange.protocol.signed import offer_of
from potluck.reports.status import StatusLine
from town import LONG_S, batch, has_batch, live, peer, town, until


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(exchange, "SHORTEST_S", 0.01)
    (tmp_path / "files").mkdir()
    stores = [Store(f"file://{tmp_path / 'files'}") for _ in range(4)]
    with town(tmp_path, stores, "north", "south", kind=FolderExchange) as place:
        place.files = tmp_path / "files" / place.run
        yield place


def card(place, name, *offers, leaves=False, **changes):
    return msgspec.msgpack.encode(
        Card(1, leaves, place.announcement(name, *offers, **changes), b"", {}, {})
    )


def refused(node, name="south"):
    return peer(node, name).refused


def put(path, data):
    """As a node does: whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    (beside := path.with_name("beside")).write_bytes(data)
    os.replace(beside, path)


HOSTILE = {
    "garbage": (lambda place: b"\xc1garbage", "malformed"),
    "huge": (lambda place: bytes(exchange.CARD_BYTES + 1), "too large"),
    "another's": (lambda place: card(place, "north"), "forged"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_card_is_refused_with_its_reason_and_stops_nobody(place, what):
    north = place.node("north")
    make, reason = HOSTILE[what]
    put(place.files / "south/card", make(place))
    until(lambda: refused(north) == {reason: 1}, "it is counted once")
    south = place.node("south")
    until(lambda: live(north) == {"south"}, "the true one is believed")
    south.send(0, batch("south"))
    north.send(0, batch("north"))
    assert len(collect(north, 0, deadline_s=LONG_S).completions) == 2
    assert refused(north) == {reason: 1}


def test_a_link_and_a_pipe_are_not_read(place, tmp_path):
    (tmp_path / "secret").write_bytes(card(place, "south"))
    (place.files / "south").mkdir(parents=True)
    (place.files / "south/card").symlink_to(tmp_path / "secret")
    north = place.node("north")
    until(lambda: refused(north) == {"malformed": 1}, "the link is counted")
    (place.files / "south/card").unlink()
    os.mkfifo(place.files / "south/card")
    place.node("south")  # its first card takes the place of what is there
    until(lambda: live(north) == {"south"}, "nobody waits at the pipe")


@pytest.mark.parametrize("link", ["", "north"])
def test_a_link_in_place_of_a_folder_is_not_followed(place, tmp_path, link):
    put((private := tmp_path / "private") / "north/notes", b"of the user")
    (at := place.files / link).parent.mkdir(exist_ok=True)
    at.symlink_to(private / link)
    with pytest.raises(OSError, match=r"Not a directory, or a link, which is not followed: .*card"):
        place.node("north")
    with pytest.raises(OSError, match="which is not followed"):
        Store(f"file://{tmp_path}/files").remove(f"{place.run}/north/notes")
    assert [each.name for each in private.rglob("*")] == ["north", "notes"]


def test_rounds_in_a_folder_without_a_card_are_of_something_else(place):
    """A recipe can name the folder of all runs, and a node whose folder is one that they have."""
    put(kept := place.files / "north/000001.ptlk", b"kept by a run")
    with pytest.raises(OSError, match=r"north there has 000001.ptlk, but no card of a node"):
        place.node("north")
    assert [*kept.parent.iterdir()] == [kept]


@pytest.mark.parametrize("leaves", [False, True])
def test_what_an_earlier_start_left_is_not_believed_until_its_node_is_back(place, leaves):
    """Signed by the right key: nobody answers for it. One that said that it leaves is not asked."""
    put(place.files / "south/card", card(place, "south", offer_of(3, bytes(200)), leaves=leaves))
    north = place.node("north")
    until(lambda: "south" in north._seen, "it is read")
    assert ("south" in north._beliefs._asked) == (not leaves)
    assert (peer(north, "south").heard_s, live(north)) == (None, set())
    place.node("south")
    until(lambda: live(north) == {"south"}, "it has answered")


def test_the_status_of_each_is_in_its_card(place, monkeypatch):
    monkeypatch.setattr(exchange, "BEAT_S", 0.05)
    north, south = place.node("north"), place.node("south", watches_status=True)
    until(lambda: live(south) == {"north"}, "they meet")
    north.tell(told := StatusLine(run=place.run, node="north", time_s=time.time()))
    until(lambda: peer(south, "north").line == told, "its line came")
    assert peer(south, "north").refused == {}


def test_batches_that_nobody_may_read_any_more_are_removed(place):
    north, south = place.nodes("north", "south", kept_rounds=2)
    put(place.files / "notes.txt", b"of a person")
    for round in range(4):
        south.send(round, batch("south"))
        until(lambda r=round: has_batch(north, "south", r), "it came")
    left = lambda: sorted(p.name for p in (place.files / "south").iterdir())  # noqa: E731
    until(lambda: left() == ["000002.ptlk", "000003.ptlk", "card"], "the old ones are gone")
    south.close()
    (place.files / "south/.0123.part").write_bytes(b"half")
    back = place.node("south", place.sessions.pop(), kept_rounds=1)
    until(lambda: left() == ["000003.ptlk", "card"], "and what a killed one had begun")
    first = (place.files / "south/000003.ptlk").read_bytes()
    back.send(3, [completion(author="south", problem="another")])
    assert (place.folder / "south/sent/000003.ptlk").read_bytes() == first
    back.send(4, batch("south"))
    until(lambda: left() == ["000004.ptlk", "card"], "the next round")
    assert place.files.joinpath("notes.txt").exists()


def test_one_that_leaves_is_here_until_its_last_batch_is_and_one_that_is_silent_no_more(place):
    north, south = place.nodes("north", "south")
    south.send(0, batch("south"))
    south.close()
    until(lambda: has_batch(north, "south", 0), "its last batch came all the same")
    until(lambda: live(north) == set(), "it has left")
    again = place.node("south", place.sessions.pop())
    until(lambda: live(north) == {"south"}, "it is back")
    again._closed.set()  # as if it were killed
    north._mailbox.peers.get("south").heard_s = time.monotonic() - 60
    until(lambda: live(north) == set(), "it was not heard for long")


def test_a_folder_that_is_away_for_a_while_costs_that_while(place):
    def told():
        north.gather(0)
        return [text for text in place.said["north"] if "cannot be used" in text]

    north, south = place.nodes("north", "south")
    place.files.rename(away := place.files.with_name("away"))
    place.files.write_bytes(b"in its place")
    until(told, "it is said to the user")
    place.files.unlink()
    away.rename(place.files)
    south.send(0, batch("south"))
    until(lambda: has_batch(north, "south", 0), "it goes on")
    assert len(told()) <= 2


def test_a_write_that_fails_leaves_nothing(tmp_path):
    (tmp_path / "run/node/card").mkdir(parents=True)
    with pytest.raises(OSError, match="Is a directory"):
        Store(f"file://{tmp_path}").write("run/node/card", b"")
    assert [each.name for each in (tmp_path / "run/node").iterdir()] == ["card"]


def test_strangers_are_looked_for_where_they_may_take_part(place, monkeypatch):
    monkeypatch.setattr(exchange, "BEAT_S", 0.05)
    north = place.node("north", open=True)
    place.node("guest", open=True)
    until(lambda: live(north) == {"guest"}, "it is met")
    closed = place.node("south", open=False)
    until(lambda: "north" in live(closed), "members meet")
    assert "guest" not in closed.status().peers


def test_a_library_that_is_absent_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(OSError, match=r"gcsfs.*; for S3: pip install 'potluck\[s3\]'"):
        Store("gs://shared/run")


def as_link(at):
    at.with_name("secret").write_bytes(b"of the user")
    at.symlink_to("secret")


def as_socket(at):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(at))


ODD = {
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "link": as_link,
    "dangling link": lambda at: at.symlink_to("nowhere"),
    "link to itself": lambda at: at.symlink_to(at),
    "link to a device": lambda at: at.symlink_to("/dev/zero"),
    "socket": as_socket,
}


@pytest.mark.parametrize("kind", ODD)
def test_of_what_is_no_plain_file_nothing_is_read(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    for name in ("odd", "plain"):
        (tmp_path / name).mkdir()
    ODD[kind](tmp_path / "odd/card")
    (tmp_path / "plain/card").write_bytes(b"123456")
    # As it is where the file is swapped after somebody looked.
    monkeypatch.setattr(os.path, "isfile", lambda at: True)
    monkeypatch.setattr(os.path, "islink", lambda at: False)
    found = Store(f"file://{tmp_path}").read({"odd/card": 9, "plain/card": 3, "none/card": 9})
    assert found == {"odd/card": b"", "plain/card": b"1234"}


def test_a_folder_of_a_member_that_is_a_link_is_not_read(tmp_path):
    (tmp_path / "private").mkdir()
    (tmp_path / "private/card").write_bytes(b"of the user")
    (tmp_path / "evil").symlink_to("private")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/card").write_bytes(b"1")
    found = Store(f"file://{tmp_path}").read({"evil/card": 99, "plain/card": 99})
    assert found == {"plain/card": b"1"}


def test_a_thread_that_does_not_come_back_is_told_once(place):
    north = place.node("north")
    told = lambda: place.said["north"].count(exchange.HANGS)  # noqa: E731
    now_s = north._looked_s
    for late_s in (10, 31, 34):  # the whole process was paused: the thread looks in a moment
        north._tell_of_hang(now_s + late_s)
    assert told() == 0
    for late_s in (37, 40, 400):
        north._tell_of_hang(now_s + late_s)
    assert told() == 1


def test_made_up_names_keep_no_stranger_out_for_good(place):
    north = place.node("north", open=True)
    there = {f"0{at}" for at in range(100)} | {"zoe"}
    north._places_s = {}
    north._mailbox.peers.live = lambda: {"01"}
    seen, counts = set(), set()
    for look in range(200):
        north._give_places(there, look * exchange.PLACE_S)
        seen |= set(north._strangers)
        counts.add(len(north._strangers))
    assert seen == there
    assert counts == {exchange.STRANGERS}
    assert "01" in north._strangers
    held = north._strangers
    north._give_places(there, 199 * exchange.PLACE_S + 1)
    assert north._strangers == held  # each has the time to answer


def test_a_member_that_asks_anew_at_each_look_hurries_nobody(place, monkeypatch):
    north = place.node("north")
    north._closed.set()
    hurried = 0
    for look in range(100):  # five a second
        north._due_s = due_s = 1000.0
        said = Card(1, False, b"", b"", {"north": os.urandom(16)}, {})
        with north._lock:
            north._hear("south", said, look / 5)
        hurried += north._due_s != due_s
    assert hurried == 5
    north._closed.clear()
