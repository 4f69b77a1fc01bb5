"""Certificates as deploy/certificates.sh makes them, and what a node checks of its own."""

import datetime
import ipaddress
import stat

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from potluck.exchange.keys.keys import check_certificate
from town import certify, refused


def test_each_node_gets_a_folder_with_all_it_needs_and_others_may_come_later(tmp_path):
    assert certify(tmp_path, "north", hosts="*.example 10.0.0.7", days=30) == ""
    ends = check_certificate(tmp_path, "north")
    kept = {each: each.read_bytes() for each in tmp_path.rglob("*.*")}
    assert certify(tmp_path, "south") == ""
    assert {each: each.read_bytes() for each in kept} == kept
    for name in ("north", "south"):
        folder = tmp_path / name
        assert {p.name for p in folder.iterdir()} == {"ca.pem", f"{name}.pem", f"{name}.key"}
        assert stat.S_IMODE((folder / f"{name}.key").stat().st_mode) == 0o600
        check_certificate(folder, name)
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600
    made = x509.load_pem_x509_certificate((tmp_path / "north/north.pem").read_bytes())
    hosts = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == ["localhost", "*.example"]
    addresses = [ipaddress.ip_address(host) for host in ("127.0.0.1", "::1", "10.0.0.7")]
    assert hosts.get_values_for_type(x509.IPAddress) == addresses
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert {*usage} == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    assert ends - made.not_valid_before_utc == datetime.timedelta(days=30)
    for file, is_authority in ((tmp_path / "ca.pem", True), (tmp_path / "north/north.pem", False)):
        read = x509.load_pem_x509_certificate(file.read_bytes())
        found = read.extensions.get_extension_for_class(x509.BasicConstraints)
        assert (found.critical, found.value.ca) == (True, is_authority)


@pytest.mark.parametrize(
    "names, hosts, hint",
    [
        (["North"], "", "'North' cannot be a node's name"),
        (["ca"], "", "'ca' cannot be"),
        (["a"], "b\u00fccher.example", "is no host"),
        ([], "", "expected FOLDER"),
        (["north", "old"], "", "old is there, and is left as it is"),
        (["a", "a"], "", "'a' comes twice"),
    ],
)
def test_what_cannot_be_certified_is_refused_before_anything_is_made(tmp_path, names, hosts, hint):
    (tmp_path / "old").mkdir()
    assert hint in certify(tmp_path, *names, hosts=hosts)
    assert [each.name for each in tmp_path.rglob("*")] == ["old"]


def test_what_openssl_refuses_leaves_nothing_of_that_node_and_half_an_authority_stays(tmp_path):
    assert "host:7447" in certify(tmp_path, "north", hosts="host:7447")
    assert not (tmp_path / "north").exists()
    assert certify(tmp_path, "north") == ""
    (tmp_path / "ca.key").unlink()
    assert "lacks ca.key; put it back" in certify(tmp_path, "south")
    assert {each.name for each in tmp_path.iterdir()} == {"ca.pem", "north"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folders of two authorities."""
    folders = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("theirs")
    assert not any(certify(folder, "north", "south") for folder in folders)
    return folders


@pytest.mark.parametrize(
    "file, slip, hint",
    [
        ("ca.pem", "missing", "ca.pem cannot be read: No such file or directory; deploy/cert"),
        ("north.pem", "missing", "north.pem cannot be read"),
        ("north.key", "missing", "north.key cannot be read"),
        ("ca.pem", "garbage", "ca.pem is no certificate"),
        ("north.key", "garbage", "north.key is no private key"),
        ("ca.pem", "theirs", "was not signed by"),
        ("north.key", "theirs", "is not the key of"),
        ("north.key", "readable", "chmod 600"),
        ("", "south's", "is for 'south', and this node is 'north'"),
    ],
)
def test_files_that_tls_could_not_use_are_refused_before(made, tmp_path, file, slip, hint):
    ours, theirs = (folder / "north" for folder in made)
    for each in ours.iterdir():
        (tmp_path / each.name).write_bytes(each.read_bytes())
        (tmp_path / each.name).chmod(0o600)
    match slip:
        case "missing":
            (tmp_path / file).unlink()
        case "garbage":
            (tmp_path / file).write_text("garbage")
        case "theirs":
            (tmp_path / file).write_bytes((theirs / file).read_bytes())
        case "readable":
            (tmp_path / file).chmod(0o644)
        case "south's":
            for end in ("pem", "key"):
                data = (made[0] / f"south/south.{end}").read_bytes()
                (tmp_path / f"north.{end}").write_bytes(data)
    assert hint in refused(check_certificate, tmp_path, "north")


@pytest.mark.parametrize("days", [101, -1])
def test_a_certificate_whose_time_is_over_or_to_come_is_refused(made, monkeypatch, days):
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return now

    monkeypatch.setattr("potluck.exchange.keys.keys.datetime.datetime", Later)
    message = refused(check_certificate, made[0], "north")
    assert "set the clock, or make a new certificate" in message
    assert f"the clock here says {now:%Y-%m-%d %H:%M}" in message
