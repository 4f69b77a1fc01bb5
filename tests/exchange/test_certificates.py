"""Certificates as ``potluck certificates`` writes them."""

import datetime
import ipaddress
import stat

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from potluck.exchange.base import ExchangeError
from potluck.exchange.keys.certificates import (
    certificate_files,
    check_certificate,
    write_certificates,
)


def certificate(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def refused(call, *args):
    with pytest.raises(ExchangeError) as caught:
        call(*args)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_each_node_gets_a_folder_with_all_it_needs(tmp_path):
    written = write_certificates(tmp_path / "ca", ["north", "south"])
    assert written == (tmp_path / "ca" / "north", tmp_path / "ca" / "south")
    for folder, name in zip(written, ("north", "south"), strict=True):
        assert {p.name for p in folder.iterdir()} == {"ca.pem", f"{name}.pem", f"{name}.key"}
        assert stat.S_IMODE((folder / f"{name}.key").stat().st_mode) == 0o600
        assert (folder / "ca.pem").read_bytes() == (tmp_path / "ca" / "ca.pem").read_bytes()
        check_certificate(certificate_files(tmp_path / "ca", name), name)
        check_certificate(certificate_files(folder, name), name)
    assert stat.S_IMODE((tmp_path / "ca" / "ca.key").stat().st_mode) == 0o600


def test_a_certificate_says_who_where_and_for_how_long(tmp_path):
    hosts = ["node.example", "10.0.0.7", "::1"]
    (folder,) = write_certificates(tmp_path, ["north"], hosts, 30)
    made = certificate(folder / "north.pem")
    assert [n.value for n in made.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["north"]
    found = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.DNSName) == ["node.example"]
    addresses = [ipaddress.ip_address(host) for host in hosts[1:]]
    assert found.get_values_for_type(x509.IPAddress) == addresses
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    constraints = made.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not constraints.ca
    lasts = made.not_valid_after_utc - made.not_valid_before_utc
    assert lasts == datetime.timedelta(days=31)
    authority = certificate(tmp_path / "ca.pem")
    assert authority.not_valid_after_utc > made.not_valid_after_utc
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_certificate_holds_on_a_machine_whose_clock_is_hours_behind(tmp_path):
    (folder,) = write_certificates(tmp_path, ["north"])
    behind = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=23)
    assert certificate(folder / "north.pem").not_valid_before_utc < behind
    assert certificate(tmp_path / "ca.pem").not_valid_before_utc < behind


def test_nodes_can_be_added_later_under_the_same_authority(tmp_path):
    write_certificates(tmp_path, ["north"])
    before = (tmp_path / "ca.pem").read_bytes()
    (folder,) = write_certificates(tmp_path, ["south"])
    assert (folder / "ca.pem").read_bytes() == before
    check_certificate(certificate_files(folder, "south"), "south")


def test_a_nodes_files_are_never_written_over_and_nothing_else_is_either(tmp_path):
    write_certificates(tmp_path, ["north"])
    before = (tmp_path / "north" / "north.key").read_bytes()
    assert "is left as it is" in refused(write_certificates, tmp_path, ["south", "north"])
    assert (tmp_path / "north" / "north.key").read_bytes() == before
    assert not (tmp_path / "south").exists()


@pytest.mark.parametrize(
    "names, hosts, hint",
    [
        (["North"], ["localhost"], "'North' cannot be a node's name"),
        (["ca"], ["localhost"], "not 'ca'"),
        (["a", "a"], ["localhost"], "comes twice"),
        (["a"], ["localhost:7447"], "'localhost:7447' is no host"),
        (["a"], ["bücher.example"], "is no host"),
        (["a"], [""], "'' is no host"),
    ],
)
def test_what_cannot_be_certified_is_refused(tmp_path, names, hosts, hint):
    assert hint in refused(write_certificates, tmp_path, names, hosts)
    assert not list(tmp_path.iterdir())


def test_an_authority_with_half_its_files_is_not_replaced(tmp_path):
    write_certificates(tmp_path, ["north"])
    (tmp_path / "ca.key").unlink()
    assert "ca.key cannot be read" in refused(write_certificates, tmp_path, ["south"])


def test_an_authority_of_two_halves_is_refused(tmp_path):
    write_certificates(tmp_path / "one", ["north"])
    write_certificates(tmp_path / "two", ["north"])
    (tmp_path / "one" / "ca.pem").write_bytes((tmp_path / "two" / "ca.pem").read_bytes())
    assert "is not the key of" in refused(write_certificates, tmp_path / "one", ["south"])


def test_a_disk_that_takes_no_files_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    assert "file" in refused(write_certificates, tmp_path / "file" / "ca", ["north"])


def broken(tmp_path, how):
    """``north``'s files with one slip."""
    (folder,) = write_certificates(tmp_path / "ours", ["north"])
    (other,) = write_certificates(tmp_path / "theirs", ["north"])
    (south,) = write_certificates(tmp_path / "ours", ["south"])
    name = {"ca": "ca.pem", "pem": "north.pem", "key": "north.key"}
    match how:
        case ("missing", what):
            (folder / name[what]).unlink()
        case ("garbage", what):
            (folder / name[what]).write_text("garbage")
        case ("foreign", what):
            (folder / name[what]).write_bytes((other / name[what]).read_bytes())
        case "of another":
            for end in ("pem", "key"):
                (folder / f"north.{end}").write_bytes((south / f"south.{end}").read_bytes())
        case "readable":
            (folder / "north.key").chmod(0o644)
    return certificate_files(folder, "north")


@pytest.mark.parametrize(
    "how, hint",
    [
        (("missing", "ca"), "ca.pem cannot be read: No such file or directory; potluck cert"),
        (("missing", "pem"), "north.pem cannot be read"),
        (("missing", "key"), "north.key cannot be read"),
        (("garbage", "ca"), "ca.pem is no certificate"),
        (("garbage", "pem"), "north.pem is no certificate"),
        (("garbage", "key"), "north.key is no private key"),
        (("foreign", "ca"), "was not signed by"),
        (("foreign", "pem"), "is not the key of"),
        (("foreign", "key"), "is not the key of"),
        ("of another", "is for 'south', and this node is 'north'"),
        ("readable", "chmod 600"),
    ],
)
def test_files_that_tls_could_not_use_are_refused_before(tmp_path, how, hint):
    assert hint in refused(check_certificate, broken(tmp_path, how), "north")


def test_a_certificate_whose_time_is_over_is_refused_with_both_times(tmp_path, monkeypatch):
    (folder,) = write_certificates(tmp_path, ["north"], ["localhost"], 30)

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return now + datetime.timedelta(days=31)

    now = datetime.datetime.now(datetime.UTC)
    monkeypatch.setattr("potluck.exchange.keys.certificates.datetime.datetime", Later)
    message = refused(check_certificate, certificate_files(folder, "north"), "north")
    assert "set the clock, or make a new certificate" in message
    assert f"{now + datetime.timedelta(days=30):%Y-%m-%d}" in message
    assert f"{now + datetime.timedelta(days=31):%Y-%m-%d %H:%M}" in message
