"""Nodes in processes of their own that meet through files alone, in a bucket or a folder."""

import signal

import pytest

import tiny
from faults.swarm import Swarm
from forked import Forked
from launch.runs import lines
from potluck.builder.consent import notes_on_reach, require_consent_to_buckets
from potluck.config import ConfigError
from potluck.doctor.checks import Target
from potluck.doctor.examine import examine
from potluck.launch.in_process import run
from stand_in_s3 import stand_in_s3

NAMES = ("east", "west")


def recipe(tmp_path, *overrides):
    nodes = {name: tiny.save(tmp_path / name, seed=i) for i, name in enumerate(NAMES)}
    short = ("rounds=2", "problems_per_round=4", "evaluation.problems=0", "swarm.gather_s=600")
    return tiny.recipe(nodes, *short, "swarm.transport=folder", *overrides)


def test_one_that_is_killed_comes_back_by_the_files_and_all_learn_what_one_process_does(tmp_path):
    pytest.importorskip("s3fs")
    config = recipe(tmp_path, "rounds=5", "checkpoint_every=2")
    place = "--connect", "s3://shared/team", "--allow-key", "s3=shared"
    with (
        stand_in_s3() as server,
        Swarm(config, tmp_path / "run", more=place, popen=Forked) as swarm,
    ):
        swarm.start()
        swarm.wait_until(lambda: swarm.round("west") >= 2, "three rounds")
        swarm.signal("west", signal.SIGKILL)
        swarm.start("west", resume=True)
        assert swarm.wait() == dict.fromkeys(NAMES, 0), swarm.logs()
    assert {path.split("/")[0] for path in server.objects} == {"shared"}
    run(config, tmp_path / "one")
    for name in NAMES:
        written = [lines(tmp_path / each, name, "completions") for each in ("run", "one")]
        assert written[0] == written[1]
        assert {line["author"] for line in written[0]} == {*NAMES}


def test_an_address_is_one_place_and_names_no_server_and_no_option(tmp_path):
    for fine in ("file:///srv/team", "s3://shared/team-1/a_b", "gs://shared", "abfs://shared/x"):
        assert recipe(tmp_path, f"swarm.connect=['{fine}']").swarm.connect == (fine,)
    odd = "tcp/h:1", "file:relative", "s3://b/../c", "s3://b/x?endpoint=h", "s3://k:secret@shared/x"
    chains = "simplecache::s3://shared", "file:///a::s3://shared", "reference://shared/x"
    others = "http://h/x", "github://a:b@main/x", "s3://arn:aws:s3/x", "memory://shared"
    for wrong in (*odd, *chains, *others):
        with pytest.raises(ConfigError, match=r"swarm.connect is '.*'; with transport = 'folder'"):
            recipe(tmp_path, f"swarm.connect=['{wrong}']")
    for more in ("swarm.connect=['file:///a', 'file:///b']", "swarm.listen=['file:///a']",
                 "swarm={connect=['file:///a'],tls={folder='c'},transport='folder'}"):  # fmt: skip
        with pytest.raises(ConfigError, match="the nodes meet in one place"):
            recipe(tmp_path, more)


def test_a_bucket_is_used_and_tried_only_by_a_users_word(tmp_path):
    config = recipe(tmp_path, "swarm.connect=['s3://shared/team']")
    for keys in ([], ["s3=other"], ["gs=shared"]):
        with pytest.raises(ConfigError, match=r"with your s3 account \(--allow-key s3=shared\)"):
            require_consent_to_buckets(config, keys, False)
    require_consent_to_buckets(config, ["s3=shared"], False)
    require_consent_to_buckets(config, [], True)
    with stand_in_s3() as server:
        looked = {f.name: f for f in reversed([*examine(Target(config, "east", tmp_path))])}
        assert "writes to the bucket shared with your s3 account" in looked["recipe"].text
        assert (looked["recipe"].verdict, server.asked) == ("warn", [])
        assert "--connect s3://shared/team" in looked["connect"].text
        said = Target(config, "east", tmp_path, said_connect=config.swarm.connect)
        assert {f.name: f for f in examine(said)}["connect"].text == "s3://shared/team answers"
        assert server.asked
        assert not server.objects


def test_the_doctor_tries_a_folder(tmp_path):
    def found(place):
        target = Target(recipe(tmp_path, f"swarm.connect=['file://{place}']"), "east", tmp_path)
        return next(f for f in examine(target) if f.name == "connect")

    config = recipe(tmp_path, "swarm.connect=['file:///srv/team']")
    assert "leaves files in file:///srv/team" in notes_on_reach(config)
    assert (found(tmp_path).verdict, list(tmp_path.glob("doctor*"))) == ("ok", [])
    assert "no such folder; make or mount it" in found(tmp_path / "none").text
